"""What a request comes to. Pure: declarations, what the logs say and the request go in, a plan comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.contracts import Log, Pattern
from oncelake.errors import BadRange, UnknownPipeline
from oncelake.identity import Slice, Whole, generation_of
from oncelake.intervals import Grid, Interval, covers, instant_text, missing
from oncelake.pipelines import Pipeline
from oncelake.settings import guess
from oncelake.work import Plan, Planned, Request, Scope, Work


@dataclass(frozen=True)
class Known:
    """What is known of the lake: the log of every target there is, and what pipelines without intervals read now."""

    logs: Mapping[str, Log | None]
    pins: Mapping[str, Mapping[str, Any] | None]


def make_plan(pipelines: Mapping[str, Pipeline], known: Known, request: Request) -> Plan:
    """The works of the request, upstream first and oldest first, each with what would happen and why."""
    chosen = choose(pipelines, request.names)
    scopes: list[Scope] = []
    items: list[Planned] = []
    notes: list[str] = []
    unfit: list[BadRange] = []
    for pipeline in chosen:
        try:
            scope, slices, note = _scope(pipeline, request)
        except BadRange as error:
            # Of all pipelines some may start later or have a coarser grid; of those named each was meant.
            if request.names or len(chosen) == 1:
                raise
            unfit.append(error)
            notes.append(f"left out: {error.message}")
            continue
        scopes.append(scope)
        notes += [note] if note else []
        planned = list(_items(pipeline, slices, known, _changing(pipeline, items)))
        notes += _noted(pipeline, planned, known)
        items += _waiting(pipeline, planned, items, pipelines, known)
    if unfit and not scopes:
        raise unfit[0]
    return Plan(tuple(scopes), tuple(items), tuple(notes))


def choose(pipelines: Mapping[str, Pipeline], names: Iterable[str]) -> list[Pipeline]:
    """The named pipelines, or all, upstream first."""
    wanted = set(names)
    for name in names:
        if name not in pipelines:
            known = list(pipelines)
            raise UnknownPipeline(name=name, guess=guess(name, known), known=", ".join(known))
    return [pipeline for name, pipeline in pipelines.items() if not wanted or name in wanted]


def _scope(pipeline: Pipeline, request: Request) -> tuple[Scope, list[Slice], str | None]:
    if pipeline.grid is None or pipeline.start is None:
        return Scope(pipeline.name, None, 1), [Whole()], None
    start, end, note = _span(pipeline.name, pipeline.grid, pipeline.start, request)
    if start >= end:
        return Scope(pipeline.name, None, 0), [], note
    cells = list(pipeline.grid.cells(start, end))
    return Scope(pipeline.name, Interval(start, end, pipeline.grid.zone), len(cells)), list(cells), note


def _span(name: str, grid: Grid, first: datetime, request: Request) -> tuple[datetime, datetime, str | None]:
    """The range a request means for one pipeline, on its grid, and a note if part of it is not over yet."""
    over = grid.floor(request.now)
    if request.date is not None:
        start, end = _of_date(name, grid, request.date)
    else:
        start = first if request.start is None else _on_grid(name, grid, "--from", request.start)
        end = over if request.end is None else _on_grid(name, grid, "--to", request.end)
        if request.start is not None and request.end is not None and end <= start:
            problem = f"--to {request.end} is not after --from {request.start} (--to is exclusive)"
            raise BadRange(problem=problem, next=f"oncelake plan {name} --from {request.start} --to …")
    if (request.date or request.start) and start < first:
        shown = first.astimezone(grid.cell(first).local_start.tzinfo).date()
        problem = f"{request.date or request.start} is before {name} starts ({shown})"
        raise BadRange(problem=problem, next=f"oncelake plan {name} --from {shown}")
    if end <= start and (request.start is not None or request.end is not None):
        problem = f"nothing of {name} lies between {instant_text(start)} and {instant_text(end)}"
        raise BadRange(problem=problem, next=f"oncelake plan {name}")
    if end <= over:
        return start, max(start, end), None
    if request.date is not None or start >= over:
        problem = f"{Interval(start, end, grid.zone)} of {name} is not over yet: rows may still come (it is {request.now:%Y-%m-%dT%H:%MZ})"
        raise BadRange(problem=problem, next=f"oncelake run {name}")
    return start, over, f"{name}: {Interval(over, end, grid.zone)} is not over yet and is left out"


def _of_date(name: str, grid: Grid, text: str) -> tuple[datetime, datetime]:
    """A date means its interval; on a grid of hours a bare date means all hours of the day."""
    start = _on_grid(name, grid, "--date", text)
    if grid.every == "hour" and len(text.strip()) <= len("2024-03-15"):
        return start, grid.floor(Grid("day", grid.zone).after(start))
    return start, grid.after(start)


def _on_grid(name: str, grid: Grid, option: str, text: str) -> datetime:
    try:
        instant = grid.parse(text)
        grid.after(grid.floor(instant))
    except (ValueError, OverflowError) as error:
        problem = f"{option} {text!r} is not a date (like 2024-03-15 or 2024-03-15T06:00)"
        raise BadRange(problem=problem, next=f"oncelake plan {name}") from error
    if not grid.holds(instant):
        cell = grid.cell(instant)
        problem = (
            f"{option} {text} is off the grid of {name}, which has an interval every {grid.every}: {cell} holds it"
        )
        raise BadRange(problem=problem, next=f"oncelake plan {name} {option} {cell.local_start:%Y-%m-%dT%H:%M}")
    return instant


def _changing(pipeline: Pipeline, earlier: list[Planned]) -> bool:
    """Whether something the pipeline reads will be written by an earlier work of this plan."""
    return any(item.action == "run" and item.work.target in pipeline.reads_tables for item in earlier)


def _items(pipeline: Pipeline, slices: list[Slice], known: Known, changing: bool) -> Iterator[Planned]:
    pins = None if changing else known.pins.get(pipeline.name)
    undone = {pattern.target: _undone(pipeline, pattern, slices, known) for pattern in pipeline.writes}
    for slice_ in slices:
        for pattern in pipeline.writes:
            log = known.logs.get(pattern.target)
            if isinstance(slice_, Interval):
                yield _interval_item(pipeline, pattern, slice_, log, undone[pattern.target])
            else:
                yield _whole_item(pipeline, pattern, slice_, log, pins)


def _noted(pipeline: Pipeline, planned: list[Planned], known: Known) -> list[str]:
    """What the patterns that will write have to say of it."""
    writing = {item.work.target for item in planned if item.action == "run"}
    patterns = [pattern for pattern in pipeline.writes if pattern.target in writing]
    return [note for pattern in patterns for note in pattern.notes(known.logs.get(pattern.target))]


def _undone(pipeline: Pipeline, pattern: Pattern, slices: list[Slice], known: Known) -> set[Interval]:
    """The cells that no marker, of their own or of a range around them, says are done."""
    cells = [slice_ for slice_ in slices if isinstance(slice_, Interval)]
    log = known.logs.get(pattern.target)
    if log is None or not cells:
        return set(cells)
    assert pipeline.start is not None
    assert pipeline.grid is not None
    return set(missing(cells, pattern.done(log, pipeline.name, pipeline.start, pipeline.grid)))


def _interval_item(
    pipeline: Pipeline, pattern: Pattern, cell: Interval, log: Log | None, undone: set[Interval]
) -> Planned:
    first = pattern.marker(pipeline.name, cell, 1)
    if cell in undone or log is None:
        return Planned(Work(pipeline.name, pattern.target, cell, 1, first), "run", "not done yet")
    recorded = log.recorded(first.app_id)
    generation = 1 if recorded is None else generation_of(first, recorded)
    why = "done" if generation is not None else "a later interval's reload is in place"
    return Planned(Work(pipeline.name, pattern.target, cell, generation or 1, first), "skip", why)


def _whole_item(
    pipeline: Pipeline, pattern: Pattern, slice_: Slice, log: Log | None, pins: Mapping[str, Any] | None
) -> Planned:
    def work(generation: int) -> Work:
        marker = pattern.marker(pipeline.name, slice_, generation)
        return Work(pipeline.name, pattern.target, slice_, generation, marker)

    first = work(1)
    if log is None or not log.done(first.marker):
        return Planned(first, "run", "not done yet")
    commit = log.commit(first.marker.app_id)
    generation = log.recorded(first.marker.app_id) or 1
    if commit is not None and pins is not None and commit.facts.get("pins") == pins:
        return Planned(work(generation), "skip", f"done in version {commit.version}, and its inputs have not changed")
    why = "its inputs changed since" if commit is not None else "the log no longer says from which inputs it was made"
    return Planned(work(generation + 1), "run", why)


def _waiting(
    pipeline: Pipeline,
    planned: list[Planned],
    earlier: list[Planned],
    pipelines: Mapping[str, Pipeline],
    known: Known,
) -> list[Planned]:
    """The same items, those that read an interval nobody has done or will do in this plan made to wait for it."""
    sources = [table for source in pipeline.reads.values() if source.by_interval for table in source.tables]
    feeding = [(owner, table) for table in sources for owner in pipelines.values() if table in owner.writes_tables]
    for owner, table in feeding:
        if owner.grid is None or owner.start is None:
            continue
        spans = [item.work.slice for item in planned if isinstance(item.work.slice, Interval)]
        cells = _cells_around(owner, spans)
        undone = _undone(owner, owner.pattern(table), cells, known)
        ready = [cell for cell in cells if isinstance(cell, Interval) and cell not in undone]
        for item in earlier:
            mine = item.work.target == table and item.work.pipeline == owner.name
            if mine and item.action != "wait" and isinstance(item.work.slice, Interval):
                ready.append(item.work.slice)
        planned = [_wait(item, owner, table, ready) for item in planned]
    return planned


def _cells_around(owner: Pipeline, spans: list[Interval]) -> list[Slice]:
    """The cells of the owner that the spans lie in."""
    if owner.grid is None or owner.start is None or not spans:
        return []
    first = max(owner.start, owner.grid.floor(min(span.start for span in spans)))
    return list(owner.grid.cells(first, max(span.end for span in spans)))


def _wait(item: Planned, owner: Pipeline, table: str, ready: list[Interval]) -> Planned:
    interval = item.work.interval
    if item.action != "run" or interval is None or owner.start is None or interval.end <= owner.start:
        return item
    needed = Interval(max(interval.start, owner.start), interval.end, interval.zone)
    if covers(ready, needed):
        return item
    return Planned(item.work, "wait", f"{owner.name} has not done {needed} of {table}")
