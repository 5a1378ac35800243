"""What a request covers: a range of time on the grid of each pipeline."""

from __future__ import annotations

from datetime import datetime

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadRange
from oncelake.model.intervals import Grid, Interval, instant_text
from oncelake.model.work import Request, Scope


def scope_of(pipeline: Pipeline, request: Request) -> tuple[Scope, str | None]:
    """How much of a pipeline a request covers, and a note if part of it is not over yet."""
    if pipeline.grid is None or pipeline.start is None:
        return Scope(pipeline.name, None, 1), None
    start, end, note = _span(pipeline.name, pipeline.grid, pipeline.start, request)
    if start >= end:
        return Scope(pipeline.name, None, 0), note
    span = Interval(start, end, pipeline.grid.zone)
    return Scope(pipeline.name, span, pipeline.grid.count(span)), note


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
    if not grid.is_boundary(instant):
        cell = grid.cell(instant)
        problem = (
            f"{option} {text} is off the grid of {name}, which has an interval every {grid.every}: {cell} holds it"
        )
        raise BadRange(problem=problem, next=f"oncelake plan {name} {option} {cell.local_start:%Y-%m-%dT%H:%M}")
    return instant
