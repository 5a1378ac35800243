"""`once.table`: a Delta table of the lake, whole or by interval, at a pinned version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns
from oncelake.delta.log import TableLog
from oncelake.delta.tables import delta_log, require_log
from oncelake.delta.time_ranges import TimeColumn, changed_files, estimate, touched
from oncelake.delta.writes import table_at
from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Pins, Read, Reading
from oncelake.model.intervals import Grid, Interval
from oncelake.model.names import table_name_problem
from oncelake.model.source_location import declared_at
from oncelake.model.work import InputSize
from oncelake.spark.columns import FrameOrigin, find_time_column
from oncelake.spark.sql import inside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(name: str, time: str | None = None, latest: Mapping[str, ColumnNames] | None = None) -> TableSource:
    """Read a table: its rows of the interval by the column `time`, or all of it where no `time` is given.

    `latest={"keys": …, "by": …}` reads the latest row of every key only, as `once.latest` would choose it.
    """
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    if latest is not None and (not set(latest) <= {"keys", "by"} or not parse_columns("keys", latest.get("keys"))):
        problem = f'latest= is like {{"keys": ["id"], "by": "updated_at"}}, not {latest!r}'
        raise BadDeclaration(where=declared_at(), problem=problem)
    chosen = () if latest is None else (parse_columns("keys", latest["keys"]), parse_columns("by", latest.get("by")))
    return TableSource(name, time, chosen)


@dataclass(frozen=True)
class TableSource:
    """A table, as it was declared."""

    name: str
    time: str | None
    latest: tuple[tuple[str, ...], ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The table itself."""
        return (self.name,)

    @property
    def by_interval(self) -> bool:
        """Only with a time column."""
        return self.time is not None

    def problem(self, grid: Grid | None) -> str | None:
        """A time column means nothing without intervals."""
        if self.time is not None and grid is None:
            return f"table {self.name} is read by time={self.time!r}, which needs every="
        return None

    def pin(self, reading: Reading) -> Pins:
        """Pin the version the table has now."""
        log = require_log(reading.lake.table(self.name))
        return {"table": self.name, "version": log.version, "id": log.metadata.get("id")}

    def stats(self, reading: Reading) -> TableStats:
        """Return statistics from the log it has now."""
        log = delta_log(reading.lake.table(self.name))
        zone = reading.grid.zone if reading.grid else "UTC"
        return TableStats(self.name, log, TimeColumn.of(log, self.time, zone) if log and self.time else None)

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Do nothing: a version of a Delta table never changes."""

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """Return a function that reads the rows of a slice, as of the pinned version."""
        # Delta computes the state of an older version for every read of it: read it once for all slices.
        whole = table_at(session, reading.lake.table(self.name).path, pins["version"])
        return lambda slice_: self._latest(self._sliced(whole, replace(reading, slice=slice_)))

    def _sliced(self, frame: DataFrame, reading: Reading) -> DataFrame:
        if self.time is None or reading.grid is None or not isinstance(reading.slice, Interval):
            return frame
        origin = FrameOrigin(f"table {self.name}", reading.pipeline, reading.where)
        column, kind = find_time_column(frame, self.time, reading.grid, origin)
        return frame.where(inside(column, kind, reading.slice))

    def _latest(self, rows: DataFrame) -> DataFrame:
        if not self.latest:
            return rows
        from oncelake.keyed.latest import latest

        return latest(rows, *self.latest)


@dataclass(frozen=True)
class TableStats:
    """What the log of a table says of the rows of intervals."""

    name: str
    log: TableLog | None
    column: TimeColumn | None

    def estimate(self, interval: Interval) -> InputSize:
        """Return how much there is to read for an interval, by the statistics of its files."""
        return estimate(self.log, self.column, interval) if self.log and self.column else InputSize()

    def changed(self, interval: Interval, pins: Pins) -> list[tuple[Interval, str]]:
        """Return the parts of an interval that changed since the pinned version; all of it where that is not known."""
        if self.log is None:
            return []
        if self.log.metadata.get("id") != pins.get("id"):
            return [(interval, f"{self.name} was recreated")]
        pinned = pins["version"]
        if pinned >= self.log.version:
            return []
        if not self.log.commits or self.log.commits[0] > pinned + 1:
            return [(interval, f"{self.name} may have changed: its log no longer reaches back to version {pinned}")]
        changes = []
        for version in self.log.commits[bisect_right(self.log.commits, pinned) :]:
            found = self._touched(version)
            verb = "may have got" if found is None else "got"
            parts = [interval] if found is None else [part for part in found if part.overlaps(interval)]
            changes += [(part, f"{self.name} {verb} other rows for it in version {version}") for part in parts]
        return changes

    @cached_property
    def _seen(self) -> dict[int, list[Interval] | None]:
        return {}

    def _touched(self, version: int) -> list[Interval] | None:
        """Return the time a commit touched, by this reader's column; None if that is not known. Each commit is read once."""
        assert self.log is not None
        if version not in self._seen:
            entry = self.log.entry(version)
            if self.column is not None:
                self._seen[version] = touched(entry, self.column)
            else:
                self._seen[version] = None if changed_files(entry) else []
        return self._seen[version]
