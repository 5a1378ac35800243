"""What the end of a query means: the errors of Spark, Kafka and Delta that a user meets, in our words."""

from __future__ import annotations

import re

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.conflicts import ErrorKind, classify, one_line
from oncelake.errors import (
    MessagesLost,
    OncelakeError,
    SparkLost,
    StateDamaged,
    StreamChanged,
    StreamFailed,
    UpstreamRecreated,
    UpstreamRewritten,
    UpstreamVacuumed,
)
from oncelake.spark.session import log_folder

_LOST = re.compile(r"KAFKA_DATA_LOSS|failOnDataLoss|OffsetOutOfRange|data may have been lost", re.IGNORECASE)
_RECREATED = re.compile(r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING|differs from")
_REWRITTEN = re.compile(r"DELTA_SOURCE_(TABLE_)?IGNORE_(CHANGES|DELETE)")
_VACUUMED = re.compile(r"FAILED_READ_FILE.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND|DELTA_CHANGE_DATA_FILE_NOT_FOUND")
_STATE = re.compile(r"STATE_STORE_\w*SCHEMA_NOT_COMPATIBLE|STATEFUL_OPERATOR_NOT_MATCH|STATE_SCHEMA", re.IGNORECASE)
_DAMAGED_STATE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|MISSING_STATE_DIRECTORY|CANNOT_READ_STREAMING_STATE_FILE|STATE_STORE_\w*(?:METADATA|SNAPSHOT)"
    r"|OperatorStateMetadata"
)
_NO_KAFKA = re.compile(r"Failed to find (the )?data source: kafka", re.IGNORECASE)
_WRAPPED = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?$", re.DOTALL)


def error_of_stream(error: Exception, pipeline: Pipeline) -> OncelakeError:
    """Return the error of ours that ended a query."""
    if isinstance(error, OncelakeError):
        return error
    facts = {"pipeline": pipeline.name, "where": pipeline.where}
    if classify(error) is ErrorKind.LOST_JVM:
        return SparkLost(problem=one_line(error), log=log_folder(), target=pipeline.writes[0].target, **facts)
    return known_failure(error, **facts) or StreamFailed(problem=_problem(error), **facts)


def known_failure(error: Exception | str, pipeline: str, where: str) -> OncelakeError | None:
    """Return the error of ours that an exception of a source or a state, or its text, means; None if it may be anything."""
    text, problem, facts = str(error), _problem(error), {"pipeline": pipeline, "where": where}
    if _LOST.search(text):
        return MessagesLost(problem=problem, **facts)
    if _RECREATED.search(text):
        return UpstreamRecreated(problem=_first_sentence(problem), **facts)
    if _REWRITTEN.search(text):
        return UpstreamRewritten(problem=_first_sentence(problem), **facts)
    if _VACUUMED.search(text):
        return UpstreamVacuumed(problem=problem, **facts)
    if _STATE.search(text):
        return StreamChanged(what="state", before="of other columns or types", now=_first_sentence(problem), **facts)
    if _DAMAGED_STATE.search(text):
        return StateDamaged(problem=_first_sentence(problem), **facts)
    if _NO_KAFKA.search(text):
        jars = "python -m oncelake.spark.prepare --kafka"
        return StreamFailed(
            problem=f"the session has no Kafka source: {jars}, and pass its jars to your session", **facts
        )
    return None


def _first_sentence(problem: str) -> str:
    """Return what happened, without Delta's advice: to ignore changes is what a stream of ours never does."""
    return re.split(r"(?<=\w)[.] (?=[A-Z])", problem)[0]


def _problem(error: Exception | str) -> str:
    """Return the first line of what a query was ended by, without Spark's account of the query."""
    text = str(error).partition("\n=== Streaming Query ===")[0].strip()
    wrapped = _WRAPPED.search(text)
    if wrapped is None or not wrapped[1].strip():
        return one_line(error) if isinstance(error, Exception) else text
    return wrapped[1].strip().splitlines()[0]
