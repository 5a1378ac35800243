"""`once.append`: insert the rows of each slice once. The marker is in the commit that inserts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_layout, parse_target
from oncelake.delta.targets import compute
from oncelake.delta.writes import Layout
from oncelake.model.contracts import Writing
from oncelake.model.intervals import Grid
from oncelake.model.pattern import PatternDefaults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(target: str, partition_by: ColumnNames = None, cluster_by: ColumnNames = None) -> Append:
    """Append the rows of each interval once."""
    return Append(parse_target(target), parse_layout(partition_by, cluster_by))


@dataclass(frozen=True)
class Append(PatternDefaults):
    """A declared `append`."""

    target: str
    layout: Layout
    kind = "append"
    restates = False

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse a pipeline without intervals: each change of an input would append all rows again."""
        if grid is None:
            return f"append to {self.target} needs every=: without intervals each new version of an input would append all rows again"
        return None

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one append."""
        frame, _ = compute(frame, writing, self.layout)
        writes.append(frame, writing.path, writing.stamp)
