"""`once.table`: a Delta table of the lake, whole or by interval, at a pinned version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.caller import declared_at
from oncelake.contracts import Pins, Reading
from oncelake.errors import BadDeclaration
from oncelake.identity import table_name_problem
from oncelake.intervals import Grid, Interval
from oncelake.lake.frames import Look, find_time
from oncelake.lake.layout import Columns, checked_columns
from oncelake.lake.literals import inside
from oncelake.lake.log import read_log
from oncelake.lake.verbs import table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(name: str, time: str | None = None, latest: Mapping[str, Columns] | None = None) -> TableSource:
    """Read a table: its rows of the interval by the column `time`, or all of it where no `time` is given.

    `latest={"keys": …, "by": …}` reads the latest row of every key only, as `once.latest` would choose it.
    """
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    if latest is not None and (not set(latest) <= {"keys", "by"} or not checked_columns("keys", latest.get("keys"))):
        problem = f'latest= is like {{"keys": ["id"], "by": "updated_at"}}, not {latest!r}'
        raise BadDeclaration(where=declared_at(), problem=problem)
    chosen = (
        () if latest is None else (checked_columns("keys", latest["keys"]), checked_columns("by", latest.get("by")))
    )
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
        """The version the table has now."""
        log = read_log(self.name, reading.place.table(self.name))
        return {"table": self.name, "version": log.version, "id": log.metadata.get("id")}

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> DataFrame:
        """The rows of the slice, as of the pinned version."""
        rows = self._sliced(table_at(session, reading.place.table(self.name), pins["version"]), reading)
        if not self.latest:
            return rows
        from oncelake.keyed.latest import latest

        return latest(rows, *self.latest)

    def _sliced(self, frame: DataFrame, reading: Reading) -> DataFrame:
        if self.time is None or reading.grid is None or not isinstance(reading.slice, Interval):
            return frame
        look = Look(f"table {self.name}", reading.pipeline, reading.where)
        column, kind = find_time(frame, self.time, reading.grid, look)
        return frame.where(inside(column, kind, reading.slice))
