"""Copies of the tables that a pipeline reads by interval: the rows of some intervals, of which a part arrives late.

The late rows are a commit of their own, with the facts of an upstream that cuts its slices by another time column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.delta.tables import require_log
from oncelake.delta.writes import table_at
from oncelake.model.intervals import Grid, Interval, parse_interval
from oncelake.proving.altered_project import tables_by_time
from oncelake.spark.columns import FrameOrigin, find_time_column
from oncelake.spark.materialize import materialize
from oncelake.spark.sql import identifier, inside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import oncelake as once
    from oncelake.declare.pipelines import Pipeline

_LATE = "00000000000000000001"
_NUMBER = "__once_number"


@dataclass(frozen=True)
class InputCopies:
    """Copies of tables, by name, on the grid of their reader.

    `late` is the interval of the late rows. `middle` is the time of a row in the middle of the first interval. `complete`:
    the pipeline reads nothing else by interval.
    """

    paths: Mapping[str, str]
    grid: Grid
    late: Interval
    middle: datetime
    complete: bool

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """Withhold the late rows: inside the block the tables have no commit of them."""
        moved: list[tuple[Path, Path]] = []
        for path in map(Path, self.paths.values()):
            aside = path / "withheld"
            aside.mkdir()
            moved += [(file, aside / file.name) for file in (path / "_delta_log").glob(f"*{_LATE}.*")]
        for file, aside in moved:
            file.rename(aside)
        try:
            yield
        finally:
            for file, aside in moved:
                aside.rename(file)
            for path in map(Path, self.paths.values()):
                (path / "withheld").rmdir()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> InputCopies:
        """Return what `copy_inputs` made."""
        grid = Grid(**document["grid"])
        middle = datetime.fromtimestamp(document["middle"] / 1_000_000, UTC)
        late = parse_interval(document["late"], grid.zone)
        return cls(document["paths"], grid, late, middle, document["complete"])


def copy_inputs(project: once.Project, name: str, spans: Sequence[Sequence[str]], folder: str) -> dict[str, Any]:
    """Copy the tables that a pipeline reads by interval, and return the document of the copies; empty if there are none."""
    pipeline = project.pipelines[name]
    if pipeline.grid is None:
        return {}
    intervals = [parse_interval("..".join(span), pipeline.grid.zone) for span in spans]
    # Of a table that is reloaded with every interval, only the rows of the newest one are there.
    late = intervals[-1] if all(pattern.kind == "overwrite" for pattern in pipeline.writes) else intervals[0]
    by_time, middles = tables_by_time(pipeline), []
    paths = {table: f"{folder}/{number}" for number, table in enumerate(by_time)}
    for table, time in by_time.items():
        copy = _Copy(project, pipeline, table, time)
        middles.append(copy.write(intervals, late, paths[table]))
    if not middles or None in middles:
        return {}
    return {
        "paths": paths,
        "grid": {"every": pipeline.grid.every, "zone": pipeline.grid.zone},
        "late": late.text,
        "middle": middles[0],
        "complete": len(paths) == sum(source.by_interval for source in pipeline.reads.values()),
    }


@dataclass(frozen=True)
class _Copy:
    """A table to copy, as a pipeline reads it."""

    project: once.Project
    pipeline: Pipeline
    table: str
    time: str

    def write(self, intervals: Sequence[Interval], late: Interval, path: str) -> int | None:
        """Write the rows of the intervals, half of those of the late one in a commit of its own.

        Return the time in the middle of the first interval's rows, in microseconds; None if there are too few rows.
        """
        grid = self.pipeline.grid
        assert grid is not None
        log = require_log(self.project.lake.table(self.table))
        frame = table_at(self.project.session(), log.path, log.version)
        origin = FrameOrigin(f"table {self.table}", self.pipeline.name, self.pipeline.where)
        column, kind = find_time_column(frame, self.time, grid, origin)
        whole = Interval(intervals[0].start, intervals[-1].end, grid.zone)
        is_late = inside(column, kind, late)
        numbered = materialize(_numbered(frame.where(is_late)))
        middle = _middle(frame.where(inside(column, kind, intervals[0])), column)
        if middle is None or numbered.limit(2).count() < 2:
            return None
        others = frame.where(f"{inside(column, kind, whole)} AND NOT ({is_late})")
        on_time = others.unionByName(numbered.where(f"{_NUMBER} % 2 = 1").drop(_NUMBER))
        on_time.write.format("delta").partitionBy(*log.partitioned_by).save(path)
        rows, facts = numbered.where(f"{_NUMBER} % 2 = 0").drop(_NUMBER), self._facts(grid.cell(whole.end), column)
        rows.write.format("delta").mode("append").option("userMetadata", facts).save(path)
        return middle

    def _facts(self, slice_: Interval, column: str) -> str:
        """Return the facts of the upstream's commit: its slice lies after all of the reader's, by another column."""
        facts = {"pipeline": "upstream", "target": self.table, "slice": slice_.text, "generation": 1}
        return json.dumps({"oncelake": {**facts, "cut_by": [f"{column}_loaded", slice_.zone]}})


def _middle(rows: DataFrame, column: str) -> int | None:
    """Return the time in the middle of some rows, in microseconds; None if there are none."""
    time = f"unix_micros(CAST({identifier(column)} AS TIMESTAMP))"
    found: int | None = rows.selectExpr(f"PERCENTILE_APPROX({time}, 0.5)").collect()[0][0]
    return found


def _numbered(frame: DataFrame) -> DataFrame:
    """Return the rows with numbers from 0."""
    from pyspark.sql import functions as F

    return frame.coalesce(1).withColumn(_NUMBER, F.monotonically_increasing_id())
