"""Check the columns of a frame before it is read or written, and that its rows belong to their interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.errors import ColumnMissing, WrongTimeType
from oncelake.errors.base import did_you_mean
from oncelake.model.intervals import Grid, Interval
from oncelake.spark.sql import edges, identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

WRONG_INTERVAL = "a row does not belong to the interval it was read for"
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class FrameOrigin:
    """What a frame is, and the pipeline and source location that made it, for error messages."""

    whose: str
    pipeline: str
    where: str


def column_types(frame: DataFrame) -> dict[str, str]:
    """Return the type of each column of a frame."""
    return {field.name: field.dataType.typeName() for field in frame.schema.fields}


def find_column(frame: DataFrame, name: str, origin: FrameOrigin) -> tuple[str, str]:
    """Return a column's spelling in the frame and its type, ignoring case like Spark; raise ColumnMissing."""
    existing = column_types(frame)
    for column, kind in existing.items():
        if column.casefold() == name.casefold():
            return column, kind
    facts = {"whose": origin.whose, "pipeline": origin.pipeline, "where": origin.where}
    raise ColumnMissing(
        column=name, did_you_mean=did_you_mean(name, list(existing)), columns=", ".join(existing) or "none", **facts
    )


def fail_unless(frame: DataFrame, condition: Column, message: str = WRONG_INTERVAL) -> DataFrame:
    """Return the frame with a check that fails its computation if a row does not meet the condition."""
    from pyspark.sql import functions as F

    failure = F.raise_error(F.lit(message)).cast("boolean")
    return frame.where(F.when(condition, F.lit(True)).otherwise(failure))


def require_same_cell(
    frame: DataFrame, time_column: tuple[str, str], came_from: Column, cells: Sequence[Interval]
) -> DataFrame:
    """Return the frame with a check that fails if a row's time is in another grid cell than the time it was read for."""
    from pyspark.sql import functions as F

    name, kind = time_column
    # Resolved through the frame, because `came_from` may have the same name.
    written = frame[identifier(name)] if kind in _TIMES else frame[identifier(name)].try_cast("date")
    read = came_from.cast(kind if kind in _TIMES else "date")
    starts = F.expr(f"array({', '.join(edges(kind, cell)[0] for cell in cells)})")
    # Most rows keep their time or its date; the cell is computed only for the others.
    return fail_unless(frame, (read == written) | (_cell_number(read, starts) == _cell_number(written, starts)))


def _cell_number(time: Column, starts: Column) -> Column:
    from pyspark.sql import functions as F

    return F.size(F.filter(starts, lambda start: start <= time))


def hour_types(grid: Grid) -> tuple[str, ...]:
    """Return the types that identify an hour of the grid.

    Where clocks change, an hour of wall-clock time is repeated: a timestamp without a zone may belong to either interval.
    """
    return ("timestamp",) if grid.changes_clocks else ("timestamp", "timestamp_ntz")


def find_time_column(frame: DataFrame, name: str, grid: Grid, origin: FrameOrigin) -> tuple[str, str]:
    """Return a time column's spelling and type; raise WrongTimeType if its type cannot identify a grid interval."""
    column, kind = find_column(frame, name, origin)
    allowed = _TIMES if grid.every != "hour" else hour_types(grid)
    if kind not in allowed:
        needs = "a timestamp or a date" if grid.every != "hour" else "a timestamp"
        needs += f" with a time zone, because clocks change in {grid.zone}" if kind == "timestamp_ntz" else ""
        facts = {"whose": origin.whose, "pipeline": origin.pipeline, "where": origin.where}
        raise WrongTimeType(column=column, type=kind, every=grid.every, needs=needs, **facts)
    return column, kind


def select_fields(schema: StructType, names: Iterable[str]) -> StructType:
    """Return the fields of a schema that have one of these names, ignoring case like Spark."""
    from pyspark.sql.types import StructType

    wanted = {name.casefold() for name in names}
    return StructType([field for field in schema.fields if field.name.casefold() in wanted])
