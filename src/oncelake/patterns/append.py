"""`once.append`: rows are added once per slice, because the marker is in the commit that adds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_layout, parse_target
from oncelake.delta.targets import ready
from oncelake.delta.writes import Layout
from oncelake.model.contracts import Log, Writing
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, marker
from oncelake.model.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(target: str, partition_by: ColumnNames = None, cluster_by: ColumnNames = None) -> Append:
    """Add the rows of each interval, once."""
    return Append(parse_target(target), parse_layout(partition_by, cluster_by))


@dataclass(frozen=True)
class Append:
    """The pattern, as it was declared."""

    target: str
    layout: Layout
    kind = "append"
    replaces = False
    restates = False
    compacts = False
    within: ClassVar[Mapping[str, Any]] = {}

    def problem(self, grid: Grid | None) -> str | None:
        """Without intervals every change of an input would add all rows again."""
        if grid is None:
            return f"append to {self.target} needs every=: without intervals each new version of an input would add all rows again"
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """The slice is in the app id."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  contract
        """Every interval has a marker of its own."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:  # noqa: ARG002  contract
        """Nothing that its name does not say."""
        return ()

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One append."""
        ready(frame, writing, self.layout)
        writes.append(frame, writing.path, writing.stamp)
