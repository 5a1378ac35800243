"""`once.overwrite`: truncate and reload in one commit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_layout, parse_target
from oncelake.delta.targets import compute
from oncelake.delta.writes import Layout
from oncelake.errors import EmptyOverwrite
from oncelake.model.contracts import Log, Writing
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid, instant_text
from oncelake.model.markers import Marker, newest_reload, reload_generation, reload_marker
from oncelake.model.pattern import PatternDefaults
from oncelake.model.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def overwrite(
    target: str, allow_empty: bool = False, partition_by: ColumnNames = None, cluster_by: ColumnNames = None
) -> Overwrite:
    """Replace the whole table. Replacing rows with an empty result needs `allow_empty=True`."""
    return Overwrite(parse_target(target), allow_empty, parse_layout(partition_by, cluster_by))


@dataclass(frozen=True)
class Overwrite(PatternDefaults):
    """A declared `overwrite`."""

    target: str
    allow_empty: bool
    layout: Layout
    kind = "overwrite"
    replaces = True

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """Return a marker with one app id for all intervals: an older reload is done once a newer one is committed."""
        return reload_marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:
        """Return all intervals up to the newest reload; earlier ones have generation 0, because their rows were replaced."""
        name = self.marker(pipeline, grid.cell(start), 1).app_id
        recorded = log.recorded(name)
        newest = None if recorded is None else newest_reload(recorded)
        if recorded is None or newest is None or newest < start:
            return []
        first, last, end = map(instant_text, (start, newest, grid.after(newest)))
        earlier = [Coverage(first, last, 0, name)] if first < last else []
        return [*earlier, Coverage(last, end, reload_generation(recorded), name)]

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one overwrite of the whole table; refuse an empty result unless it is allowed."""
        frame, log = compute(frame, writing, self.layout)
        if not self.allow_empty and log.rows() != 0 and frame.isEmpty():
            raise EmptyOverwrite(target=self.target, where=writing.where, pipeline=writing.work.pipeline)
        writes.overwrite(frame, writing.path, writing.stamp)
