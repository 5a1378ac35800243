"""`once.write`: one line for a job that already exists. The same patterns, the same marker, the same evidence."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncelake.declare.settings import LOCK_TIMEOUT
from oncelake.delta.compaction import compact_if_due
from oncelake.delta.lake_session import store_problems
from oncelake.delta.tables import Lake
from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Pattern
from oncelake.model.intervals import Grid, Interval
from oncelake.model.names import lake_path
from oncelake.model.slices import Named, Slice
from oncelake.model.source_location import declared_at
from oncelake.model.work import COMMITTED, Outcome, Work
from oncelake.running.commit import write_work
from oncelake.running.commit_state import requested_generation
from oncelake.running.context import RunContext
from oncelake.running.failures import error_of_work
from oncelake.spark.connect import is_connect

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
    """Write a frame exactly once. `work` names it, like "nightly/2024-03-15": the same name is the same work.

    `replace_interval` needs the `interval`, as an Interval or as two dates `(start, end)`, the end exclusive. An
    intended redo takes the next `generation`. Errors are raised; work that is already done is reported and skipped.
    """
    call = _Call(Grid("day") if interval is not None else None, declared_at())
    pipeline, slice_ = _named(work, interval, call)
    if isinstance(generation, bool) or not isinstance(generation, int) or not 1 <= generation < 1000:
        raise BadDeclaration(where=call.where, problem=f"generation={generation!r} is not a number from 1 to 999")
    if not isinstance(slice_, Interval) and pattern.kind == "replace_interval":
        raise BadDeclaration(where=call.where, problem="replace_interval needs interval=(start, end)")
    remote = is_connect(frame.sparkSession)
    context = RunContext(_lake(lake, remote, call), lambda: frame.sparkSession, (), LOCK_TIMEOUT)
    for problem in store_problems(context.lake.path, frame.sparkSession):
        warnings.warn(problem, stacklevel=2)
    table = context.lake.table(pattern.target)
    todo = Work(pipeline, pattern.target, slice_, generation, pattern.marker(pipeline, slice_, generation))
    if (log := table.log()) is not None and (requested := requested_generation(todo, log)) > generation:
        # A restore of an earlier release took its rows out, and requested another generation; now it sets the marker back.
        todo = replace(todo, generation=requested, marker=pattern.marker(pipeline, slice_, requested))
    try:
        outcome = write_work(todo, lambda: frame, pattern, table, context, call)
    except Exception as error:  # noqa: BLE001  it is raised as an error of ours
        found = error_of_work(error, todo)
        # There is no pipeline of that name to run.
        found.retry_with("call once.write again")
        raise found from error.__cause__ if found is error else error
    if outcome.outcome == COMMITTED and pattern.compacts:
        compact_if_due(table, context.session, warnings.warn)
    return outcome


def _lake(path: str, remote: bool, call: _Call) -> Lake:
    try:
        # Absolute, because Spark's idea of the current folder is that of its start.
        return Lake(lake_path(path), ".", remote=remote)
    except ValueError as error:
        raise BadDeclaration(where=call.where, problem=str(error)) from error


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
