"""After any error, and after every write: ask the target's own log what happened before anything is said."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.errors import OncelakeError, OutcomeUnknown
from oncelake.lake.log import find_log
from oncelake.work import Commit, Work


@dataclass(frozen=True)
class Settled:
    """What a target's log says of a work: done or not, by which commit, and whether that was this attempt's."""

    done: bool
    ours: bool = False
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
    if not log.done(work.marker):
        return Settled(done=False, version=log.version)
    commit = log.commit(work.marker.app_id)
    ours = attempt is not None and commit is not None and commit.facts.get("attempt") == attempt
    return Settled(done=True, ours=ours, commit=commit, version=log.version)
