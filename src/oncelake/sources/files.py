"""`once.files`: files whose path contains the interval they belong to."""

from __future__ import annotations

import csv
import string
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from oncelake.errors import BadDeclaration, SourceChanged, SourceMissing, SourceUnreadable, WrongHeader
from oncelake.model.contracts import Pins, Read, Reading
from oncelake.model.intervals import Grid, Interval
from oncelake.model.slices import Slice
from oncelake.model.work import InputSize
from oncelake.spark.sql import identifier
from oncelake.storage.listing import InputFile, digest, escape_glob, find_files, text_lines
from oncelake.storage.object_store import in_parallel
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# The size of a range is estimated from the files of about this many of its intervals.
_SAMPLED = 32
FORMATS = ("parquet", "json", "csv")
# By default Spark would turn a line that does not parse into a row of nulls.
_OPTIONS = {"json": {"mode": "FAILFAST"}, "csv": {"mode": "FAILFAST", "header": "true"}, "parquet": {}}


def parse_files(
    path: Any, kind: str, schema: str | None, missing: Any, options: Mapping[str, Any] | None
) -> FilesSource:
    """Return the declared source; raise ValueError if something is wrong with it."""
    if problem := _problem(path, missing, options):
        raise ValueError(problem)
    return FilesSource(path, kind, schema, missing, dict(options or {}))


def _problem(path: Any, missing: Any, options: Any) -> str | None:
    if not isinstance(path, str) or not path:
        return f"files are named by a path, not {path!r}"
    if missing not in ("error", "empty"):
        return f'missing={missing!r} is neither "error" nor "empty"'
    if options is not None and not isinstance(options, Mapping):
        return f"options are a mapping of names to values, not {options!r}"
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(path) if name is not None}
        if not names <= {"start", "end"}:
            return f"path {path!r} has the placeholder {{{min(names - {'start', 'end'})}}}; there are {{start}} and {{end}}"
        path.format(start=datetime.now(UTC), end=datetime.now(UTC))
    except (ValueError, IndexError, KeyError) as error:
        return f"path {path!r} cannot be filled in: {error}"
    return None


@dataclass(frozen=True)
class FilesSource:
    """A declared source of files."""

    path: str
    format: str
    schema: str | None
    missing: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """No table is read."""
        return ()

    @property
    def by_interval(self) -> bool:
        """Whether the path has a placeholder."""
        return any(name is not None for _, name, _, _ in string.Formatter().parse(self.path))

    @property
    def time(self) -> str | None:
        """None: the path tells the interval, not a column."""
        return None

    @property
    def versioned(self) -> bool:
        """No: a file may be rewritten at any time."""
        return False

    def require_format(self) -> None:
        """Raise ValueError if Spark cannot read the format."""
        if self.format not in FORMATS:
            raise ValueError(f"files at {self.path!r}: format={self.format!r} is none of {', '.join(FORMATS)}")

    def problem(self, grid: Grid | None) -> str | None:
        """Return why the path does not fit the grid: no intervals, or two of them have the same path."""
        if not self.by_interval:
            return None
        if grid is None:
            return f"files at {self.path!r} depend on the interval, which needs every="
        same = same_path(self.path, grid)
        return self._shared_path(*same) if same else None

    def found(self, reading: Reading) -> list[InputFile]:
        """Return the files that exist now."""
        return find_files(self._pattern(reading), reading.lake.file(""))

    def pin(self, reading: Reading) -> Pins:
        """Return the number of files and a digest of their names, sizes and times; for a range one per interval."""
        cells = self.cells(reading)
        if len(cells) > 1:
            pins = {cell.slice.text: self.pin(cell) for cell in cells}
            count = sum(each["count"] for each in pins.values())
            digests = {text: each["digest"] for text, each in pins.items()}
            return {"files": self.path, "count": count, "digests": digests}
        self._refuse_shared_path(cells[0])
        found = self.found(cells[0])
        if not found and self.missing == "error":
            raise SourceMissing(**self._facts(cells[0]))
        return {"files": self.path, "count": len(found), "digest": _digest(found, reading)}

    def cells(self, reading: Reading) -> list[Reading]:
        """Return one reading per interval, because each interval has its own path."""
        if not isinstance(reading.slice, Interval) or reading.grid is None or not self.by_interval:
            return [reading]
        cells = reading.grid.cells(reading.slice.start, reading.slice.end)
        return [replace(reading, slice=cell) for cell in cells]

    def stats(self, reading: Reading) -> FilesStats:
        """Return statistics of the files that exist now."""
        return FilesStats(self, reading)

    def pinned(self, reading: Reading, pins: Pins) -> str | None:
        """Return the digest of an interval from the pins of that interval or of a range."""
        found: str | None = pins.get("digests", {}).get(reading.slice.text, pins.get("digest"))
        return found

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """Return the rows of the files of a slice if they are the pinned ones; no rows if there are none and may be none."""
        return lambda slice_: self._rows(session, replace(reading, slice=slice_), pins)

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Raise SourceChanged unless the files are still the pinned ones."""
        for cell in self.cells(reading):
            self._verify(self.found(cell), cell, pins)

    def _refuse_shared_path(self, reading: Reading) -> None:
        """Refuse an hour that has the path of the one before or after it: time zones had other clock changes in the past."""
        cell, grid = reading.slice, reading.grid
        if not isinstance(cell, Interval) or grid is None or grid.every != "hour" or not self.by_interval:
            return
        for other in (grid.cell(grid.step(cell.start, -1)), grid.cell(cell.end)):
            if _render(self.path, other) == _render(self.path, cell):
                raise BadDeclaration(where=reading.where, problem=self._shared_path(other, cell))

    def _shared_path(self, one: Interval, other: Interval) -> str:
        both = f"{one} and {other} would both read {_render(self.path, one)}"
        return f"path {self.path!r} is not unique per interval: {both}"

    def _verify(self, found: list[InputFile], reading: Reading, pins: Pins) -> None:
        if _digest(found, reading) != self.pinned(reading, pins):
            raise SourceChanged(**self._facts(reading))

    def _rows(self, session: SparkSession, reading: Reading, pins: Pins) -> DataFrame:
        found = self.found(reading)
        self._verify(found, reading, pins)
        if found:
            return self._load(session, found, reading)
        if self.schema is not None:
            return _no_rows(session, _parse(self.schema))
        # Without a schema, the columns of an empty interval are those of the files of any other interval.
        others = find_files(reading.lake.file(self._anywhere()), reading.lake.file(""))
        if not others:
            raise SourceMissing(**self._facts(reading))
        return self._load(session, others[-1:], reading).limit(0)

    def _load(self, session: SparkSession, found: list[InputFile], reading: Reading) -> DataFrame:
        options = {**_OPTIONS[self.format], **self.options}
        schema = None if self.schema is None else _parse(self.schema)
        if self.format != "csv" or not matched_by_name(options):
            return _read(session, self.format, options, schema, found)
        # Spark matches CSV columns by position: read files of equal headers together, and let Spark check each header.
        wrong = {"where": reading.where, "pipeline": reading.pipeline}
        options |= {"enforceSchema": "false"}
        groups = group_by_header(found, schema, options, wrong)
        frames = [_read(session, "csv", options, ordered, group) for ordered, group in groups]
        names = frames[0].columns if schema is None else schema.fieldNames()
        frames = [frame if frame.columns == names else frame.select(*map(identifier, names)) for frame in frames]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _facts(self, reading: Reading) -> dict[str, str]:
        return {"path": self._pattern(reading), "slice": str(reading.slice), "pipeline": reading.pipeline}

    def _pattern(self, reading: Reading) -> str:
        return reading.lake.file(_render(self.path, reading.slice))

    def _anywhere(self) -> str:
        parts = string.Formatter().parse(self.path)
        return "".join(text + ("" if name is None else "*") for text, name, _, _ in parts)


@dataclass(frozen=True)
class FilesStats:
    """Statistics from listing the folders of intervals."""

    source: FilesSource
    reading: Reading
    # What was listed on an object store, by interval: each listing is a request.
    listed: dict[str, list[InputFile]] = field(default_factory=dict, repr=False, compare=False)

    def look_ahead(self, intervals: Iterable[Interval]) -> None:
        """List the files of intervals that will be asked for: on an object store, in parallel."""
        self._list(cell for each in intervals for cell in self.source.cells(replace(self.reading, slice=each)))

    def estimate(self, interval: Interval) -> InputSize:
        """Estimate the size of the files; for a long range from a sample of its intervals."""
        grid = self.reading.grid
        assert grid is not None
        count = grid.count(interval)
        sample = [grid.step(interval.start, number) for number in range(0, count, max(1, count // _SAMPLED))]
        readings = [replace(self.reading, slice=grid.cell(start)) for start in sample]
        self._list(readings)
        try:
            size = sum(file.size for reading in readings for file in self._found(reading))
        except SourceUnreadable:  # the run will report it
            return InputSize()
        return InputSize(bytes=round(size * count / len(sample)))

    def changed(self, interval: Interval, pins: Pins) -> list[tuple[Interval, str]]:
        """Return the intervals whose files have another digest than the pinned one, and why."""
        cells = self.source.cells(replace(self.reading, slice=interval))
        reasons = ((cell.slice, self._reason(cell, pins)) for cell in cells)
        return [(slice_, why) for slice_, why in reasons if why and isinstance(slice_, Interval)]

    def notes(self, quick: bool = False) -> list[str]:  # noqa: ARG002  nothing takes time
        """Return nothing: the path of a file tells its interval."""
        return []

    def _list(self, cells: Iterable[Reading]) -> None:
        def list_cell(cell: Reading) -> None:
            with suppress(SourceUnreadable):  # listing that slice later raises it again
                self.listed[cell.slice.text] = self.source.found(cell)

        if not is_local(self.reading.lake.file(self.source.path)):
            in_parallel(list_cell, [cell for cell in cells if cell.slice.text not in self.listed])

    def _found(self, cell: Reading) -> list[InputFile]:
        known = self.listed.get(cell.slice.text)
        return self.source.found(cell) if known is None else known

    def _reason(self, cell: Reading, pins: Pins) -> str | None:
        try:
            now = _digest(self._found(cell), cell)
        except SourceUnreadable as error:
            return f"the input files at {self.source.path} may have changed: {error.message}"
        return None if now == self.source.pinned(cell, pins) else f"the input files at {self.source.path} changed"


def _digest(found: list[InputFile], reading: Reading) -> str:
    return digest(found, reading.lake.file(""))


def _render(path: str, slice_: Slice) -> str:
    """Return the path with the wall-clock start and end of an interval filled in."""
    if not isinstance(slice_, Interval):
        return path
    return path.format(start=slice_.local_start, end=slice_.local_end)


@lru_cache(maxsize=1024)
def same_path(path: str, grid: Grid) -> tuple[Interval, Interval] | None:
    """Return two intervals of the grid with the same path, if there are any. Both would read the same files."""
    seen: dict[str, Interval] = {}
    for cell in _probes(grid):
        other = seen.setdefault(_render(path, cell), cell)
        if other != cell:
            return other, cell
    return None


def _probes(grid: Grid) -> Iterator[Interval]:
    """Yield intervals of three years: all of them, but of hours those of a week, of every day, and of clock changes."""
    start, end = (grid.floor(datetime(year, 1, 5, tzinfo=UTC)) for year in (2024, 2027))
    if grid.every != "hour":
        yield from grid.cells(start, end)
        return
    week = timedelta(days=7)
    yield from grid.cells(start, start + week)
    zone = ZoneInfo(grid.zone)
    for number in range((end - start).days):
        day = start + number * timedelta(days=1)
        yield grid.cell(day)
        before, after = (time.astimezone(zone).utcoffset() for time in (day, day + timedelta(days=1)))
        if before != after:
            yield from grid.cells(day, day + timedelta(days=1))


def matched_by_name(options: Mapping[str, Any]) -> bool:
    """Return whether CSV files have a header by which columns are matched, unless the user chose otherwise."""
    chosen = {name.lower(): str(value).lower() for name, value in options.items()}
    return chosen.get("header") == "true" and "enforceschema" not in chosen


def group_by_header(
    found: list[InputFile], schema: StructType | None, options: Mapping[str, Any], facts: Mapping[str, str]
) -> list[tuple[StructType | None, list[InputFile]]]:
    """Group CSV files by their header, each group with the schema in the order of its header.

    Raise WrongHeader if a header lacks a column or has another one. Without a schema the first header counts.
    """
    chosen = {name.lower(): str(value) for name, value in options.items()}
    corrupt = chosen.get("columnnameofcorruptrecord", "_corrupt_record")
    with ThreadPoolExecutor() as threads:
        headers = list(threads.map(lambda file: _header(file.path, chosen), found))
    fields = {} if schema is None else {f.name.casefold(): f for f in schema.fields if f.name != corrupt}
    expected = [f.name for f in fields.values()] or next(filter(None, headers), [])
    groups: dict[tuple[str, ...], list[InputFile]] = {}
    for file, header in zip(found, headers, strict=True):
        names = header or expected  # an empty file has no header and no rows
        order = tuple(name.casefold() for name in names)
        if sorted(order) != sorted(name.casefold() for name in expected):
            columns = {"found": ", ".join(names), "expected": ", ".join(expected)}
            raise WrongHeader(path=file.path, **columns, **facts)
        groups.setdefault(order, []).append(file)
    if schema is None:
        return [(None, group) for group in groups.values()]
    extra = [field for field in schema.fields if field.name == corrupt]
    return [(type(schema)([*(fields[name] for name in order), *extra]), group) for order, group in groups.items()]


def _header(path: str, options: Mapping[str, str]) -> list[str]:
    """Return the names in the header of a CSV file; none if the file is empty."""
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    comment, separator = options.get("comment"), options.get("sep", options.get("delimiter", ","))
    lines = text_lines(path, "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    line = next((line for line in lines if line.strip() and not (comment and line.startswith(comment))), None)
    if line is None:
        return []
    separator = separator.replace("\\t", "\t")
    quote = options.get("quote", '"')
    names = next(csv.reader([line], delimiter=separator, quotechar=quote)) if len(separator + quote) == 2 else None
    names = line.split(separator) if names is None else names
    if options.get("ignoreleadingwhitespace", "").lower() == "true":
        names = [name.lstrip() for name in names]
    return [name.rstrip() for name in names] if options.get("ignoretrailingwhitespace", "").lower() == "true" else names


def _read(
    session: SparkSession, kind: str, options: Mapping[str, Any], schema: StructType | None, found: Iterable[InputFile]
) -> DataFrame:
    reader = session.read.format(kind).options(**options)
    reader = reader if schema is None else reader.schema(schema)
    return reader.load([escape_glob(file.path) for file in found])


def _parse(schema: str) -> StructType:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)
    return columns


def _no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame that Spark knows to be empty: one from an empty Python list would start Python workers."""
    from pyspark.sql import functions as F

    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return session.range(1).select(*nothing).limit(0)
