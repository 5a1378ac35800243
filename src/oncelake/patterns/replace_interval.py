"""`once.replace_interval`: replace the rows of an interval with the result of the function, in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_row_filter, parse_target
from oncelake.delta.targets import compute, frame_origin, replace
from oncelake.delta.writes import Layout
from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Log, Writing
from oncelake.model.intervals import Grid, Interval
from oncelake.model.pattern import PatternDefaults, spell_row_filter
from oncelake.model.source_location import declared_at
from oncelake.spark.columns import find_time_column
from oncelake.spark.sql import all_of, filter_predicates, inside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def replace_interval(
    target: str,
    time: str,
    within: Mapping[str, Any] | None = None,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> ReplaceInterval:
    """Replace the rows whose `time` lies in the interval. An empty result clears it; a row outside it is refused."""
    columns = parse_columns("time", time)
    if len(columns) != 1:
        raise BadDeclaration(where=declared_at(), problem=f"replace_interval on {target} needs one column in time=")
    return ReplaceInterval(
        parse_target(target), columns[0], parse_row_filter(within), parse_layout(partition_by, cluster_by)
    )


@dataclass(frozen=True)
class ReplaceInterval(PatternDefaults):
    """A declared `replace_interval`."""

    target: str
    time: str
    row_filter: Mapping[str, Any]
    layout: Layout
    kind = "replace_interval"
    replaces = True

    @property
    def within(self) -> Mapping[str, Any]:
        """The declared row filter."""
        return self.row_filter

    @property
    def replaced_rows(self) -> Mapping[str, Any]:
        """The time column and the row filter."""
        return {"time": self.time, "within": spell_row_filter(self.row_filter)}

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse a pipeline without intervals."""
        return None if grid else f"replace_interval on {self.target} needs every="

    def time_column(self, frame: DataFrame, writing: Writing) -> tuple[str, str]:
        """Return the declared time column and its type."""
        return find_time_column(frame, self.time, writing.grid or Grid("hour"), frame_origin(writing))

    def cut_column(self, log: Log | None) -> str | None:  # noqa: ARG002  the contract
        """Return the declared time column."""
        return self.time

    def partitioned_by_time(self, log: Log | None) -> bool:
        """Return whether the table is partitioned by the time column."""
        columns = log.partitioned_by if log else self.layout.partition_by
        return self.time.casefold() in {name.casefold() for name in columns}

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one `replaceWhere` on the interval and the row filter."""
        slice_ = writing.work.slice
        assert isinstance(slice_, Interval)
        column, kind = self.time_column(frame, writing)
        frame, _ = compute(frame, writing, self.layout)
        predicate = all_of([inside(column, kind, slice_), *filter_predicates(self.row_filter)])
        replace(frame, writing.with_facts(cut_by=[column, slice_.zone]), predicate, (column, *self.row_filter))
