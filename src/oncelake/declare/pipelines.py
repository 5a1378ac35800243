"""What a user declares: a pipeline is a source, a function and the patterns by which its results are written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Pattern, Source
from oncelake.model.intervals import Grid, parse_length
from oncelake.model.source_location import display_path

_declared: ContextVar[list[Pipeline] | None] = ContextVar("declared", default=None)

_LONGEST = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
}


@dataclass(frozen=True)
class Pipeline:
    """A declared pipeline. It can still be called: that is the user's function, frames in, frame out."""

    name: str
    function: Callable[..., Any]
    reads: Mapping[str, Source]
    writes: tuple[Pattern, ...]
    grid: Grid | None
    start: datetime | None
    where: str
    takes_interval: bool = False
    combine_intervals: bool = True
    lookback: timedelta | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function, as if it had never been decorated."""
        return self.function(*args, **kwargs)

    @property
    def reads_tables(self) -> set[str]:
        """The names of the tables it reads."""
        return {table for source in self.reads.values() for table in source.tables}

    @property
    def writes_tables(self) -> set[str]:
        """The names of the tables it writes."""
        return {pattern.target for pattern in self.writes}

    def pattern(self, target: str) -> Pattern:
        """The pattern by which a target is written."""
        return next(pattern for pattern in self.writes if pattern.target == target)


@contextmanager
def collecting() -> Iterator[list[Pipeline]]:
    """Collect every pipeline that is declared inside the block."""
    found: list[Pipeline] = []
    token = _declared.set(found)
    try:
        yield found
    finally:
        _declared.reset(token)


def pipeline(  # noqa: PLR0913  every word of it is a choice of the user's
    *,
    reads: Source | Mapping[str, Source],
    writes: Pattern | Iterable[Pattern],
    every: str | None = None,
    start: str | date | None = None,
    timezone: str = "UTC",
    name: str | None = None,
    combine_intervals: bool = True,
    late: str | None = None,
    lookback: str | int | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Declare a pipeline. Nothing is read, written or started here.

    With `every` ("hour", "day", "week", "month") and `start` it is driven by intervals; without them it has one slice,
    the whole, and runs again when the versions of its inputs changed. Several sources are a dict and reach the function
    by parameter name; a parameter named `interval` receives the interval. Several targets are a list of patterns, and
    the function then returns a dict of frames by target.

    Neighbouring intervals are written in one commit where the pattern allows it, each computed by itself; with
    `combine_intervals=False` every interval has a commit of its own. Rows that come for an interval that is done make it stale,
    which is shown; with `late="restate"` they are redone by `run`, those of the last `lookback` before the end of what is
    run: a length of time like "7 days", or a number of intervals; without it all.
    """

    def declare(function: Callable[..., Any]) -> Pipeline:
        schedule = Schedule(every, start, timezone, combine_intervals, late, lookback)
        declared = build(function, reads, writes, schedule, name=name, where=location(function))
        found = _declared.get()
        if found is not None:
            found.append(declared)
        return declared

    return declare


@dataclass(frozen=True)
class Schedule:
    """How time drives a pipeline, as it was written down."""

    every: str | None
    start: str | date | None
    timezone: str
    combine_intervals: bool = True
    late: str | None = None
    lookback: str | int | None = None


def build(
    function: Callable[..., Any],
    reads: Source | Mapping[str, Source],
    writes: Pattern | Iterable[Pattern],
    schedule: Schedule,
    *,
    name: str | None,
    where: str,
) -> Pipeline:
    """A checked pipeline, or BadDeclaration with the file and line of the user's code."""
    if not callable(function):
        raise BadDeclaration(where=where, problem=f"a pipeline is a function, not {function!r}")
    name = name or getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise BadDeclaration(where=where, problem=f"{name!r} is no name for a pipeline")
    try:
        grid, begins = _grid(schedule)
        lookback = _lookback(schedule)
        patterns = _patterns(writes)
        sources, takes_interval = _bind(function, reads)
        _check(grid, sources, patterns)
    except (ValueError, TypeError) as error:
        raise BadDeclaration(where=where, problem=f"pipeline {name}: {error}") from error
    combine_intervals = schedule.combine_intervals
    return Pipeline(name, function, sources, patterns, grid, begins, where, takes_interval, combine_intervals, lookback)


def location(function: Callable[..., Any]) -> str:
    """`file:line` of a function, as a user would look for it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{display_path(code.co_filename)}:{code.co_firstlineno}"


def _grid(schedule: Schedule) -> tuple[Grid | None, datetime | None]:
    if schedule.every is None:
        if schedule.start is not None:
            raise ValueError("start= is given without every=")
        return None, None
    grid = Grid(schedule.every, schedule.timezone)
    if schedule.start is None:
        raise ValueError('every= needs start=, the first interval there is (like start="2024-01-01")')
    start = grid.parse(schedule.start)
    if not grid.holds(start):
        raise ValueError(f"start={schedule.start} is off the grid of every {grid.every}: {grid.cell(start)} holds it")
    return grid, start


def _lookback(schedule: Schedule) -> timedelta | None:
    """How far back late rows are taken up by themselves; None if they are only shown."""
    if schedule.late not in (None, "show", "restate"):
        raise ValueError(f'late={schedule.late!r} is neither "show" nor "restate"')
    if schedule.late != "restate":
        if schedule.lookback is not None:
            raise ValueError('lookback= says how far back late="restate" goes, which is not given')
        return None
    if schedule.every is None:
        raise ValueError('late="restate" needs every=')
    if schedule.lookback is None:
        return timedelta.max
    if isinstance(schedule.lookback, int) and schedule.lookback > 0:
        return schedule.lookback * _LONGEST[schedule.every]
    return parse_length(schedule.lookback)


def _patterns(writes: Pattern | Iterable[Pattern]) -> tuple[Pattern, ...]:
    patterns = tuple(writes) if isinstance(writes, Iterable) else (writes,)
    for pattern in patterns:
        if not hasattr(pattern, "write") or not hasattr(pattern, "target"):
            raise TypeError(f"writes= takes patterns like once.replace_interval(…), not {pattern!r}")
    if not patterns:
        raise ValueError("writes= is empty")
    targets = [pattern.target for pattern in patterns]
    if twice := {target for target in targets if targets.count(target) > 1}:
        raise ValueError(f"{', '.join(sorted(twice))} is written twice by one pipeline")
    return patterns


def _bind(function: Callable[..., Any], reads: Source | Mapping[str, Source]) -> tuple[dict[str, Source], bool]:
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != "interval"]
    if isinstance(reads, Mapping):
        sources = dict(reads)
    elif names:
        sources = {names[0]: reads}
    else:
        raise ValueError("the function takes no frame")
    for source in sources.values():
        if not hasattr(source, "read") or not hasattr(source, "pin"):
            raise TypeError(f"reads= takes sources like once.table(…), not {source!r}")
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if (extra := set(sources) - set(names)) and not anything:
        raise ValueError(f"reads {', '.join(sorted(extra))}, which the function does not take as a parameter")
    unbound = [
        name
        for name in names
        if name not in sources
        and parameters[name].default is inspect.Parameter.empty
        and parameters[name].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]
    if unbound:
        raise ValueError(f"the function takes {', '.join(unbound)}, which reads= does not name")
    return sources, "interval" in parameters


def _check(grid: Grid | None, sources: Mapping[str, Source], patterns: tuple[Pattern, ...]) -> None:
    parts: list[Source | Pattern] = [*sources.values(), *patterns]
    for part in parts:
        if problem := part.problem(grid):
            raise ValueError(problem)
