"""The scope of a request: a range of time on the grid of each pipeline."""

from __future__ import annotations

from datetime import datetime

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadRange
from oncelake.model.intervals import Grid, Interval, instant_text
from oncelake.model.work import Request, Scope


def scope_of(pipeline: Pipeline, request: Request) -> tuple[Scope, str | None]:
    """Return the scope of a request for a pipeline, and a note if part of it is not over yet."""
    if pipeline.arrival is not None:
        unnamed = not request.names and (request.date or request.start or request.end)
        note = f"{pipeline.name} takes in all that has arrived: name it to choose files by a range" if unnamed else None
        return _arrived(pipeline.name, pipeline.arrival.chosen_by, request), note
    if pipeline.stream is not None:
        return Scope(pipeline.name, None, 1, "what is available"), None
    if pipeline.grid is None or pipeline.start is None:
        return Scope(pipeline.name, None, 1), None
    start, end, note = _span(pipeline.name, pipeline.grid, pipeline.start, request)
    if start >= end:
        return Scope(pipeline.name, None, 0), note
    span = Interval(start, end, pipeline.grid.zone)
    return Scope(pipeline.name, span, pipeline.grid.count(span)), note


def _arrived(name: str, chosen_by: str, request: Request) -> Scope:
    """Return the scope of a pipeline that is driven by arrivals: all files, or those of a range."""
    grid, (date, first, last) = Grid("day"), (request.date, request.start, request.end)
    # A date of all pipelines is meant for those with intervals: what they read must have been taken in.
    if not request.names or not (date or first or last):
        return Scope(name, None, 1, "what has arrived")
    try:
        start = grid.parse(date or first or "1970-01-01")
        end = grid.after(start) if date else grid.parse(last) if last else request.now
        span = Interval(start, end)
    except (ValueError, OverflowError) as error:
        problem = f"the range is not valid: {error}"
        raise BadRange(problem=problem, next=f"oncelake plan {name}", for_all=True) from error
    return Scope(name, span, 1, f"what has arrived, {chosen_by} {span}")


def _span(name: str, grid: Grid, first: datetime, request: Request) -> tuple[datetime, datetime, str | None]:
    """Return the requested range on the grid of a pipeline, and a note if part of it is not over yet."""
    # The end of the last interval that is over.
    over = grid.floor(request.now)
    if request.date is not None:
        start, end = _parse_date(name, grid, request.date)
    else:
        start = first if request.start is None else _parse_boundary(name, grid, "--from", request.start)
        end = over if request.end is None else _parse_boundary(name, grid, "--to", request.end)
        if request.start is not None and request.end is not None and end <= start:
            problem = f"--to {request.end} is not after --from {request.start} (--to is exclusive)"
            raise BadRange(problem=problem, next=f"oncelake plan {name} --from {request.start} --to …", for_all=True)
    if (request.date or request.start) and start < first:
        first_day = first.astimezone(grid.cell(first).local_start.tzinfo).date()
        problem = f"{request.date or request.start} is before the start of {name} ({first_day})"
        raise BadRange(problem=problem, next=f"oncelake plan {name} --from {first_day}")
    if end <= start and (request.start is not None or request.end is not None):
        problem = f"{name} has no interval between {instant_text(start)} and {instant_text(end)}"
        raise BadRange(problem=problem, next=f"oncelake plan {name}")
    if end <= over:
        return start, max(start, end), None
    if request.date is not None or start >= over:
        problem = f"{Interval(start, end, grid.zone)} of {name} is not over yet: rows may still arrive (now is {request.now:%Y-%m-%dT%H:%MZ})"
        raise BadRange(problem=problem, next=f"oncelake run {name}")
    return start, over, f"{name}: {Interval(over, end, grid.zone)} is not over yet and is skipped"


def _parse_date(name: str, grid: Grid, text: str) -> tuple[datetime, datetime]:
    """Return the interval of a date. With `every="hour"` a date without a time means all hours of the day."""
    start = _parse_boundary(name, grid, "--date", text)
    if grid.every == "hour" and len(text.strip()) <= len("2024-03-15"):
        return start, grid.floor(Grid("day", grid.zone).after(start))
    return start, grid.after(start)


def _parse_boundary(name: str, grid: Grid, option: str, text: str) -> datetime:
    """Return the instant of a date or a time, which must be the start of an interval."""
    try:
        instant = grid.parse(text)
        grid.after(grid.floor(instant))
    except (ValueError, OverflowError) as error:
        problem = f"{option} {text!r} is not a date (like 2024-03-15 or 2024-03-15T06:00)"
        raise BadRange(problem=problem, next=f"oncelake plan {name}", for_all=True) from error
    if not grid.is_boundary(instant):
        cell = grid.cell(instant)
        problem = f"{option} {text} is off the grid of {name} (every {grid.every}): it lies inside {cell}"
        raise BadRange(problem=problem, next=f"oncelake plan {name} {option} {cell.local_start:%Y-%m-%dT%H:%M}")
    return instant
