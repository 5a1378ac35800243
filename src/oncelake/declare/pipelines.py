"""Pipeline declarations: sources, a transform function, and the patterns that write its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from oncelake.errors import BadDeclaration
from oncelake.model.arrivals import Arrivable, ArrivalSource
from oncelake.model.contracts import Pattern, Source
from oncelake.model.intervals import Grid, parse_length
from oncelake.model.source_location import display_path
from oncelake.model.streams import StreamSource

_declared: ContextVar[list[Pipeline] | None] = ContextVar("declared", default=None)

# The longest possible interval of each grid.
_MAX_LENGTH = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
}


@dataclass(frozen=True)
class Pipeline:
    """A declared pipeline. Calling it calls the user's function: frames in, frame out."""

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
    # Whether its function is applied to a stream as a whole, which keeps state, and not to each batch.
    stateful: bool = False
    # Former names, whose markers count as this pipeline's; None if nothing was said, () if there are none.
    formerly: tuple[str, ...] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function as if it were not decorated."""
        return self.function(*args, **kwargs)

    @property
    def reads_tables(self) -> set[str]:
        """Return the names of the tables it reads."""
        return {table for source in self.reads.values() for table in source.tables}

    @property
    def writes_tables(self) -> set[str]:
        """Return the names of the tables it writes."""
        return {pattern.target for pattern in self.writes}

    @property
    def arrival(self) -> ArrivalSource | None:
        """Return the source that drives it by batches, if there is one."""
        return next((source for source in self.reads.values() if isinstance(source, ArrivalSource)), None)

    @property
    def stream(self) -> StreamSource | None:
        """Return the source that drives it by the micro-batches of a query, if there is one."""
        return next((source for source in self.reads.values() if isinstance(source, StreamSource)), None)

    @property
    def by_batch(self) -> bool:
        """Return whether it is driven by batches: of files that arrive, or of a stream."""
        return self.arrival is not None or self.stream is not None

    def pattern(self, target: str) -> Pattern:
        """Return the pattern that writes a target."""
        return next(pattern for pattern in self.writes if pattern.target == target)


@contextmanager
def collect_pipelines() -> Iterator[list[Pipeline]]:
    """Collect every pipeline that is declared inside the block."""
    found: list[Pipeline] = []
    token = _declared.set(found)
    try:
        yield found
    finally:
        _declared.reset(token)


def pipeline(  # noqa: PLR0913  each parameter is an option of the user
    *,
    reads: Source | Arrivable | Mapping[str, Source | Arrivable],
    writes: Pattern | Iterable[Pattern],
    every: str | None = None,
    start: str | date | None = None,
    timezone: str = "UTC",
    name: str | None = None,
    formerly: str | Iterable[str] | None = None,
    combine_intervals: bool = True,
    late: str | None = None,
    lookback: str | int | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Declare a pipeline. Nothing is read, written or started here.

    With `every` ("hour", "day", "week", "month") and `start` the pipeline is driven by intervals. Without them it has one
    slice, the whole table, and runs again when the versions of its inputs change. Pass several sources as a dict; they are
    bound to the function's parameters by name. A parameter named `interval` receives the interval. Pass several targets as
    a list of patterns; the function then returns a dict of frames by target.

    Neighbouring intervals are written in one commit where the pattern allows it, each computed separately. With
    `combine_intervals=False` every interval has its own commit. Late rows mark a finished interval stale. With
    `late="restate"`, `run` reprocesses stale intervals within `lookback` of the end of the run: a duration such as
    "7 days", or a number of intervals; without `lookback` it reprocesses all of them.

    The name, by default that of the function, is part of every marker. After a rename declare the former name, or several,
    in `formerly`: what was done under it counts as done. `formerly=[]` says that there is none.
    """

    def declare(function: Callable[..., Any]) -> Pipeline:
        schedule = Schedule(every, start, timezone, combine_intervals, late, lookback)
        declared = build(function, reads, writes, schedule, name=name, where=location(function), formerly=formerly)
        found = _declared.get()
        if found is not None:
            found.append(declared)
        return declared

    return declare


@dataclass(frozen=True)
class Schedule:
    """The declared schedule of a pipeline: grid, first interval, time zone, and late data."""

    every: str | None
    start: str | date | None
    timezone: str
    combine_intervals: bool = True
    late: str | None = None
    lookback: str | int | None = None


def build(  # noqa: PLR0913  what a declaration has
    function: Callable[..., Any],
    reads: Source | Arrivable | Mapping[str, Source | Arrivable],
    writes: Pattern | Iterable[Pattern],
    schedule: Schedule,
    *,
    name: str | None,
    where: str,
    formerly: str | Iterable[str] | None = None,
) -> Pipeline:
    """Return the validated pipeline; raise BadDeclaration with the file and line of the user's code."""
    if not callable(function):
        raise BadDeclaration(where=where, problem=f"a pipeline must be a function, not {function!r}")
    name = name or getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise BadDeclaration(where=where, problem=f"{name!r} is not a valid pipeline name")
    try:
        grid, start = _parse_grid(schedule)
        lookback = _parse_lookback(schedule)
        patterns = _parse_patterns(writes)
        declared_sources, takes_interval = _bind_sources(function, reads)
        sources = _resolve_arrivals(declared_sources, grid, patterns)
        stateful = _check_stream(sources, patterns)
        _check_grid(grid, sources, patterns)
        _refuse_repeated_input(grid, sources, patterns, takes_interval)
        former = _parse_formerly(formerly)
    except (ValueError, TypeError) as error:
        raise BadDeclaration(where=where, problem=f"pipeline {name}: {error}") from error
    combine_intervals = schedule.combine_intervals
    declared = Pipeline(
        name, function, sources, patterns, grid, start, where, takes_interval, combine_intervals, lookback
    )
    return replace(declared, formerly=former, stateful=stateful)


def location(function: Callable[..., Any]) -> str:
    """Return the `file:line` of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{display_path(code.co_filename)}:{code.co_firstlineno}"


def _parse_grid(schedule: Schedule) -> tuple[Grid | None, datetime | None]:
    if schedule.every is None:
        if schedule.start is not None:
            raise ValueError("start= is given without every=")
        return None, None
    grid = Grid(schedule.every, schedule.timezone)
    if schedule.start is None:
        raise ValueError('every= needs start=, the first interval (for example start="2024-01-01")')
    start = grid.parse(schedule.start)
    if not grid.is_boundary(start):
        raise ValueError(
            f"start={schedule.start} is off the grid of every {grid.every}: it lies inside {grid.cell(start)}"
        )
    return grid, start


def _parse_lookback(schedule: Schedule) -> timedelta | None:
    """Return how far back `run` reprocesses intervals with late rows; None if they are only shown as stale."""
    if schedule.late not in (None, "show", "restate"):
        raise ValueError(f'late={schedule.late!r} must be "show" or "restate"')
    if schedule.late != "restate":
        if schedule.lookback is not None:
            raise ValueError('lookback= needs late="restate"')
        return None
    if schedule.every is None:
        raise ValueError('late="restate" needs every=')
    if schedule.lookback is None:
        return timedelta.max
    if isinstance(schedule.lookback, int) and schedule.lookback > 0:
        return schedule.lookback * _MAX_LENGTH[schedule.every]
    return parse_length(schedule.lookback)


def _parse_patterns(writes: Pattern | Iterable[Pattern]) -> tuple[Pattern, ...]:
    patterns = tuple(writes) if isinstance(writes, Iterable) else (writes,)
    for pattern in patterns:
        if not hasattr(pattern, "write") or not hasattr(pattern, "target"):
            raise TypeError(f"writes= takes patterns like once.replace_interval(…), not {pattern!r}")
    if not patterns:
        raise ValueError("writes= is empty")
    targets = [pattern.target for pattern in patterns]
    if repeated := {target for target in targets if targets.count(target) > 1}:
        raise ValueError(f"one pipeline writes {', '.join(sorted(repeated))} twice")
    return patterns


def _bind_sources(
    function: Callable[..., Any], reads: Source | Arrivable | Mapping[str, Source | Arrivable]
) -> tuple[dict[str, Source | Arrivable], bool]:
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != "interval"]
    if isinstance(reads, Mapping):
        sources = dict(reads)
    elif names:
        sources = {names[0]: reads}
    else:
        raise ValueError("the function has no parameter for a frame")
    for source in sources.values():
        if not isinstance(source, Arrivable) and not (hasattr(source, "read") and hasattr(source, "pin")):
            raise TypeError(f"reads= takes sources like once.table(…), not {source!r}")
    any_keyword = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if (extra := set(sources) - set(names)) and not any_keyword:
        raise ValueError(f"reads= names {', '.join(sorted(extra))}, but the function has no such parameter")
    unbound = [
        name
        for name in names
        if name not in sources
        and parameters[name].default is inspect.Parameter.empty
        and parameters[name].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]
    if unbound:
        raise ValueError(f"the function has a parameter {', '.join(unbound)}, but reads= does not name it")
    return sources, "interval" in parameters


def _resolve_arrivals(
    sources: Mapping[str, Source | Arrivable], grid: Grid | None, patterns: tuple[Pattern, ...]
) -> dict[str, Source]:
    """Return the sources as the pipeline reads them: without intervals, files drive it by their arrival.

    Patterns that replace the whole table, or whole partitions, need all files: they are read again when one changed.
    """
    streamed = any(isinstance(source, StreamSource) for source in sources.values())
    driven = grid is None and not streamed and all(pattern.takes_batches for pattern in patterns)
    resolved = {
        name: source.resolve(driven) if isinstance(source, Arrivable) else source for name, source in sources.items()
    }
    arriving = [(name, source) for name, source in resolved.items() if isinstance(source, ArrivalSource)]
    if len(arriving) > 1:
        both = " and ".join(name for name, _ in arriving)
        raise ValueError(f"{both} both arrive, and one source drives a pipeline: declare arrives=False for the others")
    for pattern in patterns if arriving else ():
        if grid is not None or not pattern.takes_batches:
            what = "every=" if grid is not None else f"{pattern.kind} on {pattern.target}, which replaces earlier rows"
            raise ValueError(f"{arriving[0][0]} arrives in batches, which does not go with {what}")
        if arriving[0][1].replaces_files and pattern.kind != "append":
            raise ValueError(f'changed="replace" goes with append only, not with {pattern.kind} on {pattern.target}')
    return resolved


def _check_stream(sources: Mapping[str, Source], patterns: tuple[Pattern, ...]) -> bool:
    """Check the declaration of a stream, and return whether its query keeps state."""
    streams = [name for name, source in sources.items() if isinstance(source, StreamSource)]
    if not streams:
        return False
    drivers = [name for name, source in sources.items() if name in streams or isinstance(source, ArrivalSource)]
    if len(drivers) > 1:
        raise ValueError(
            f"{' and '.join(drivers)} both drive the pipeline, and one source can: read the other as a table"
        )
    for pattern in patterns:
        if not pattern.takes_batches and pattern.kind != "replace_partitions":
            raise ValueError(f"{streams[0]} is a stream, which does not go with {pattern.kind} on {pattern.target}")
    stateful = [pattern for pattern in patterns if pattern.needs_state]
    if stateful and len(sources) > 1:
        raise ValueError(f"{stateful[0].kind} on {stateful[0].target} keeps state: the pipeline reads its stream alone")
    if stateful and len(patterns) > 1:
        what = f"{stateful[0].kind} on {stateful[0].target} keeps state in a query of its own"
        raise ValueError(f"{what}: declare it in a pipeline of its own, or add to the groups with add=")
    return bool(stateful)


def _check_grid(grid: Grid | None, sources: Mapping[str, Source], patterns: tuple[Pattern, ...]) -> None:
    by_batch = any(isinstance(source, ArrivalSource | StreamSource) for source in sources.values())
    parts: list[Source | Pattern] = [*sources.values(), *(() if by_batch else patterns)]
    for part in parts:
        if problem := part.problem(grid):
            raise ValueError(problem)


def _refuse_repeated_input(
    grid: Grid | None, sources: Mapping[str, Source], patterns: tuple[Pattern, ...], takes_interval: bool
) -> None:
    """Refuse to add the same input once per interval."""
    if grid is None or takes_interval or any(source.by_interval for source in sources.values()):
        return
    for pattern in patterns:
        if not pattern.restates:
            raise ValueError(
                f"{pattern.kind} on {pattern.target} would add the same input once per interval: read a source by interval"
                " (time= of a table, a placeholder in a path), or give the function a parameter `interval`"
            )


def _parse_formerly(formerly: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if formerly is None:
        return None
    names = (formerly,) if isinstance(formerly, str) else tuple(formerly)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"formerly={formerly!r} must be a name of a pipeline, or a list of names")
    return names
