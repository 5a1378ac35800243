"""`once.write`: one line for a job that already exists. The same patterns, the same marker, the same evidence."""

from __future__ import annotations

import time
import uuid
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncelake.declare.settings import LOCK_TIMEOUT
from oncelake.delta.compaction import compact_if_due
from oncelake.errors import BadDeclaration, OncelakeError, TableBusy, WriteFailed
from oncelake.model.contracts import Pattern
from oncelake.model.intervals import Grid, Interval
from oncelake.model.slices import Named, Slice
from oncelake.model.source_location import declared_at
from oncelake.model.work import COMMITTED, Outcome, Work
from oncelake.running.attempt import TRIES, Conflict, Retryable, make_facts, make_writing, pause, skipped, write_work
from oncelake.running.commit_state import commit_state
from oncelake.storage.lock import Busy, table_lock
from oncelake.storage.paths import Address, is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _Call:
    grid: Grid | None
    where: str


def write(
    frame: DataFrame,
    pattern: Pattern,
    *,
    work: str,
    lake: str,
    interval: Interval | tuple[str, str] | None = None,
    generation: int = 1,
) -> Outcome:
    """Write a frame once. `work` names it, like "nightly/2024-03-15": the same name again is the same work.

    `replace_interval` needs the `interval`, as an Interval or as two dates `(start, end)`, the end exclusive. An
    intended redo takes the next `generation`. Errors are raised; what is done already is reported, not done again.
    """
    call = _Call(Grid("day") if interval is not None else None, declared_at())
    pipeline, slice_ = _named(work, interval, call)
    if isinstance(generation, bool) or not isinstance(generation, int) or not 1 <= generation < 1000:
        raise BadDeclaration(where=call.where, problem=f"generation={generation!r} is not a number from 1 to 999")
    if not isinstance(slice_, Interval) and pattern.kind == "replace_interval":
        raise BadDeclaration(where=call.where, problem="replace_interval needs interval=(start, end)")
    todo = Work(pipeline, pattern.target, slice_, generation, pattern.marker(pipeline, slice_, generation))
    return _write(frame, pattern, todo, _address(lake), call)


def _address(lake: str) -> Address:
    # Absolute, because Spark's idea of the current folder is that of its start.
    return Address(str(local_path(lake).resolve()) if is_local(lake) else lake.rstrip("/"), ".")


def _named(work: str, interval: Interval | tuple[str, str] | None, call: _Call) -> tuple[str, Slice]:
    pipeline, _, rest = work.partition("/") if isinstance(work, str) else ("", "", "")
    if not pipeline.strip():
        raise BadDeclaration(where=call.where, problem=f"work={work!r} names nothing; it is like 'nightly/2024-03-15'")
    if interval is None:
        return pipeline, Named(rest)
    # The interval is the slice, so all of the name must be in the pipeline: two names are two works.
    if isinstance(interval, Interval):
        return work, interval
    try:
        start, end = (Grid("day").parse(value) for value in interval)
        return work, Interval(start, end)
    except (ValueError, TypeError) as error:
        raise BadDeclaration(where=call.where, problem=f"interval={interval!r}: {error}") from error


def _write(frame: DataFrame, pattern: Pattern, todo: Work, address: Address, call: _Call) -> Outcome:
    begun = time.monotonic()
    path = address.table(todo.target)
    for number in range(TRIES):
        try:
            with table_lock(address.lake, todo.target, LOCK_TIMEOUT, lambda: commit_state(todo, path, None).done):
                outcome = skipped(todo, address)
                if outcome is None:
                    writing = make_writing(
                        todo, make_facts(todo, uuid.uuid4().hex[:12], {}, None, pattern.kind), address, call
                    )
                    outcome = write_work(frame, pattern, writing)
            if outcome.outcome == COMMITTED and pattern.compacts:
                compact_if_due(todo.target, address, lambda: frame.sparkSession, warnings.warn)
            return replace(outcome, seconds=time.monotonic() - begun)
        except Busy as busy:
            if (outcome := skipped(todo, address)) is not None:
                return outcome
            raise _lost(todo, busy.holder) from busy
        except Retryable as again:
            if number == TRIES - 1:
                raise _gave_up(todo, again) from again
            pause(number)
    raise AssertionError("unreachable")


def _gave_up(todo: Work, again: Retryable) -> OncelakeError:
    if isinstance(again, Conflict):
        return _lost(todo, str(again))
    return WriteFailed(target=todo.target, problem=f"{again} ({TRIES} tries)", pipeline=todo.pipeline)


def _lost(todo: Work, holder: str) -> TableBusy:
    again = f"call once.write again; it is safe: work {todo.pipeline} {todo.slice} is written once"
    return TableBusy(target=todo.target, holder=holder, again=again)
