"""After any error, and after every write: ask the target's own log what happened before anything is said."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.delta.log import TableLog, find_log
from oncelake.errors import OncelakeError, OutcomeUnknown
from oncelake.model.coverage import Coverage, clip, coalesce
from oncelake.model.intervals import subtract
from oncelake.model.work import Commit, Work


@dataclass(frozen=True)
class CommitState:
    """What a target's log says of a work: done, or in part, or not; by which commit, and whether that was this attempt's."""

    done: bool
    ours: bool = False
    partly: bool = False
    commit: Commit | None = None
    version: int | None = None


def commit_state(work: Work, path: str, attempt: str | None, problem: str = "") -> CommitState:
    """What the log says of the work; OutcomeUnknown if it cannot be read after a write that raised."""
    try:
        log = find_log(work.target, path)
    except (OncelakeError, OSError) as error:
        if not problem:
            raise
        facts = {"target": work.target, "pipeline": work.pipeline, "problem": problem}
        raise OutcomeUnknown(log_problem=str(error), **facts) from error
    if log is None:
        return CommitState(done=False)
    app_id = work.marker.app_id
    if not log.done(work.marker):
        # Its time may have been done under the marker of a range around it, or of the parts of it.
        coverage = _layers(work, log)
        if not coverage or subtract([work.interval] if work.interval else [], coalesce(coverage)):
            return CommitState(done=False, partly=bool(coverage), version=log.version)
        app_id = coverage[-1].name
    commit = log.commit(app_id)
    ours = attempt is not None and commit is not None and commit.facts.get("attempt") == attempt
    return CommitState(done=True, ours=ours, commit=commit, version=log.version)


def _layers(work: Work, log: TableLog) -> list[Coverage]:
    """The parts of a work's time that are done in its generation or a later one."""
    if work.interval is None:
        return []
    there = clip(log.coverage(work.pipeline, work.target), work.interval)
    return [covered for covered in there if covered.generation >= work.generation]
