"""Looking at a frame before it is read or written: its columns, and whether a time column can carry an interval."""

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

STRAY = "a row is not of the interval it came from"
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class Look:
    """Whose frame is looked at, and where its maker is found, for the errors."""

    whose: str
    pipeline: str
    where: str


def columns(frame: DataFrame) -> dict[str, str]:
    """The columns of a frame and their types."""
    return {field.name: field.dataType.typeName() for field in frame.schema.fields}


def find_column(frame: DataFrame, name: str, look: Look) -> tuple[str, str]:
    """A column's own spelling and its type; Spark does not tell names apart by case."""
    there = columns(frame)
    for column, kind in there.items():
        if column.casefold() == name.casefold():
            return column, kind
    facts = {"whose": look.whose, "pipeline": look.pipeline, "where": look.where}
    raise ColumnMissing(
        column=name, did_you_mean=did_you_mean(name, list(there)), columns=", ".join(there) or "none", **facts
    )


def guarded(frame: DataFrame, condition: Column) -> DataFrame:
    """The frame, which fails when it is computed if a row does not meet the condition."""
    from pyspark.sql import functions as F

    refused = F.raise_error(F.lit(STRAY)).cast("boolean")
    return frame.where(F.when(condition, F.lit(True)).otherwise(refused))


def same_cell(frame: DataFrame, timed: tuple[str, str], came_from: Column, cells: Sequence[Interval]) -> DataFrame:
    """The frame, which fails if a row is of another cell than the time it came from."""
    from pyspark.sql import functions as F

    name, kind = timed
    # By the frame, not by its name: the time it came from may have the same.
    went = frame[identifier(name)] if kind in _TIMES else frame[identifier(name)].try_cast("date")
    came = came_from.cast(kind if kind in _TIMES else "date")
    starts = F.expr(f"array({', '.join(edges(kind, cell)[0] for cell in cells)})")
    # Most rows keep their time or its date; only of others the cells are counted.
    return guarded(frame, (came == went) | (_up_to(came, starts) == _up_to(went, starts)))


def _up_to(time: Column, starts: Column) -> Column:
    from pyspark.sql import functions as F

    return F.size(F.filter(starts, lambda start: start <= time))


def find_time(frame: DataFrame, name: str, grid: Grid, look: Look) -> tuple[str, str]:
    """A time column's own spelling and its type, if it can say which interval of the grid a row belongs to."""
    column, kind = find_column(frame, name, look)
    fitting = _TIMES if grid.every != "hour" else _TIMES[:2]
    if kind not in fitting:
        needs = "a timestamp or a date" if grid.every != "hour" else "a timestamp"
        facts = {"whose": look.whose, "pipeline": look.pipeline, "where": look.where}
        raise WrongTimeType(column=column, type=kind, every=grid.every, needs=needs, **facts)
    return column, kind


def select_fields(schema: StructType, names: Iterable[str]) -> StructType:
    """The columns of a schema that have one of these names; Spark does not tell names apart by case."""
    from pyspark.sql.types import StructType

    wanted = {name.casefold() for name in names}
    return StructType([field for field in schema.fields if field.name.casefold() in wanted])
