"""Carrying out a plan. One ring for every work: claim → pin → read → transform → write → settle → record."""

from __future__ import annotations

import json
import random
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from oncelake.caller import shown
from oncelake.code import code_fingerprint
from oncelake.contracts import Ledger, Log, Pattern, Reading, Stamp, Watcher, Writing
from oncelake.errors import Blocked, FunctionFailed, Lost, NoFrame, OncelakeError, WriteFailed
from oncelake.identity import Slice
from oncelake.interrupts import listening
from oncelake.intervals import Grid, Interval
from oncelake.lake.address import Address
from oncelake.lake.conflicts import Meaning, gist, meaning
from oncelake.lake.lock import Busy, table_lock
from oncelake.lake.session import cancel, in_zone
from oncelake.lake.targets import refused
from oncelake.lake.upkeep import keep_up
from oncelake.pipelines import Pipeline
from oncelake.points import reach
from oncelake.recovery import Settled, settle
from oncelake.work import ALREADY_DONE, BLOCKED, COMMITTED, FAILED, LOST, Outcome, Plan, Planned, Report, Rows, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 8
FIRST_PAUSE = 0.1


@dataclass(frozen=True)
class Ring:
    """Everything a run needs around it. The session is asked for only when there is work."""

    address: Address
    session: Callable[[], SparkSession]
    ledger: Ledger
    watcher: Watcher
    patience: float
    logs: Mapping[str, Log | None] = field(default_factory=dict)
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


class Conflict(Exception):
    """Another writer was faster, and what it wrote is not this work: build every frame anew and try again."""


def carry_out(plan: Plan, pipelines: Mapping[str, Pipeline], ring: Ring) -> Report:
    """Do what is not done, in the order of the plan, and report every work."""
    outcomes: list[Outcome] = []
    ring.watcher.planned(plan)
    with listening() as heard:
        for _, group in groupby(plan.works, key=lambda item: (item.work.pipeline, item.work.slice)):
            items = list(group)
            pipeline = pipelines[items[0].work.pipeline]
            try:
                if heard:
                    return Report(ring.run, tuple(outcomes), interrupted=True)
                outcomes += _carry_out(pipeline, items, outcomes, pipelines, ring)
            except KeyboardInterrupt:
                outcomes += _after_interrupt(items, ring)
                return Report(ring.run, tuple(outcomes), interrupted=True)
    return Report(ring.run, tuple(outcomes))


def _carry_out(
    pipeline: Pipeline,
    items: list[Planned],
    earlier: list[Outcome],
    pipelines: Mapping[str, Pipeline],
    ring: Ring,
) -> list[Outcome]:
    works = [item.work for item in items]
    done = [_skipped(item, ring) for item in items]
    if all(done):
        return [_told(outcome, ring) for outcome in done if outcome]
    if blocked := _blocked(pipeline, items, earlier, pipelines):
        return [_told(_failure(work, blocked, None, 0.0), ring) for work in works]
    for work in works:
        ring.watcher.started(work)
    ring.ledger.started(ring.run, works)
    outcomes = [_told(outcome, ring) for outcome in attempt(pipeline, works, ring)]
    ring.ledger.ended(ring.run, outcomes)
    reach("recorded")
    for outcome in outcomes:
        if outcome.outcome == COMMITTED and pipeline.pattern(outcome.target).compacts:
            keep_up(outcome.target, ring.address, ring.session, ring.watcher.warn)
    return outcomes


def _told(outcome: Outcome, ring: Ring) -> Outcome:
    ring.watcher.ended(outcome)
    return outcome


def _skipped(item: Planned, ring: Ring) -> Outcome | None:
    """The outcome of a work that is done: as the plan found it, or as somebody else did it since."""
    log = ring.logs.get(item.work.target)
    if item.action == "skip" and log is not None:
        return _done(item.work, Settled(done=True, commit=log.commit(item.work.marker.app_id)))
    return skipped(item.work, ring.address)


def skipped(work: Work, address: Address) -> Outcome | None:
    """The outcome of a work whose marker is there already; None if it is not."""
    settled = settle(work, address.table(work.target), None)
    return _done(work, settled) if settled.done else None


def _blocked(
    pipeline: Pipeline, items: list[Planned], earlier: list[Outcome], pipelines: Mapping[str, Pipeline]
) -> Blocked | None:
    for outcome in earlier:
        if outcome.outcome in (COMMITTED, ALREADY_DONE) or outcome.work.target not in pipeline.reads_tables:
            continue
        if _touch(outcome.work.slice, items[0].work.slice, pipeline, outcome.work.target):
            work = outcome.work
            return Blocked(upstream=work.pipeline, slice=str(work.slice), pipeline=pipeline.name, table=work.target)
    for item in items:
        if item.action == "wait":
            owner, table = _feeding(pipeline, pipelines)
            return Blocked(upstream=owner, slice=str(item.work.slice), pipeline=pipeline.name, table=table)
    return None


def _touch(upstream: Slice, slice_: Slice, pipeline: Pipeline, table: str) -> bool:
    """Whether what failed upstream is part of what this slice reads."""
    by_interval = all(s.by_interval for s in pipeline.reads.values() if table in s.tables)
    if by_interval and isinstance(upstream, Interval) and isinstance(slice_, Interval):
        return upstream.overlaps(slice_)
    return True


def _feeding(pipeline: Pipeline, pipelines: Mapping[str, Pipeline]) -> tuple[str, str]:
    for other in pipelines.values():
        for table in other.writes_tables & pipeline.reads_tables:
            return other.name, table
    raise LookupError(pipeline.name)


def attempt(pipeline: Pipeline, works: Sequence[Work], ring: Ring) -> list[Outcome]:
    """Try at the works of one slice until they are done, or it is known why not. Conflicts are tried again, bounded."""
    begun = time.monotonic()
    finished: dict[str, Outcome] = {}
    for number in range(TRIES):
        try:
            _try_once(pipeline, [work for work in works if work.target not in finished], finished, ring)
            break
        except Conflict as conflict:
            if number == TRIES - 1:
                lost = _lost(works[0], str(conflict))
                _fail(works, finished, lost, ring, begun)
            else:
                pause(number)
        except OncelakeError as error:
            _fail(works, finished, error, ring, begun)
            break
        except Exception as error:  # noqa: BLE001  whatever Spark raised, the log is asked and a report is due
            problem = f"{type(error).__name__}: {gist(error)}"
            told = WriteFailed(target=works[0].target, problem=problem, pipeline=pipeline.name)
            _fail(works, finished, told, ring, begun)
            break
    seconds = time.monotonic() - begun
    return [replace(finished[work.target], seconds=seconds) for work in works]


def pause(number: int) -> None:
    """Wait before trying again, longer each time, and not in step with whoever else is waiting."""
    time.sleep(FIRST_PAUSE * 2**number * random.uniform(0.5, 1.5))  # noqa: S311  jitter, not a secret


def _try_once(pipeline: Pipeline, works: list[Work], finished: dict[str, Outcome], ring: Ring) -> None:
    pins = _pins(pipeline, works[0].slice, ring)
    # Before the lock: it notes the JVMs there are when it is taken, and one it does not know of outlives a kill unseen.
    session = ring.session() if pipeline.grid is None else in_zone(ring.session(), pipeline.grid.zone)
    with ExitStack() as held:
        _claim(works, held, ring)
        settled = {work.target: settle(work, ring.address.table(work.target), None) for work in works}
        finished |= {work.target: _done(work, settled[work.target]) for work in works if settled[work.target].done}
        left = [work for work in works if work.target not in finished]
        if not left:
            return
        pins = _recorded_pins(finished, ring) or pins
        try:
            frames = _frames(pipeline, session, _reading(pipeline, works[0].slice, ring), pins)
            for work in left:
                finished[work.target] = _write(pipeline, work, frames[work.target], pins, ring)
        except KeyboardInterrupt:
            # While the lock is still held: nobody else should begin before Spark has stopped.
            cancel(session)
            raise


def _claim(works: list[Work], held: ExitStack, ring: Ring) -> None:
    """Take the lock of every target, always in the same order; stop waiting when somebody else has done the work."""

    def all_done() -> bool:
        return all(settle(work, ring.address.table(work.target), None).done for work in works)

    for work in sorted(works, key=lambda work: work.target):
        try:
            held.enter_context(table_lock(ring.address.lake, work.target, ring.patience, all_done))
        except Busy as busy:
            if all_done():
                return
            raise _lost(work, busy.holder) from busy
    reach("claimed")


def _lost(work: Work, holder: str) -> Lost:
    return Lost(target=work.target, holder=holder, again=f"oncelake run {work.pipeline}")


def _pins(pipeline: Pipeline, slice_: Slice, ring: Ring) -> dict[str, Any]:
    """The versions of everything the pipeline reads, as they are now. What is missing is found here, before Spark."""
    reading = _reading(pipeline, slice_, ring)
    pins = {name: dict(source.pin(reading)) for name, source in pipeline.reads.items()}
    reach("pinned")
    return pins


def _recorded_pins(finished: Mapping[str, Outcome], ring: Ring) -> dict[str, Any] | None:
    """What another target of the same slice was written from: the rest is written from the same."""
    for outcome in finished.values():
        commit = settle(outcome.work, ring.address.table(outcome.work.target), None).commit
        if commit is not None and "pins" in commit.facts:
            return dict(commit.facts["pins"])
    return None


def _reading(pipeline: Pipeline, slice_: Slice, ring: Ring) -> Reading:
    return Reading(pipeline.name, slice_, pipeline.grid, ring.address, pipeline.where)


def _frames(
    pipeline: Pipeline, session: SparkSession, reading: Reading, pins: Mapping[str, Any]
) -> dict[str, DataFrame]:
    arguments: dict[str, Any] = {
        name: source.read(session, reading, pins[name]) for name, source in pipeline.reads.items()
    }
    reach("read")
    if pipeline.takes_interval:
        arguments["interval"] = reading.slice
    try:
        result = pipeline.function(**arguments)
    except OncelakeError:
        raise
    except Exception as error:
        where, problem = _raised_at(error, pipeline), f"{type(error).__name__}: {gist(error)}"
        raise FunctionFailed(where=where, pipeline=pipeline.name, problem=problem) from error
    reach("transformed")
    return _by_target(result, pipeline)


def _raised_at(error: Exception, pipeline: Pipeline) -> str:
    """The line of the user's file that raised, or where the function is."""
    file = getattr(getattr(pipeline.function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{shown(file)}:{lines[-1]}" if file and lines else pipeline.where


def _by_target(result: Any, pipeline: Pipeline) -> dict[str, DataFrame]:
    from pyspark.sql import DataFrame

    targets = [pattern.target for pattern in pipeline.writes]
    expected = "a DataFrame" if len(targets) == 1 else f"a dict of DataFrames for {', '.join(targets)}"
    frames = {targets[0]: result} if len(targets) == 1 and not isinstance(result, dict) else result
    if not isinstance(frames, dict) or set(frames) != set(targets):
        got = f"a dict of {', '.join(map(str, frames))}" if isinstance(frames, dict) else _kind(result)
        raise NoFrame(where=pipeline.where, pipeline=pipeline.name, got=got, expected=expected)
    for target, frame in frames.items():
        if not isinstance(frame, DataFrame) or frame.isStreaming:
            got = "a streaming DataFrame" if isinstance(frame, DataFrame) else _kind(frame)
            expected = "a DataFrame" if len(targets) == 1 else f"a DataFrame for {target}"
            raise NoFrame(where=pipeline.where, pipeline=pipeline.name, got=got, expected=expected)
    return frames


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _write(pipeline: Pipeline, work: Work, frame: DataFrame, pins: Mapping[str, Any], ring: Ring) -> Outcome:
    facts = make_facts(work, ring.run, pins, code_fingerprint(pipeline.function))
    return write_work(frame, pipeline.pattern(work.target), make_writing(work, facts, ring.address, pipeline))


def make_facts(work: Work, run: str, pins: Mapping[str, Any], code: str | None) -> dict[str, Any]:
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
    reach("writing")
    try:
        pattern.write(frame, writing)
    except Exception as error:  # noqa: BLE001  a commit may have landed all the same
        failure = error
    reach("written")
    settled = settle(work, writing.path, writing.attempt, gist(failure) if failure else "")
    reach("settled")
    if settled.done:
        return _done(work, settled)
    if failure is None:
        raise WriteFailed(target=work.target, problem="no commit carries its marker", pipeline=work.pipeline)
    if meaning(failure) is Meaning.CONFLICT:
        raise Conflict(gist(failure)) from failure
    raise refused(failure, writing) from failure


def _done(work: Work, settled: Settled) -> Outcome:
    outcome = COMMITTED if settled.ours else ALREADY_DONE
    if settled.commit is None:
        return Outcome(work, outcome, None, Rows(quarantined=None))
    return Outcome(work, outcome, settled.commit.version, settled.commit.rows)


def _fail(works: Iterable[Work], finished: dict[str, Outcome], error: OncelakeError, ring: Ring, begun: float) -> None:
    for work in works:
        if work.target not in finished:
            finished[work.target] = _failure(work, error, _state(work, ring), time.monotonic() - begun)


def _state(work: Work, ring: Ring) -> str:
    """What is committed, for the one who reads the error."""
    try:
        settled = settle(work, ring.address.table(work.target), None)
    except (OncelakeError, OSError):
        return f"the log of {work.target} cannot be read"
    if settled.version is None:
        return f"{work.target} does not exist"
    return f"nothing of {work.slice} was written; {work.target} is at version {settled.version}"


def _failure(work: Work, error: OncelakeError, state: str | None, seconds: float) -> Outcome:
    outcome = {4: LOST}.get(error.exit_code, BLOCKED if isinstance(error, Blocked) else FAILED)
    message = str(error) if state is None else f"{error.message}\n  committed: {state}\n  next: {error.next}"
    return Outcome(work, outcome, None, Rows(None, None, None, None), seconds, message, error.code)


def _after_interrupt(items: list[Planned], ring: Ring) -> Iterator[Outcome]:
    """Say what is committed of the works that were under way."""
    for item in items:
        settled = settle(item.work, ring.address.table(item.work.target), None)
        if settled.done:
            outcome = _done(item.work, settled)
            same_run = settled.commit is not None and settled.commit.facts.get("run") == ring.run
            yield replace(outcome, outcome=COMMITTED if same_run else ALREADY_DONE)
