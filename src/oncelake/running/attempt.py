"""One ring for every work: claim → pin → read → transform → write → settle. Tried again when somebody was faster."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from oncelake.declare.code_fingerprint import code_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.delta.conflicts import ErrorKind, classify, one_line
from oncelake.delta.targets import refused
from oncelake.errors import Blocked, OncelakeError, TableBusy, WriteFailed
from oncelake.model.contracts import Ledger, Log, Pattern, Reading, Stamp, Watcher, Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Grid
from oncelake.model.slices import Slice
from oncelake.model.work import ALREADY_DONE, BLOCKED, BUSY, COMMITTED, FAILED, Outcome, Rows, Work
from oncelake.running.commit_state import CommitState, commit_state
from oncelake.running.invocation import find_invocation
from oncelake.running.transform import SchemasDiffer, SliceFrame, call_transform, unite
from oncelake.spark.session import cancel, in_timezone
from oncelake.storage.lock import Busy, table_lock
from oncelake.storage.paths import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 8
FIRST_PAUSE = 0.1


@dataclass(frozen=True)
class RunContext:
    """Everything a run needs around it. The session is asked for only when there is work."""

    address: Address
    session: Callable[[], SparkSession]
    ledger: Ledger
    watcher: Watcher
    lock_timeout: float
    logs: Mapping[str, Log | None] = field(default_factory=dict)
    # So many slices at once, where they do not get in each other's way; and the tables whose lock the run holds for them.
    jobs: int = 1
    held: frozenset[str] = frozenset()
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


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


class Retryable(Exception):
    """The log says that a work is not done, and trying again may help: every frame is built anew."""


class Conflict(Retryable):
    """Another writer was faster, and what it wrote is not this work."""


class Transient(Retryable):
    """An executor was lost, a store did not answer in time."""


def skipped(work: Work, address: Address) -> Outcome | None:
    """The outcome of a work whose marker is there already; None if it is not."""
    settled = commit_state(work, address.table(work.target), None)
    return outcome_of(work, settled) if settled.done else None


class SplitRange(Exception):
    """A range that cannot be written as one: part of it is done already, or its intervals have different columns."""


def attempt(pipeline: Pipeline, works: Sequence[Work], context: RunContext) -> list[Outcome]:
    """Try at the works of one slice until they are done, or it is known why not. Conflicts are tried again, bounded."""
    begun = time.monotonic()
    finished: dict[str, Outcome] = {}
    for number in range(TRIES):
        try:
            _try_once(pipeline, [work for work in works if work.target not in finished], finished, context)
            break
        except Retryable as again:
            if number < TRIES - 1:
                pause(number)
                continue
            _fail(works, finished, _gave_up(works[0], again), context, begun)
        except OncelakeError as error:
            _fail(works, finished, error, context, begun)
            break
        except Exception as error:  # noqa: BLE001  whatever Spark raised, the log is asked and a report is due
            if classify(error) is ErrorKind.TRANSIENT and number < TRIES - 1:
                pause(number)
                continue
            problem = f"{type(error).__name__}: {one_line(error)}"
            told = WriteFailed(target=works[0].target, problem=problem, pipeline=pipeline.name)
            _fail(works, finished, told, context, begun)
            break
    seconds = time.monotonic() - begun
    return [replace(finished[work.target], seconds=seconds) for work in works]


def pause(number: int) -> None:
    """Wait before trying again, longer each time, and not in step with whoever else is waiting."""
    time.sleep(FIRST_PAUSE * 2**number * random.uniform(0.5, 1.5))  # noqa: S311  jitter, not a secret


def _try_once(pipeline: Pipeline, works: list[Work], finished: dict[str, Outcome], context: RunContext) -> None:
    pins = _pins(pipeline, works[0].slice, context)
    # Before the lock: it notes the JVMs there are when it is taken, and one it does not know of outlives a kill unseen.
    session = context.session() if pipeline.grid is None else in_timezone(context.session(), pipeline.grid.zone)
    with ExitStack() as held:
        claim([work for work in works if work.target not in context.held], held, context)
        settled = {work.target: commit_state(work, context.address.table(work.target), None) for work in works}
        finished |= {work.target: outcome_of(work, settled[work.target]) for work in works if settled[work.target].done}
        left = [work for work in works if work.target not in finished]
        if not left:
            return
        if any(settled[work.target].partly for work in left):
            raise SplitRange
        pins = _recorded_pins(finished, context) or pins
        try:
            parts = call_transform(pipeline, session, _reading(pipeline, works[0].slice, context), pins)
            for work in left:
                finished[work.target] = _write(pipeline, work, parts[work.target], pins, context)
        except SchemasDiffer as uneven:
            raise SplitRange from uneven
        except KeyboardInterrupt:
            # While the lock is still held: nobody else should begin before Spark has stopped.
            cancel(session)
            raise


def claim(works: list[Work], held: ExitStack, context: RunContext) -> None:
    """Take the lock of every target, always in the same order; stop waiting when somebody else has done the work."""

    def all_done() -> bool:
        return all(commit_state(work, context.address.table(work.target), None).done for work in works)

    by_target = {work.target: work for work in works}
    for _, work in sorted(by_target.items()):
        try:
            doing = f"{work.pipeline} {work.slice}"
            held.enter_context(table_lock(context.address.lake, work.target, context.lock_timeout, all_done, doing))
        except Busy as busy:
            if all_done():
                return
            raise _lost(work, busy.holder) from busy
    failpoint("claimed")


def _gave_up(work: Work, again: Retryable) -> OncelakeError:
    if isinstance(again, Conflict):
        return _lost(work, str(again))
    problem = f"{again} ({TRIES} tries)"
    return WriteFailed(target=work.target, problem=problem, pipeline=work.pipeline)


def _lost(work: Work, holder: str) -> TableBusy:
    return TableBusy(target=work.target, holder=holder, again=f"oncelake run {work.pipeline}")


def _pins(pipeline: Pipeline, slice_: Slice, context: RunContext) -> dict[str, Any]:
    """The versions of everything the pipeline reads, as they are now. What is missing is found here, before Spark."""
    reading = _reading(pipeline, slice_, context)
    pins = {name: dict(source.pin(reading)) for name, source in pipeline.reads.items()}
    failpoint("pinned")
    return pins


def _recorded_pins(finished: Mapping[str, Outcome], context: RunContext) -> dict[str, Any] | None:
    """What another target of the same slice was written from: the rest is written from the same."""
    for outcome in finished.values():
        commit = commit_state(outcome.work, context.address.table(outcome.work.target), None).commit
        if commit is not None and "pins" in commit.facts:
            return dict(commit.facts["pins"])
    return None


def _reading(pipeline: Pipeline, slice_: Slice, context: RunContext) -> Reading:
    return Reading(pipeline.name, slice_, pipeline.grid, context.address, pipeline.where)


def _write(
    pipeline: Pipeline, work: Work, parts: Sequence[SliceFrame], pins: Mapping[str, Any], context: RunContext
) -> Outcome:
    pattern = pipeline.pattern(work.target)
    facts = make_facts(work, context.run, pins, code_fingerprint(pipeline.function), pattern.kind)
    writing = make_writing(work, facts, context.address, pipeline)
    return write_work(unite(parts, pattern, writing), pattern, writing)


def make_facts(work: Work, run: str, pins: Mapping[str, Any], code: str | None, pattern: str) -> dict[str, Any]:
    """What travels in the commit beside the marker. Only what was declared and counted, never a setting or a secret."""
    return {
        "pipeline": work.pipeline,
        "target": work.target,
        "slice": work.slice.text,
        "generation": work.generation,
        "run": run,
        "attempt": uuid.uuid4().hex[:12],
        "pins": pins,
        "code": code,
        "pattern": pattern,
        "invocation": find_invocation().document(),
    }


def make_writing(work: Work, facts: Mapping[str, Any], address: Address, declared: Declared) -> Writing:
    """What a pattern is asked to write."""
    stamp = Stamp(work.marker, json.dumps({"oncelake": facts}, separators=(",", ":")))
    path, own = address.table(work.target), address.own()
    return Writing(work, path, stamp, facts["attempt"], declared.grid, declared.where, own)


def write_work(frame: DataFrame, pattern: Pattern, writing: Writing) -> Outcome:
    """Write one target and say what happened from evidence: the log is asked after the write, whatever it answered."""
    work = writing.work
    failure: Exception | None = None
    failpoint("writing")
    try:
        pattern.write(frame, writing)
    except Exception as error:  # noqa: BLE001  a commit may have landed all the same
        failure = error
    failpoint("written")
    settled = commit_state(work, writing.path, writing.attempt, one_line(failure) if failure else "")
    failpoint("settled")
    if settled.done:
        return outcome_of(work, settled)
    if failure is None:
        raise WriteFailed(target=work.target, problem="no commit carries its marker", pipeline=work.pipeline)
    if (meant := classify(failure)) in (ErrorKind.CONFLICT, ErrorKind.TRANSIENT):
        raise (Conflict if meant is ErrorKind.CONFLICT else Transient)(one_line(failure)) from failure
    raise refused(failure, writing) from failure


def outcome_of(work: Work, settled: CommitState) -> Outcome:
    """What a log that says a work is done makes of it."""
    outcome = COMMITTED if settled.ours else ALREADY_DONE
    if settled.commit is None:
        return Outcome(work, outcome, None, Rows(quarantined=None))
    return Outcome(work, outcome, settled.commit.version, settled.commit.rows)


def _fail(
    works: Iterable[Work], finished: dict[str, Outcome], error: OncelakeError, context: RunContext, begun: float
) -> None:
    for work in works:
        if work.target not in finished:
            finished[work.target] = failure_of(work, error, _state(work, context), time.monotonic() - begun)


def _state(work: Work, context: RunContext) -> str:
    """What is committed, for the one who reads the error."""
    try:
        settled = commit_state(work, context.address.table(work.target), None)
    except (OncelakeError, OSError):
        return f"the log of {work.target} cannot be read"
    if settled.version is None:
        return f"{work.target} does not exist"
    return f"nothing of {work.slice} was written; {work.target} is at version {settled.version}"


def failure_of(work: Work, error: OncelakeError, state: str | None, seconds: float) -> Outcome:
    """What an error makes of a work, with what is committed for the one who reads it."""
    outcome = {4: BUSY}.get(error.exit_code, BLOCKED if isinstance(error, Blocked) else FAILED)
    message = str(error) if state is None else f"{error.message}\n  committed: {state}\n  next: {error.next}"
    return Outcome(work, outcome, None, Rows(None, None, None, None), seconds, message, error.code)
