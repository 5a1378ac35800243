"""After any error, and after every write: ask the target's own log what happened before anything is said."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.delta.log import TableLog, find_log
from oncelake.errors import OncelakeError, OutcomeUnknown
from oncelake.model.coverage import Layer, clipped, joined
from oncelake.model.intervals import subtract
from oncelake.model.work import Commit, Work


@dataclass(frozen=True)
class Settled:
    """What a target's log says of a work: done, or in part, or not; by which commit, and whether that was this attempt's."""

    done: bool
    ours: bool = False
    partly: bool = False
    commit: Commit | None = None
    version: int | None = None


def settle(work: Work, path: str, attempt: str | None, problem: str = "") -> Settled:
    """What the log says of the work; OutcomeUnknown if it cannot be read after a write that raised."""
    try:
        log = find_log(work.target, path)
    except (OncelakeError, OSError) as error:
        if not problem:
            raise
        facts = {"target": work.target, "pipeline": work.pipeline, "problem": problem}
        raise OutcomeUnknown(log_problem=str(error), **facts) from error
    if log is None:
        return Settled(done=False)
    marked = work.marker.app_id
    if not log.done(work.marker):
        # Its time may have been done under the marker of a range around it, or of the parts of it.
        layers = _layers(work, log)
        if not layers or subtract([work.interval] if work.interval else [], joined(layers)):
            return Settled(done=False, partly=bool(layers), version=log.version)
        marked = layers[-1].name
    commit = log.commit(marked)
    ours = attempt is not None and commit is not None and commit.facts.get("attempt") == attempt
    return Settled(done=True, ours=ours, commit=commit, version=log.version)


def _layers(work: Work, log: TableLog) -> list[Layer]:
    """The parts of a work's time that are done in its generation or a later one."""
    if work.interval is None:
        return []
    there = clipped(log.layers(work.pipeline, work.target), work.interval)
    return [layer for layer in there if layer.height >= work.generation]
