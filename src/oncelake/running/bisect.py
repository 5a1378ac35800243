"""Ranges that cannot be committed as one, cut: in halves until what fails is alone, and where something upstream failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import Blocked, EarlierNotDone, OncelakeError
from oncelake.model.intervals import Interval, subtract
from oncelake.model.slices import Batch, Slice, comes_before, halves, overlap
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome, Planned, Work


def restrict(work: Work, interval: Interval, pipeline: Pipeline) -> Work:
    """Return the same work for a part of its slice."""
    marker = pipeline.pattern(work.target).marker(pipeline.name, interval, work.generation)
    return replace(work, slice=interval, marker=marker)


def halve(works: Sequence[Work], outcomes: Sequence[Outcome], pipeline: Pipeline) -> list[list[Work]]:
    """Return the works that smaller slices may help, as two halves; none if every outcome stands."""
    standing = {outcome.work for outcome in outcomes if not outcome.splittable}
    failed = [work for work in works if work not in standing]
    parts = halves(works[0].slice, pipeline.grid) if failed else []
    return [[restrict(work, half, pipeline) for work in failed] for half in parts]


def split_by_upstream(
    pipeline: Pipeline, items: Sequence[Planned], earlier: Sequence[Outcome]
) -> Iterator[tuple[list[Work], OncelakeError | None]]:
    """Cut the works of a slice where something they read failed upstream, in the order of time.

    All of it is blocked where the plan says so, and after a failed earlier slice of a target that is written in order.
    """
    works, slice_ = [item.work for item in items], items[0].work.slice
    waiting = [item.work for item in items if item.action != "skip"]
    if waits := next((item.waits_for for item in items if item.waits_for), None):
        yield waiting, _blocked(pipeline, waits.pipeline, waits.table, waits.interval)
        return
    refusal = next((item.refusal for item in items if item.refusal), None)
    if error := refusal or _failed_before(pipeline, items, earlier):
        yield waiting, error
        return
    parts: list[tuple[Slice, Blocked | None]] = []
    left = [slice_] if isinstance(slice_, Interval) else []
    for failed in _failed_upstream(pipeline, earlier):
        blocked = _blocked(pipeline, failed.pipeline, failed.target, failed.slice)
        touched = _touched(failed, slice_, pipeline)
        if touched == slice_:
            yield waiting, blocked
            return
        if isinstance(touched, Interval):
            parts += [(part, blocked) for part in subtract([touched], subtract([touched], left))]
            left = subtract(left, [touched])
    parts += [(part, None) for part in left] if isinstance(slice_, Interval) else [(slice_, None)]
    for part, reason in sorted(parts, key=lambda found: found[0].text):
        # Targets that are done are not blocked.
        chosen = waiting if reason else works
        if isinstance(part, Interval) and part != slice_:
            chosen = [restrict(work, part, pipeline) for work in chosen]
        yield chosen, reason


def _failed_before(pipeline: Pipeline, items: Sequence[Planned], earlier: Sequence[Outcome]) -> EarlierNotDone | None:
    """Return why a slice cannot be written after an earlier one failed, if a target of it is written in order.

    Batches always are: the marker of a later one says that all before it are done.
    """
    slice_, to_run = items[0].work.slice, [item.target for item in items if item.action == "run"]
    by_batch = isinstance(slice_, Batch)
    ordered = {target for target in to_run if by_batch or pipeline.pattern(target).ordered}
    for outcome in earlier:
        work, done = outcome.work, outcome.outcome in (COMMITTED, ALREADY_DONE)
        if done or work.pipeline != pipeline.name or work.target not in ordered:
            continue
        if comes_before(work.slice, slice_):
            return EarlierNotDone(pipeline=pipeline.name, target=work.target, earlier=str(work.slice))
    return None


def _failed_upstream(pipeline: Pipeline, earlier: Sequence[Outcome]) -> list[Work]:
    failed = [outcome.work for outcome in earlier if outcome.outcome not in (COMMITTED, ALREADY_DONE)]
    return [work for work in failed if work.target in pipeline.reads_tables]


def _touched(failed: Work, slice_: Slice, pipeline: Pipeline) -> Slice | None:
    """Return the part of a slice that reads what failed: all of it where a source is not read by interval."""
    by_interval = all(s.by_interval for s in pipeline.reads.values() if failed.target in s.tables)
    return overlap(slice_, failed.slice, pipeline.grid) if by_interval else slice_


def _blocked(pipeline: Pipeline, upstream: str, table: str, slice_: Slice) -> Blocked:
    return Blocked(upstream=upstream, slice=str(slice_), pipeline=pipeline.name, table=table)
