"""`once.append`: insert the rows of each slice once. The marker is in the commit that inserts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_layout, parse_target
from oncelake.delta.targets import compute, frame_origin
from oncelake.delta.writes import Layout
from oncelake.model.arrivals import FILE_COLUMN
from oncelake.model.contracts import Writing
from oncelake.model.intervals import Grid
from oncelake.model.pattern import PatternDefaults
from oncelake.model.slices import Batch
from oncelake.spark.columns import find_column
from oncelake.spark.sql import filter_predicates

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
    takes_batches = True

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse a pipeline without intervals: each change of an input would append all rows again."""
        if grid is None:
            what = "without intervals each new version of an input would append all rows again"
            return f"append to {self.target} needs every=, or files that arrive: {what}"
        return None

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one append."""
        # What arrives may have new columns; its source decides which the frame has.
        evolve = isinstance(writing.work.slice, Batch)
        frame, _ = compute(frame, writing, self.layout, evolve)
        if writing.replaced_files:
            name, _ = find_column(frame, FILE_COLUMN, frame_origin(writing))
            (predicate,) = filter_predicates({name: list(writing.replaced_files)})
            writes.replace(frame, writing.path, predicate, writing.stamp, evolve)
            return
        writes.append(frame, writing.path, writing.stamp, evolve)
