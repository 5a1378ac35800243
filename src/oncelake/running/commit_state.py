"""Ask the target's own log what happened: before every write, after it, and after any error, before anything is said."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.errors import OncelakeError, OutcomeUnknown
from oncelake.model.contracts import Log, Table
from oncelake.model.coverage import Coverage, clip, coalesce
from oncelake.model.intervals import subtract
from oncelake.model.markers import reapply_app_id, restate_app_id
from oncelake.model.slices import Batch
from oncelake.model.work import ALREADY_DONE, COMMITTED, Commit, Outcome, Rows, Work


@dataclass(frozen=True)
class CommitState:
    """What a log says of a work: done, partly done, or not; by which commit, and whether that was this attempt's.

    A work that was `overtaken` in a version is committed but must be applied once more, so it is not done.
    """

    done: bool
    ours: bool = False
    partly: bool = False
    commit: Commit | None = None
    version: int | None = None
    overtaken: int | None = None

    def outcome(self, work: Work) -> Outcome:
        """Return the outcome of a work that the log says is done."""
        outcome = COMMITTED if self.ours else ALREADY_DONE
        if self.commit is None:
            return Outcome(work, outcome, None, Rows(quarantined=None))
        return Outcome(work, outcome, self.commit.version, self.commit.rows)


def commit_state(work: Work, table: Table, attempt: str | None = None, problem: str = "") -> CommitState:
    """Ask the log, refreshed, whether a work is done; OutcomeUnknown if it cannot be read after a write that raised."""
    try:
        log = table.log()
    except (OncelakeError, OSError) as error:
        if not problem:
            raise
        facts = {"target": work.target, "pipeline": work.pipeline, "problem": problem}
        raise OutcomeUnknown(log_problem=str(error), **facts) from error
    return CommitState(done=False) if log is None else state_in(work, log, attempt)


def state_in(work: Work, log: Log, attempt: str | None = None) -> CommitState:
    """Return what a log that was read says of a work."""
    app_id = work.marker.app_id
    if not log.done(work.marker):
        # The marker of a range around the work, or markers of its parts, may cover its time.
        covered = _coverage(work, log)
        if not covered or subtract([work.interval] if work.interval else [], coalesce(covered)):
            return CommitState(done=False, partly=bool(covered), version=log.version)
        app_id = covered[-1].name
    overtaken = log.overtaken_version(app_id)
    if overtaken is not None:
        commit = log.commit_at(overtaken)
        ours = _is_by(attempt, commit)
        return CommitState(done=False, ours=ours, commit=commit, version=log.version, overtaken=overtaken)
    commit, reapplied = log.commit(app_id), log.commit(reapply_app_id(app_id)) if attempt else None
    commit = reapplied if _is_by(attempt, reapplied) else commit
    if isinstance(work.slice, Batch) and commit is not None and commit.facts.get("slice") != work.slice.text:
        # The marker of a stream is that of its last batch.
        commit = None
    return CommitState(done=True, ours=_is_by(attempt, commit), commit=commit, version=log.version)


def _is_by(attempt: str | None, commit: Commit | None) -> bool:
    return attempt is not None and commit is not None and commit.facts.get("attempt") == attempt


def requested_generation(work: Work, log: Log) -> int:
    """Return the generation up to which a work was requested to be redone, by a restatement or a restore; 0 if never."""
    if work.interval is None:
        return log.recorded(restate_app_id(work.pipeline, work.target, work.slice)) or 0
    requests = clip(log.coverage(work.pipeline, work.target, requested=True), work.interval)
    return max((request.generation for request in requests), default=0)


def _coverage(work: Work, log: Log) -> list[Coverage]:
    """Return the parts of a work's time that are done in its generation or a later one."""
    if work.interval is None:
        return []
    covered = clip(log.coverage(work.pipeline, work.target), work.interval)
    return [part for part in covered if part.generation >= work.generation]
