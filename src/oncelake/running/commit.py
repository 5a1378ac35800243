"""The commit protocol: lock → ask the log → build the frame → one commit → ask the log again → outcome from evidence.

Everything that commits goes through here: runs, `once.write`, restate requests, repairs and restores. There is one loop
that takes locks and retries with backoff.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncelake.delta.conflicts import ErrorKind, TableChanged, classify, one_line
from oncelake.delta.targets import refused
from oncelake.errors import LakeUnreachable, OncelakeError, OutcomeUnknown, TableBusy, WriteFailed
from oncelake.model.contracts import Log, Pattern, Stamp, Table, Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, reapply_app_id
from oncelake.model.slices import count_cells
from oncelake.model.work import Outcome, Work
from oncelake.running.commit_state import commit_state, state_in
from oncelake.running.context import RunContext
from oncelake.running.invocation import find_invocation
from oncelake.storage.lock import Busy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES = 8
FIRST_PAUSE = 0.1

T = TypeVar("T")
MakeFrame = Callable[[], "DataFrame"]


class Declared(Protocol):
    """The grid and place of whatever declared a work."""

    @property
    def grid(self) -> Grid | None:
        """The grid its intervals lie on."""
        ...

    @property
    def where(self) -> str:
        """`file:line` of the declaration."""
        ...


@dataclass(frozen=True)
class Claim:
    """What the retry loop holds and tells: the tables, what is done to them, and what to type if they stay busy.

    `done` says that waiting for a lock is pointless, because another runner has committed the work.
    """

    tables: Sequence[Table]
    doing: str
    retry_with: str
    done: Callable[[], bool] = lambda: False
    retrying: Callable[[int, float, str], None] = lambda *_: None
    # The target to name in an error, where the run holds the locks and the claim has no tables of its own.
    target: str = ""
    # The address of the Connect session that commits: it may do so after this process was killed.
    session: str | None = None


class Retryable(Exception):
    """The log says that a work is not done, and a retry may help: every frame is built again."""


class Conflict(Retryable):
    """Another writer was faster, and what it wrote is not this work."""


class Transient(Retryable):
    """An executor was lost, or a store did not answer in time."""


def commit_once(act: Callable[[], T], claim: Claim, lock_timeout: float) -> T:
    """Hold the locks of the tables and act, which asks the log, commits and asks again; retry with backoff, bounded.

    The only loop that locks, backs off and retries: `run`, `once.write`, restate, repair, restore and rebuild use it.
    """
    number = 0
    while True:
        number += 1
        try:
            with ExitStack() as held:
                hold(claim, held, lock_timeout)
                return act()
        except Exception as error:
            retryable = _retryable(error)
            if retryable is None:
                raise
            if number == TRIES:
                raise _gave_up(retryable, claim) from error
            # Longer each time, and not in step with others that back off.
            seconds = FIRST_PAUSE * 2 ** (number - 1) * random.uniform(0.5, 1.5)  # noqa: S311  jitter, not a secret
            claim.retrying(number, seconds, str(retryable))
            time.sleep(seconds)


def write_work(  # noqa: PLR0913  all that a plan would say
    work: Work,
    make_frame: MakeFrame,
    pattern: Pattern,
    table: Table,
    context: RunContext,
    declared: Declared,
    *,
    more_facts: Mapping[str, Any] | None = None,
) -> Outcome:
    """Commit one work exactly once, and return from evidence whether this call did it or it was done already."""

    def act() -> Outcome:
        state = commit_state(work, table)
        if state.done:
            return state.outcome(work)
        facts = {**make_facts(work, context.run, {}, None, pattern), **(more_facts or {})}
        return write_once(make_frame(), pattern, make_writing(work, facts, context, declared))

    begun = time.monotonic()
    again = f"call once.write again; it is safe: work {work.pipeline} {work.slice} is written once"
    claim = Claim([table], f"{work.pipeline} {work.slice}", again, lambda: commit_state(work, table).done)
    return replace(commit_once(act, claim, context.lock_timeout), seconds=time.monotonic() - begun)


def write_once(frame: DataFrame, pattern: Pattern, writing: Writing) -> Outcome:
    """Write one target and say what happened from evidence: the log is asked after the write, whatever it answered."""
    work = writing.work
    failure: Exception | None = None
    failpoint("writing")
    try:
        if writing.table.lost_lock():
            raise TableChanged(f"the lease on {work.target} expired, and another runner has it")
        pattern.write(frame, writing)
    except Exception as error:  # noqa: BLE001  a commit may have landed all the same
        failure = error
    failpoint("written")
    state = commit_state(work, writing.table, writing.attempt, one_line(failure) if failure else "")
    failpoint("settled")
    if state.done:
        return state.outcome(work)
    if state.overtaken is not None and (failure is None or state.ours):
        raise Conflict(f"another commit came between the version it had read and version {state.overtaken}")
    if failure is None:
        raise WriteFailed(target=work.target, problem="no commit carries its marker", pipeline=work.pipeline)
    if (kind := classify(failure)) in (ErrorKind.CONFLICT, ErrorKind.TRANSIENT):
        raise (Conflict if kind is ErrorKind.CONFLICT else Transient)(one_line(failure)) from failure
    raise refused(failure, writing) from failure


def commit_and_ask(write: Callable[[], None], landed: Callable[[], bool], target: str, retry_with: str) -> None:
    """Commit something that is no work: a restore, a rebuild, a request. After any error the log is asked whether it landed."""
    try:
        write()
    except Exception as error:
        try:
            if landed():
                return
        except (OncelakeError, OSError) as unread:
            facts = {"target": target, "pipeline": "", "problem": one_line(error), "log_problem": one_line(unread)}
            raise retried_with(OutcomeUnknown(**facts), retry_with) from error
        if isinstance(error, OncelakeError):
            raise
        if (retryable := _retryable(error)) is not None:
            raise retryable from error
        problem = f"{type(error).__name__}: {one_line(error)}"
        raise retried_with(WriteFailed(target=target, problem=problem, pipeline=""), retry_with) from error


def retried_with(error: OncelakeError, instead: str) -> OncelakeError:
    """Return an error whose next step is another one than `oncelake run`."""
    error.retry_with(instead)
    return error


def make_facts(work: Work, run: str, pins: Mapping[str, Any], code: str | None, pattern: Pattern) -> dict[str, Any]:
    """Return what travels in the commit beside the marker: what was declared and counted, never a setting or a secret."""
    return {
        "pipeline": work.pipeline,
        "target": work.target,
        "slice": work.slice.text,
        "generation": work.generation,
        "run": run,
        "attempt": uuid.uuid4().hex[:12],
        "pins": pins,
        "code": code,
        "pattern": pattern.kind,
        **({"keys": list(pattern.keys)} if pattern.keys else {}),
        **({"replaces": dict(pattern.replaced_rows)} if pattern.replaced_rows else {}),
        "invocation": find_invocation().document(),
    }


def make_writing(work: Work, facts: Mapping[str, Any], context: RunContext, declared: Declared) -> Writing:
    """Return what a pattern is asked to write. A work that was overtaken is applied under a marker of its own."""
    project = {"project": context.project} if context.project else {}
    table, internal = context.lake.table(work.target), context.lake.internal_path()
    log = table.last_log()
    known = {
        "as_of": log.version if log else -1,
        **({"overtaken": dict(log.overtaken)} if log and log.overtaken else {}),
    }
    marker = reapply_marker(work.marker, log) if log else work.marker
    stamp = Stamp(marker, json.dumps({"oncelake": {**facts, **project, **known}}, separators=(",", ":")))
    writing = Writing(work, table, stamp, facts["attempt"], declared.grid, declared.where, internal)
    if table.exclusive:
        return writing
    if log is not None:
        # The log may be newer than the look before: `as_of` must not name a version in which another runner did this work.
        _refuse_done(work, log)
    is_range = count_cells(work.slice, declared.grid) > 1
    return replace(writing, fence=partial(_refuse_done, work, partly=True)) if is_range else writing


def _refuse_done(work: Work, log: Log, partly: bool = False) -> None:
    """Raise TableChanged if a log says that a work is done, or a part of it."""
    state = state_in(work, log)
    if state.done or (partly and state.partly):
        raise TableChanged(f"another runner committed {work.slice} or a part of it")


def reapply_marker(marker: Marker, log: Log) -> Marker:
    """Return the marker of the commit that applies a work once more, if it was overtaken; else the work's own."""
    overtaken = log.overtaken_version(marker.app_id) if log.done(marker) else None
    if overtaken is None:
        return marker
    app_id = reapply_app_id(marker.app_id)
    # Above what is recorded: after a restore the same version may have to be applied once more again.
    return Marker(app_id, max(overtaken, (log.recorded(app_id) or 0) + 1))


def hold(claim: Claim, held: ExitStack, lock_timeout: float) -> None:
    """Take the lock of every table, always in the same order; stop waiting when another runner has done the work."""
    for table in sorted(claim.tables, key=lambda table: table.name):
        try:
            held.enter_context(table.lock(lock_timeout, claim.done, claim.doing, claim.session))
        except Busy as busy:
            if claim.done():
                return
            raise TableBusy(target=table.name, holder=busy.holder, again=claim.retry_with) from busy
    failpoint("claimed")


def _retryable(error: Exception) -> Retryable | None:
    """Return what a retry may cure, or None."""
    if isinstance(error, Retryable):
        return error
    is_final = isinstance(error, OncelakeError) and not isinstance(error, LakeUnreachable)
    kind = ErrorKind.OTHER if is_final else classify(error)
    means = {ErrorKind.CONFLICT: Conflict, ErrorKind.TRANSIENT: Transient}.get(kind)
    return means(f"{type(error).__name__}: {one_line(error)}") if means else None


def _gave_up(error: Retryable, claim: Claim) -> OncelakeError:
    target = claim.target or claim.tables[0].name
    if isinstance(error, Conflict):
        return TableBusy(target=target, holder=str(error), again=claim.retry_with)
    problem = f"{error} ({TRIES} tries)"
    return retried_with(WriteFailed(target=target, problem=problem, pipeline=""), claim.retry_with)
