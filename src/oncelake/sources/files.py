"""`once.files`: files whose path names the interval they belong to."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from oncelake.errors import BadDeclaration, SourceChanged, SourceMissing
from oncelake.model.contracts import Pins, Read, Reading
from oncelake.model.intervals import Grid, Interval
from oncelake.model.slices import Slice
from oncelake.model.source_location import declared_at
from oncelake.model.work import InputSize
from oncelake.storage.listing import Found, digest, escaped, find_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A range is weighed by the files of about so many of its intervals.
_SAMPLED = 32
FORMATS = ("parquet", "json", "csv")
# A line that does not parse would otherwise become a row of nulls, without a word.
_OPTIONS = {"json": {"mode": "FAILFAST"}, "csv": {"mode": "FAILFAST", "header": "true"}, "parquet": {}}


def files(
    path: str,
    format: str | None = None,  # noqa: A002  the word Spark's users know it by
    schema: str | None = None,
    missing: str = "error",
    options: Mapping[str, Any] | None = None,
) -> FilesSource:
    """Read files by a path like `landing/orders/{start:%Y-%m-%d}/*.json`.

    `format` is parquet, json or csv, by default the path's ending. A folder that is absent or empty is an error, for
    it may not have arrived yet; with `missing="empty"` it means no rows. `options` go to Spark's reader.
    """
    problem = _problem(path, missing, options)
    kind = format or PurePosixPath(str(path)).suffix.removeprefix(".")
    if not problem and kind not in FORMATS:
        problem = f"files at {path!r}: format={kind!r} is none of {', '.join(FORMATS)}"
    if problem:
        raise BadDeclaration(where=declared_at(), problem=problem)
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
    """Files, as they were declared."""

    path: str
    format: str
    schema: str | None
    missing: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """None: files are nobody's table."""
        return ()

    @property
    def by_interval(self) -> bool:
        """Only with a placeholder in the path."""
        return any(name is not None for _, name, _, _ in string.Formatter().parse(self.path))

    @property
    def time(self) -> str | None:
        """None: the path says it, not a column."""
        return None

    def problem(self, grid: Grid | None) -> str | None:
        """A placeholder means nothing without intervals."""
        if self.by_interval and grid is None:
            return f"files at {self.path!r} depend on the interval, which needs every="
        return None

    def found(self, reading: Reading) -> list[Found]:
        """The files there are now."""
        return find_files(self._pattern(reading))

    def pin(self, reading: Reading) -> Pins:
        """How many files there are now, and a digest of their names, sizes and times; of a range for each interval."""
        cells = self.cells(reading)
        if len(cells) > 1:
            pins = {cell.slice.text: self.pin(cell) for cell in cells}
            count = sum(each["count"] for each in pins.values())
            return {
                "files": self.path,
                "count": count,
                "digests": {text: each["digest"] for text, each in pins.items()},
            }
        found = self.found(cells[0])
        if not found and self.missing == "error":
            raise SourceMissing(**self._facts(cells[0]))
        return self._pins(found, cells[0])

    def cells(self, reading: Reading) -> list[Reading]:
        """What is read, interval by interval: each has a path of its own."""
        if not isinstance(reading.slice, Interval) or reading.grid is None or not self.by_interval:
            return [reading]
        cells = reading.grid.cells(reading.slice.start, reading.slice.end)
        return [replace(reading, slice=cell) for cell in cells]

    def stats(self, reading: Reading) -> FilesSight:
        """By the files there are now."""
        return FilesSight(self, reading)

    def pinned(self, reading: Reading, pins: Pins) -> str | None:
        """The digest of an interval in the pins, be they of it alone or of a range."""
        found: str | None = pins.get("digests", {}).get(reading.slice.text, pins.get("digest"))
        return found

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """The rows of a slice's files, if they are still those that were pinned; none where none are there and that is fine."""
        return lambda slice_: self._rows(session, replace(reading, slice=slice_), pins)

    def _rows(self, session: SparkSession, reading: Reading, pins: Pins) -> DataFrame:
        found = self.found(reading)
        if self._pins(found, reading)["digest"] != self.pinned(reading, pins):
            raise SourceChanged(**self._facts(reading))
        if found:
            return self._load(session, found, self.schema)
        if self.schema is not None:
            return _no_rows(session, self.schema)
        # The columns of no rows are those of the files of any other interval.
        others = find_files(reading.place.file(self._anywhere()))
        if not others:
            raise SourceMissing(**self._facts(reading))
        return self._load(session, others[-1:], None).limit(0)

    def _load(self, session: SparkSession, found: list[Found], schema: str | None) -> DataFrame:
        reader = session.read.format(self.format).options(**{**_OPTIONS[self.format], **self.options})
        reader = reader if schema is None else reader.schema(schema)
        return reader.load([escaped(file.path) for file in found])

    def _pins(self, found: list[Found], reading: Reading) -> Pins:
        return {"files": self.path, "count": len(found), "digest": digest(found, reading.place.file(""))}

    def _facts(self, reading: Reading) -> dict[str, str]:
        return {"path": self._pattern(reading), "slice": str(reading.slice), "pipeline": reading.pipeline}

    def _pattern(self, reading: Reading) -> str:
        return reading.place.file(self._filled_in(reading.slice))

    def _filled_in(self, slice_: Slice) -> str:
        if not isinstance(slice_, Interval):
            return self.path
        return self.path.format(start=slice_.local_start, end=slice_.local_end)

    def _anywhere(self) -> str:
        parts = string.Formatter().parse(self.path)
        return "".join(text + ("" if name is None else "*") for text, name, _, _ in parts)


@dataclass(frozen=True)
class FilesSight:
    """What the folders of intervals show."""

    source: FilesSource
    reading: Reading

    def estimate(self, interval: Interval) -> InputSize:
        """By the sizes of the files; of a long range by those of a few intervals."""
        grid = self.reading.grid
        assert grid is not None
        count = grid.count(interval)
        some = [grid.step(interval.start, number) for number in range(0, count, max(1, count // _SAMPLED))]
        readings = (replace(self.reading, slice=grid.cell(start)) for start in some)
        size = sum(file.size for reading in readings for file in self.source.found(reading))
        return InputSize(bytes=round(size * count / len(some)))

    def changed(self, interval: Interval, pins: Pins) -> list[tuple[Interval, str]]:
        """By the digests of what is there now and was there then."""
        cells = self.source.cells(replace(self.reading, slice=interval))
        return [
            (cell.slice, f"its files at {self.source.path} are others now")
            for cell in cells
            if isinstance(cell.slice, Interval)
            and digest(self.source.found(cell), cell.place.file("")) != self.source.pinned(cell, pins)
        ]


def _no_rows(session: SparkSession, schema: str) -> DataFrame:
    """A frame of these columns that Spark knows to be empty: one made from a list of Python's would start workers to ask."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields]
    return session.range(1).select(*nothing).limit(0)
