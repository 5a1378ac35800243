"""Plan a pipeline that is driven by intervals: gaps are filled, requested and stale stretches redone, small ones combined."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import NamedTuple, TypeVar

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import OtherTimezone, PartlyDone
from oncelake.model.contracts import Log, RangeWriter
from oncelake.model.coverage import Coverage, align, coalesce, resolve_overlaps
from oncelake.model.intervals import Grid, Interval, merge, parse_interval, subtract
from oncelake.model.markers import Marker
from oncelake.model.work import FAILED_BEFORE, LATE, STALE, InputSize, Planned, Upstream, Work
from oncelake.planning.decisions import Decision, decide
from oncelake.planning.in_order import is_ordered, keep_order
from oncelake.planning.inputs import LakeState, PlanInputs

_UNKNOWN = InputSize()
T = TypeVar("T")
# A commit for a range takes at most so much of its sources, and so many intervals.
CHUNK_BYTES, CHUNK_CELLS = 512 * 1024 * 1024, 400


def plan_intervals(pipeline: Pipeline, span: Interval, earlier: list[Planned], inputs: PlanInputs) -> Iterator[Planned]:
    """Return the works of a span in the order in which they run; the oldest first where the result depends on it."""
    found = _planned(pipeline, span, earlier, inputs)
    return keep_order(pipeline, found, inputs.known.logs, inputs.request.now) if is_ordered(pipeline) else found


def _planned(pipeline: Pipeline, span: Interval, earlier: list[Planned], inputs: PlanInputs) -> Iterator[Planned]:
    assert pipeline.grid is not None
    backwards = inputs.request.newest_first and not is_ordered(pipeline)
    upstreams = list(_upstreams(pipeline, span, earlier, inputs))
    for piece, found in _ordered(list(_pieces(pipeline, span, inputs)), backwards):
        if all(decision.action == "skip" for decision in found):
            yield from _works(pipeline, piece, found)
            continue
        for part, waits_for in _ordered(list(_ready(piece, pipeline.grid, upstreams)), backwards):
            if waits_for is not None:
                yield from _works(pipeline, part, found, waits_for)
                continue
            for chunk, size in _ordered(list(_chunks(part, pipeline, found, inputs.known)), backwards):
                yield from _works(pipeline, chunk, found, size=size)


def restrict_works(works: list[Planned], slice_: Interval, cells: int, inputs: PlanInputs) -> Iterator[Planned]:
    """Return the works of a range for only so many intervals of it, the first or the last."""
    pipeline = inputs.pipelines[works[0].work.pipeline]
    grid = pipeline.grid
    assert grid is not None
    if inputs.request.newest_first:
        part = Interval(grid.step(slice_.start, grid.count(slice_) - cells), slice_.end, slice_.zone)
    else:
        part = Interval(slice_.start, grid.step(slice_.start, cells), slice_.zone)
    size = inputs.known.estimate(pipeline, part)
    for item in works:
        # What is done keeps the marker that did it.
        marker = pipeline.pattern(item.work.target).marker(pipeline.name, part, item.work.generation)
        marker = marker if item.action == "run" else item.work.marker
        yield replace(item, work=replace(item.work, slice=part, marker=marker), size=size)


def _ordered(found: list[T], backwards: bool) -> list[T]:
    return found[::-1] if backwards else found


def _pieces(pipeline: Pipeline, span: Interval, inputs: PlanInputs) -> Iterator[tuple[Interval, list[Decision]]]:
    """Yield the span, cut wherever the decision about one of the targets changes; only what was requested is to be done."""
    known, request = inputs.known, inputs.request
    redo = {"redo_stale": request.only == STALE, "redo_late": request.only == LATE}
    rows = [
        decide(pipeline, pattern, span, known.logs.get(pattern.target), known.stale, **redo)
        for pattern in pipeline.writes
    ]
    for start, end, found in align(*rows):
        each = [decision for decision in found if decision is not None]
        to_do = [decision for decision in each if decision.action == "run"]
        # The targets of a slice are written together: one that is wanted takes along its siblings that are not done.
        if request.only and not any(inputs.wants(decision.cause) for decision in to_do):
            continue
        pieces = [parse_interval(f"{start}..{end}", span.zone)]
        if request.only == FAILED_BEFORE:
            assert pipeline.grid is not None
            failed = [pipeline.grid.around(each) for each in known.failed.get(pipeline.name, [])]
            pieces = subtract(pieces, subtract(pieces, failed))
        yield from ((piece, each) for piece in pieces)


def _works(
    pipeline: Pipeline,
    slice_: Interval,
    found: Sequence[Decision],
    waits_for: Upstream | None = None,
    size: InputSize = _UNKNOWN,
) -> Iterator[Planned]:
    """Yield the works of one slice. A target that is done keeps the marker that did it."""
    for pattern, decision in zip(pipeline.writes, found, strict=True):
        if decision.app_id is None:
            marker = pattern.marker(pipeline.name, slice_, decision.generation)
        else:
            marker = Marker(decision.app_id, decision.generation)
        work = Work(pipeline.name, pattern.target, slice_, decision.generation, marker)
        if waits_for and decision.action == "run":
            why = f"{waits_for.pipeline} has not done {waits_for.interval} of {waits_for.table}"
            yield Planned(work, "wait", why, decision.cause, size, waits_for)
        elif decision.other_zone or (decision.partly_done and not pattern.restates):
            error = OtherTimezone if decision.other_zone else PartlyDone
            refusal = error(target=pattern.target, pipeline=pipeline.name, slice=str(slice_))
            yield Planned(work, "wait", refusal.message, decision.cause, size, refusal=refusal)
        else:
            yield Planned(work, decision.action, decision.why, decision.cause, size)


def _chunks(
    part: Interval, pipeline: Pipeline, found: Sequence[Decision], known: LakeState
) -> Iterator[tuple[Interval, InputSize]]:
    """Yield a part of time as the slices that are committed: ranges where every pattern can set one, else intervals."""
    grid = pipeline.grid
    assert grid is not None
    to_run = [pattern for pattern, decision in zip(pipeline.writes, found, strict=True) if decision.action == "run"]
    ranges = pipeline.combine_intervals and all(isinstance(pattern, RangeWriter) for pattern in to_run)
    if not ranges or not known.ranges():
        yield from ((cell, InputSize()) for cell in grid.cells(part.start, part.end))
        return
    left: Interval | None = part
    while left is not None:
        chunk, size = _chunk(left, pipeline, grid, known)
        yield chunk, size
        left = Interval(chunk.end, part.end, part.zone) if chunk.end < part.end else None


def _chunk(part: Interval, pipeline: Pipeline, grid: Grid, known: LakeState) -> tuple[Interval, InputSize]:
    """Return the first chunk of a part: as many intervals as are allowed, halved until there is little enough in them."""

    @cache
    def chunk_of(halvings: int) -> tuple[Interval, InputSize]:
        cells = CHUNK_CELLS >> halvings
        end = min(grid.step(part.start, cells), part.end) if cells > 1 else grid.after(part.start)
        chunk = Interval(part.start, end, part.zone)
        return chunk, known.estimate(pipeline, chunk)

    def is_small(halvings: int) -> bool:
        found = chunk_of(halvings)[1].bytes
        return found is None or found <= CHUNK_BYTES

    # Less time holds less, so the fewest halvings are found by bisection; one interval is as little as there can be.
    last = CHUNK_CELLS.bit_length() - 1
    return chunk_of(0 if is_small(0) else bisect_left(range(last), 1, lo=min(1, last), key=is_small))


class _Owner(NamedTuple):
    """A pipeline upstream: since when it is there, and what of its table is done or will be done in this plan."""

    pipeline: str
    table: str
    since: Interval
    ready: list[Interval]


def _upstreams(pipeline: Pipeline, span: Interval, earlier: list[Planned], inputs: PlanInputs) -> Iterator[_Owner]:
    tables = {table for source in pipeline.reads.values() if source.by_interval for table in source.tables}
    for owner in inputs.pipelines.values():
        for table in sorted(tables & owner.writes_tables):
            if owner.grid is None or owner.start is None or span.end <= owner.start:
                continue
            since = Interval(max(span.start, owner.start), span.end, span.zone)
            log = inputs.known.logs.get(table)
            done = _finished(owner, table, owner.start, owner.grid, log) if log else []
            coming = [
                item.work.slice
                for item in earlier
                if (item.work.pipeline, item.work.target) == (owner.name, table) and item.action != "wait"
            ]
            ready = [*coalesce(done), *(slice_ for slice_ in coming if isinstance(slice_, Interval))]
            yield _Owner(owner.name, table, since, merge(ready))


def _finished(owner: Pipeline, table: str, start: datetime, grid: Grid, log: Log) -> list[Coverage]:
    """Return the time an upstream has done here, without what it was asked to do again: a restore may have taken it out."""
    done = resolve_overlaps(owner.pattern(table).done(log, owner.name, start, grid))
    requested = log.coverage(owner.name, table, requested=True)
    return [
        covered._replace(start=begin, end=end)
        for begin, end, (covered, request) in align(done, requested)
        if covered is not None and (request is None or request.generation <= (covered.generation or request.generation))
    ]


def _ready(piece: Interval, grid: Grid, upstreams: list[_Owner]) -> Iterator[tuple[Interval, Upstream | None]]:
    """Yield a piece of time, cut into what can be done and what waits for an upstream, in the order of time."""
    waiting: list[tuple[Interval, Upstream]] = []
    for owner in upstreams:
        if not piece.overlaps(owner.since):
            continue
        needed = Interval(max(piece.start, owner.since.start), piece.end, piece.zone)
        for lacking in merge(grid.around(gap) for gap in subtract([needed], owner.ready)):
            free = subtract([lacking], [part for part, _ in waiting])
            waiting += [(part, Upstream(owner.pipeline, owner.table, part)) for part in free]
    free = subtract([piece], [part for part, _ in waiting])
    yield from sorted([*waiting, *((part, None) for part in free)], key=lambda found: found[0])
