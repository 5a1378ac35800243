"""What an exception that a write raised means for its work."""

from __future__ import annotations

from oncelake.delta.conflicts import ErrorKind, classify, is_lost_server, one_line
from oncelake.errors import DeltaMissing, MachineFailed, OncelakeError, ServerLost, SparkLost, WriteFailed
from oncelake.model.work import Work
from oncelake.spark.session import log_folder


def error_of_work(error: Exception, work: Work) -> OncelakeError:
    """Return the error of ours that an exception means for a work."""
    if (found := environment_error(error, work)) is not None:
        return found
    if isinstance(error, OncelakeError):
        return error
    return WriteFailed(problem=f"{type(error).__name__}: {one_line(error)}", target=work.target, pipeline=work.pipeline)


def environment_error(error: Exception, work: Work) -> OncelakeError | None:
    """Return the error of ours for an exception whose cause is the JVM, the server, the machine or a session without Delta."""
    kind, facts = classify(error), {"target": work.target, "pipeline": work.pipeline}
    if kind is ErrorKind.LOST_JVM:
        if is_lost_server(error):
            return ServerLost(problem=one_line(error), **facts)
        return SparkLost(problem=one_line(error), log=log_folder(), **facts)
    if isinstance(error, OncelakeError) or kind not in (ErrorKind.NO_DELTA, ErrorKind.MACHINE):
        return None
    problem = f"{type(error).__name__}: {one_line(error)}"
    return (DeltaMissing if kind is ErrorKind.NO_DELTA else MachineFailed)(problem=problem, **facts)
