"""`once.replace_interval`: the rows of an interval are replaced, in one commit, by what the function returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_row_filter, parse_target
from oncelake.delta.targets import frame_origin, ready, replace
from oncelake.delta.writes import Layout
from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Log, Writing
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker, marker
from oncelake.model.slices import Slice
from oncelake.model.source_location import declared_at
from oncelake.spark.columns import find_time_column
from oncelake.spark.sql import all_of, inside, share

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def replace_interval(
    target: str,
    time: str,
    within: Mapping[str, Any] | None = None,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> ReplaceInterval:
    """Replace the rows whose `time` lies in the interval; an empty result clears it, a stray row is refused."""
    columns = parse_columns("time", time)
    if len(columns) != 1:
        raise BadDeclaration(where=declared_at(), problem=f"replace_interval on {target} needs one column in time=")
    return ReplaceInterval(
        parse_target(target), columns[0], parse_row_filter(within), parse_layout(partition_by, cluster_by)
    )


@dataclass(frozen=True)
class ReplaceInterval:
    """The pattern, as it was declared."""

    target: str
    time: str
    within: Mapping[str, Any]
    layout: Layout
    kind = "replace_interval"
    replaces = True
    restates = True
    compacts = False

    def problem(self, grid: Grid | None) -> str | None:
        """It needs intervals."""
        return None if grid else f"replace_interval on {self.target} needs every="

    def time_column(self, frame: DataFrame, writing: Writing) -> tuple[str, str]:
        """The declared one."""
        return find_time_column(frame, self.time, writing.grid or Grid("hour"), frame_origin(writing))

    def partitioned_by_time(self, log: Log | None) -> bool:
        """If the table is partitioned by the time column."""
        columns = log.partitioned_by if log else self.layout.partition_by
        return self.time.casefold() in {name.casefold() for name in columns}

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """The interval is in the app id, so that older intervals are not taken for done."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  contract
        """Every interval has a marker of its own."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:  # noqa: ARG002  contract
        """Nothing that its name does not say."""
        return ()

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One `replaceWhere` on the interval and the share."""
        assert isinstance(writing.work.slice, Interval)
        column, kind = self.time_column(frame, writing)
        ready(frame, writing, self.layout)
        mine = inside(column, kind, writing.work.slice)
        replace(frame, writing, all_of([mine, *share(self.within)]), (column, *self.within))
