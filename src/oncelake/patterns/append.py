"""`once.append`: rows are added once per slice, because the marker is in the commit that adds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_layout, parse_target
from oncelake.delta.targets import ensure_table
from oncelake.delta.writes import Layout
from oncelake.model.contracts import Writing
from oncelake.model.intervals import Grid
from oncelake.model.pattern import PatternDefaults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(target: str, partition_by: ColumnNames = None, cluster_by: ColumnNames = None) -> Append:
    """Add the rows of each interval, once."""
    return Append(parse_target(target), parse_layout(partition_by, cluster_by))


@dataclass(frozen=True)
class Append(PatternDefaults):
    """The pattern, as it was declared."""

    target: str
    layout: Layout
    kind = "append"
    restates = False

    def problem(self, grid: Grid | None) -> str | None:
        """Without intervals every change of an input would add all rows again."""
        if grid is None:
            return f"append to {self.target} needs every=: without intervals each new version of an input would add all rows again"
        return None

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One append."""
        ensure_table(frame, writing, self.layout)
        writes.append(frame, writing.path, writing.stamp)
