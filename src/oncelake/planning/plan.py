"""What a request comes to. Pure: declarations, what the logs say and the request go in, a plan comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadRange, UnknownPipeline
from oncelake.errors.base import did_you_mean
from oncelake.model.contracts import Log, Pattern, RangeWriter
from oncelake.model.coverage import align, coalesce
from oncelake.model.intervals import Grid, Interval, merge, parse_interval, subtract
from oncelake.model.markers import Marker, restate_app_id
from oncelake.model.slices import Slice, Whole
from oncelake.model.work import DONE, FAILED_BEFORE, RESTATED, STALE, InputSize, Plan, Planned, Request, Scope, Work
from oncelake.planning.decisions import Decision, Manner, Stale, decide
from oncelake.planning.scope import scope_of

_UNKNOWN = InputSize()
# A commit for a range takes at most so much of its sources, and so many intervals.
CHUNK_BYTES, CHUNK_CELLS = 512 * 1024 * 1024, 400


@dataclass(frozen=True)
class LakeState:
    """What is known of the lake: the log of every target there is, and what pipelines without intervals read now.

    And how much the sources of a pipeline hold for an interval, whether what is done is stale, as far as that can be told
    without reading them; and what failed when it was last tried.
    """

    logs: Mapping[str, Log | None]
    pins: Mapping[str, Mapping[str, Any] | None]
    estimate: Callable[[Pipeline, Interval], InputSize] = lambda *_: InputSize()
    stale: Stale = lambda *_: []
    failed: Mapping[str, list[Interval]] = field(default_factory=dict)
    # Whether a lock keeps others from a table between the look at its log and the commit.
    locked: bool = True


@dataclass(frozen=True)
class PlanInputs:
    """Everything a plan is made from."""

    pipelines: Mapping[str, Pipeline]
    known: LakeState
    request: Request


def make_plan(pipelines: Mapping[str, Pipeline], known: LakeState, request: Request) -> Plan:
    """The works of the request, upstream first and oldest first, each with what would happen and why."""
    chosen, inputs = select_pipelines(pipelines, request.names), PlanInputs(pipelines, known, request)
    scopes: list[Scope] = []
    items: list[Planned] = []
    notes: list[str] = []
    unfit: list[BadRange] = []
    for pipeline in chosen:
        try:
            scope, note = scope_of(pipeline, request)
        except BadRange as error:
            # Of all pipelines some may start later or have a coarser grid; of those named each was meant.
            if request.names or len(chosen) == 1:
                raise
            unfit.append(error)
            notes.append(f"left out: {error.message}")
            continue
        scopes.append(scope)
        notes += [note] if note else []
        planned = list(_items(pipeline, scope, items, inputs))
        notes += _noted(pipeline, planned, known)
        items += planned
    if unfit and not scopes:
        raise unfit[0]
    items, left = _limited(items, inputs)
    notes += [f"--limit {request.limit}: {left:,} more are left for another run"] if left else []
    return Plan(tuple(scopes), tuple(items), tuple(notes))


def _limited(items: list[Planned], inputs: PlanInputs) -> tuple[list[Planned], int]:
    """At most so many intervals to do, in the order of the plan, and how many that leaves."""
    room = inputs.request.limit
    if room is None:
        return items, 0
    kept: list[Planned] = []
    left = 0
    for (name, slice_), group in groupby(items, key=lambda item: (item.work.pipeline, item.work.slice)):
        works, grid = list(group), inputs.pipelines[name].grid
        if not any(item.action == "run" for item in works):
            kept += works
            continue
        size = grid.count(slice_) if grid and isinstance(slice_, Interval) else 1
        if size <= room:
            kept += works
        elif room and isinstance(slice_, Interval):
            kept += _narrowed(works, slice_, room, inputs)
        left += max(size - room, 0)
        room = max(room - size, 0)
    return kept, left


def _narrowed(works: list[Planned], slice_: Interval, cells: int, inputs: PlanInputs) -> Iterator[Planned]:
    """The works of a range for only so many intervals of it, the first or the last."""
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
        work = restrict(item.work, part, pipeline) if item.action == "run" else replace(item.work, slice=part)
        yield replace(item, work=work, size=size)


def restrict(work: Work, interval: Interval, pipeline: Pipeline) -> Work:
    """The same work for a part of its slice."""
    marker = pipeline.pattern(work.target).marker(pipeline.name, interval, work.generation)
    return replace(work, slice=interval, marker=marker)


def select_pipelines(pipelines: Mapping[str, Pipeline], names: Iterable[str]) -> list[Pipeline]:
    """The named pipelines, or all, upstream first."""
    wanted = set(names)
    for name in names:
        if name not in pipelines:
            known = list(pipelines)
            raise UnknownPipeline(name=name, did_you_mean=did_you_mean(name, known), known=", ".join(known))
    return [pipeline for name, pipeline in pipelines.items() if not wanted or name in wanted]


def _items(pipeline: Pipeline, scope: Scope, earlier: list[Planned], inputs: PlanInputs) -> Iterator[Planned]:
    if pipeline.grid is None:
        pins = None if _changing(pipeline, earlier) else inputs.known.pins.get(pipeline.name)
        for pattern in pipeline.writes:
            item = _whole_item(pipeline, pattern, inputs.known.logs.get(pattern.target), pins)
            yield from (
                [item]
                if _wanted(item.cause, inputs.request) and (item.action == "run" or not inputs.request.only)
                else []
            )
        return
    if scope.span is None:
        return
    feeding = list(_feeding(pipeline, scope.span, earlier, inputs))
    pieces = list(_pieces(pipeline, scope.span, inputs))
    for piece, found in reversed(pieces) if inputs.request.newest_first else pieces:
        if all(fate.action == "skip" for fate in found):
            yield from _planned(pipeline, piece, found)
            continue
        parts = list(_ready(piece, pipeline.grid, feeding))
        for part, why in reversed(parts) if inputs.request.newest_first else parts:
            if why is not None:
                yield from _planned(pipeline, part, found, why)
                continue
            chunks = list(_chunks(part, pipeline, found, inputs.known))
            for chunk, size in reversed(chunks) if inputs.request.newest_first else chunks:
                yield from _planned(pipeline, chunk, found, size=size)


def _pieces(pipeline: Pipeline, span: Interval, inputs: PlanInputs) -> Iterator[tuple[Interval, list[Decision]]]:
    """The span, cut wherever what would happen with one of the targets changes; only what was asked for is to be done."""
    known, request = inputs.known, inputs.request
    manner = Manner(known.stale, redo=request.only == STALE)
    rows = [decide(pipeline, p, span, known.logs.get(p.target), manner) for p in pipeline.writes]
    for start, end, found in align(*rows):
        each = [fate for fate in found if fate is not None]
        to_do = [fate for fate in each if fate.action == "run"]
        if not all(_wanted(fate.cause, request) for fate in to_do) or (request.only and not to_do):
            continue
        pieces = [parse_interval(f"{start}..{end}", span.zone)]
        if request.only == FAILED_BEFORE:
            failed = known.failed.get(pipeline.name, [])
            pieces = subtract(pieces, subtract(pieces, failed))
        yield from ((piece, each) for piece in pieces)


def _wanted(cause: str, request: Request) -> bool:
    """Whether a request is for works of that cause."""
    return request.only in (None, cause) or (request.only == FAILED_BEFORE and cause != STALE)


def _planned(
    pipeline: Pipeline,
    slice_: Interval,
    found: Sequence[Decision],
    waits: str | None = None,
    size: InputSize = _UNKNOWN,
) -> Iterator[Planned]:
    """The works of one slice. A target that is done is said to be, with the marker that did it."""
    for pattern, fate in zip(pipeline.writes, found, strict=True):
        if fate.app_id is None:
            marker = pattern.marker(pipeline.name, slice_, fate.generation)
        else:
            marker = Marker(fate.app_id, fate.generation)
        action, why = ("wait", waits) if waits and fate.action == "run" else (fate.action, fate.why)
        work = Work(pipeline.name, pattern.target, slice_, fate.generation, marker)
        yield Planned(work, action, why, fate.cause, size)


def _chunks(
    part: Interval, pipeline: Pipeline, found: Sequence[Decision], known: LakeState
) -> Iterator[tuple[Interval, InputSize]]:
    """A part of time as the slices that are committed: ranges where every pattern can set one, else single intervals."""
    grid = pipeline.grid
    assert grid is not None
    to_run = [pattern for pattern, fate in zip(pipeline.writes, found, strict=True) if fate.action == "run"]
    # Without a lock somebody may restate an interval unseen, which the marker of a range does not tell Delta.
    ranged = known.locked and all(isinstance(pattern, RangeWriter) for pattern in to_run)
    if not pipeline.combine_intervals or not ranged:
        yield from ((cell, InputSize()) for cell in grid.cells(part.start, part.end))
        return
    left: Interval | None = part
    while left is not None:
        chunk, size = _chunk(left, pipeline, grid, known)
        yield chunk, size
        left = Interval(chunk.end, part.end, part.zone) if chunk.end < part.end else None


def _chunk(part: Interval, pipeline: Pipeline, grid: Grid, known: LakeState) -> tuple[Interval, InputSize]:
    """The first chunk of a part: as many intervals as are allowed, halved until there is little enough in them."""
    cells = CHUNK_CELLS
    while True:
        end = min(grid.step(part.start, cells), part.end) if cells > 1 else grid.after(part.start)
        chunk = Interval(part.start, end, part.zone)
        size = known.estimate(pipeline, chunk)
        if cells == 1 or size.bytes is None or size.bytes <= CHUNK_BYTES:
            return chunk, size
        cells //= 2


def _changing(pipeline: Pipeline, earlier: list[Planned]) -> bool:
    """Whether something the pipeline reads will be written by an earlier work of this plan."""
    return any(item.action == "run" and item.work.target in pipeline.reads_tables for item in earlier)


def _noted(pipeline: Pipeline, planned: list[Planned], known: LakeState) -> list[str]:
    """What the patterns that will write have to say of it."""
    writing = {item.work.target for item in planned if item.action == "run"}
    patterns = [pattern for pattern in pipeline.writes if pattern.target in writing]
    return [note for pattern in patterns for note in pattern.notes(known.logs.get(pattern.target))]


def _whole_item(pipeline: Pipeline, pattern: Pattern, log: Log | None, pins: Mapping[str, Any] | None) -> Planned:
    slice_: Slice = Whole()

    def work(generation: int) -> Work:
        marker = pattern.marker(pipeline.name, slice_, generation)
        return Work(pipeline.name, pattern.target, slice_, generation, marker)

    first = work(1)
    if log is None or not log.done(first.marker):
        return Planned(first, "run", "not done yet")
    commit = log.commit(first.marker.app_id)
    generation = log.recorded(first.marker.app_id) or 1
    requested = log.recorded(restate_app_id(pipeline.name, pattern.target, slice_)) or 0
    if requested > generation:
        return Planned(work(requested), "run", f"restated: generation {requested} was asked for", RESTATED)
    if commit is not None and pins is not None and commit.facts.get("pins") == pins:
        why = f"done in version {commit.version}, and its inputs have not changed"
        return Planned(work(generation), "skip", why, DONE)
    why = "its inputs changed since" if commit is not None else "the log no longer says from which inputs it was made"
    return Planned(work(generation + 1), "run", why)


class _Feeding(NamedTuple):
    """A pipeline upstream: since when it is there, and what of it is done or will be done in this plan."""

    owner: str
    table: str
    since: Interval
    ready: list[Interval]


def _feeding(pipeline: Pipeline, span: Interval, earlier: list[Planned], inputs: PlanInputs) -> Iterator[_Feeding]:
    tables = {table for source in pipeline.reads.values() if source.by_interval for table in source.tables}
    for owner in inputs.pipelines.values():
        for table in sorted(tables & owner.writes_tables):
            if owner.grid is None or owner.start is None or span.end <= owner.start:
                continue
            since = Interval(max(span.start, owner.start), span.end, span.zone)
            log = inputs.known.logs.get(table)
            done = owner.pattern(table).done(log, owner.name, owner.start, owner.grid) if log else []
            coming = [
                item.work.slice
                for item in earlier
                if (item.work.pipeline, item.work.target) == (owner.name, table) and item.action != "wait"
            ]
            ready = [*coalesce(done), *(slice_ for slice_ in coming if isinstance(slice_, Interval))]
            yield _Feeding(owner.name, table, since, merge(ready))


def _ready(piece: Interval, grid: Grid, feeding: list[_Feeding]) -> Iterator[tuple[Interval, str | None]]:
    """A piece of time, cut into what can be done and what waits for somebody upstream, in the order of time."""
    waiting: list[tuple[Interval, str]] = []
    for one in feeding:
        if not piece.overlaps(one.since):
            continue
        needed = Interval(max(piece.start, one.since.start), piece.end, piece.zone)
        for lacking in merge(grid.around(gap) for gap in subtract([needed], one.ready)):
            free = subtract([lacking], [known for known, _ in waiting])
            waiting += [(part, f"{one.owner} has not done {part} of {one.table}") for part in free]
    free = subtract([piece], [part for part, _ in waiting])
    yield from sorted([*waiting, *((part, None) for part in free)], key=lambda found: found[0])
