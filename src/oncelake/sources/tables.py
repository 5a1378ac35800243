"""`once.table`: a Delta table of the lake, whole or by interval, at a pinned version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns
from oncelake.delta.log import TableLog
from oncelake.delta.pinned_version import unreadable
from oncelake.delta.tables import delta_log, require_log
from oncelake.delta.time_ranges import TimeColumn, changed_files, estimate, files_within, null_times, touched
from oncelake.delta.writes import table_at
from oncelake.errors import BadDeclaration, NullTimes, VersionGone
from oncelake.model.contracts import Pins, Read, Reading
from oncelake.model.intervals import Grid, Interval
from oncelake.model.names import table_name_problem
from oncelake.model.source_location import declared_at
from oncelake.model.work import InputSize
from oncelake.spark.columns import FrameOrigin, find_column, find_time_column
from oncelake.spark.sql import identifier, inside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelake.delta.files import Files

# What is done about rows whose time is null.
REPORT, REFUSE = "report", "refuse"


def table(
    name: str,
    time: str | None = None,
    latest: Mapping[str, ColumnNames] | None = None,
    null_time: str = REPORT,
) -> TableSource:
    """Read a table: its rows of the interval by the column `time`, or all of it where no `time` is given.

    `latest={"keys": …, "by": …}` reads the latest row of every key only, as `once.latest` would choose it. Rows whose
    `time` is null belong to no interval: `plan` and `status` report how many there are, and with `null_time="refuse"`
    works fail as long as there are any.
    """
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    if latest is not None and (not set(latest) <= {"keys", "by"} or not parse_columns("keys", latest.get("keys"))):
        problem = f'latest= is like {{"keys": ["id"], "by": "updated_at"}}, not {latest!r}'
        raise BadDeclaration(where=declared_at(), problem=problem)
    if null_time not in (REPORT, REFUSE):
        raise BadDeclaration(where=declared_at(), problem=f'null_time={null_time!r} is neither "report" nor "refuse"')
    chosen = () if latest is None else (parse_columns("keys", latest["keys"]), parse_columns("by", latest.get("by")))
    return TableSource(name, time, chosen, null_time)


@dataclass(frozen=True)
class TableSource:
    """A table, as it was declared."""

    name: str
    time: str | None
    latest: tuple[tuple[str, ...], ...] = ()
    null_time: str = REPORT

    @property
    def tables(self) -> tuple[str, ...]:
        """The table itself."""
        return (self.name,)

    @property
    def by_interval(self) -> bool:
        """Only with a time column."""
        return self.time is not None

    @property
    def versioned(self) -> bool:
        """Yes: a version of a Delta table never changes."""
        return True

    def problem(self, grid: Grid | None) -> str | None:
        """A time column means nothing without intervals."""
        if self.time is not None and grid is None:
            return f"table {self.name} is read by time={self.time!r}, which needs every="
        if self.time is None and self.null_time == REFUSE:
            return f'table {self.name}: null_time="refuse" needs time='
        return None

    def pin(self, reading: Reading) -> Pins:
        """Pin the version the table has now."""
        log = require_log(reading.lake.table(self.name))
        if self.refuses and (count := null_times(log, str(self.time))[0]):
            raise self._null_times(count, reading)
        return {"table": self.name, "version": log.version, "id": log.metadata.get("id")}

    def stats(self, reading: Reading) -> TableStats:
        """Return statistics from the log that the plan has read."""
        log = reading.lake.table(self.name).last_log()
        assert log is None or isinstance(log, TableLog)
        zone = reading.grid.zone if reading.grid else "UTC"
        return TableStats(self, log, TimeColumn.of(log, self.time, zone) if log and self.time else None)

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Raise VersionGone if the pinned version of the table, or a file of it with rows of the slice, is gone."""
        table, version = reading.lake.table(self.name), pins["version"]
        log = delta_log(table)
        if log is None or log.metadata.get("id") != pins.get("id"):
            problem: str | None = "the table was dropped or recreated"
        else:
            problem = unreadable(self.name, table.path, version, lambda log: self._needed(reading, log))
        if problem:
            facts = {"slice": str(reading.slice), "pipeline": reading.pipeline, "table": self.name}
            raise VersionGone(version=version, problem=problem, **facts)

    def _needed(self, reading: Reading, log: TableLog) -> Files:
        """Return the files that may have rows of the slice."""
        zone = reading.grid.zone if reading.grid else "UTC"
        column = TimeColumn.of(log, self.time, zone) if self.time else None
        slice_ = reading.slice
        return files_within(log, column, slice_) if column and isinstance(slice_, Interval) else log.files

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """Return a function that reads the rows of a slice, as of the pinned version."""
        # Delta computes the state of an older version for every read of it: read it once for all slices.
        whole = table_at(session, reading.lake.table(self.name).path, pins["version"])
        if self.refuses:
            self._refuse_null_times(whole, reading, pins)
        return lambda slice_: self._latest(self._sliced(whole, replace(reading, slice=slice_)))

    @property
    def refuses(self) -> bool:
        """Whether rows without a time are refused."""
        return self.null_time == REFUSE

    def _refuse_null_times(self, whole: DataFrame, reading: Reading, pins: Pins) -> None:
        """Count the rows without a time, unless the statistics of the pinned version say that there are none."""
        log, time = reading.lake.table(self.name).last_log(), str(self.time)
        if isinstance(log, TableLog) and log.version == pins["version"] and null_times(log, time) == (0, 0):
            return
        column, _ = find_column(whole, time, self._origin(reading))
        if count := whole.where(f"{identifier(column)} IS NULL").count():
            raise self._null_times(count, reading)

    def _null_times(self, count: int, reading: Reading) -> NullTimes:
        facts = {"pipeline": reading.pipeline, "where": reading.where, "time": self.time}
        return NullTimes(table=self.name, count=_rows(count), **facts)

    def _origin(self, reading: Reading) -> FrameOrigin:
        return FrameOrigin(f"table {self.name}", reading.pipeline, reading.where)

    def _sliced(self, frame: DataFrame, reading: Reading) -> DataFrame:
        if self.time is None or reading.grid is None or not isinstance(reading.slice, Interval):
            return frame
        column, kind = find_time_column(frame, self.time, reading.grid, self._origin(reading))
        return frame.where(inside(column, kind, reading.slice))

    def _latest(self, rows: DataFrame) -> DataFrame:
        if not self.latest:
            return rows
        from oncelake.keyed.latest import latest

        return latest(rows, *self.latest)


@dataclass(frozen=True)
class TableStats:
    """What the log of a table says of the rows of intervals."""

    source: TableSource
    log: TableLog | None
    column: TimeColumn | None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.source.name

    def look_ahead(self, intervals: Iterable[Interval]) -> None:
        """Do nothing: one log tells of all intervals."""

    def estimate(self, interval: Interval) -> InputSize:
        """Return how much there is to read for an interval, by the statistics of its files."""
        return estimate(self.log, self.column, interval) if self.log and self.column else InputSize()

    def notes(self, quick: bool = False) -> list[str]:
        """Return how many rows have no time, as far as statistics say; if `quick`, not from those of a very large log."""
        time = self.source.time
        if self.log is None or time is None or time.casefold() not in map(str.casefold, self.log.schema):
            return []
        if quick and self.log.is_large:
            return [f"{self.name}: rows without {time} are counted by oncelake plan only, its log is large"]
        least, most = null_times(self.log, time)
        if most == 0:
            return []
        fails = '; null_time="refuse": a run fails as long as there are any' if self.source.refuses else ""
        if most is None and least == 0:
            unknown = f"{self.name}: how many rows have no {time} is unknown, because files have no statistics of it"
            return [f"{unknown}; such rows belong to no interval{fails}"]
        bound = "" if most == least else "at least " if most is None else "at most "
        count = _rows(least if most is None else most)
        return [f"{self.name}: {bound}{count} without {time}, which belong to no interval and are not read{fails}"]

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
        since = self.log.commits[bisect_right(self.log.commits, pinned) :]
        self.log.read_entries(since)  # all that were not read before, in parallel
        for version in since:
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


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
