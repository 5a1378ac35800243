"""Looking at a frame before it is read or written: its columns, and whether a time column can carry an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.errors import ColumnMissing, WrongTimeType
from oncelake.intervals import Grid
from oncelake.settings import guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    raise ColumnMissing(column=name, guess=guess(name, list(there)), columns=", ".join(there) or "none", **facts)


def find_time(frame: DataFrame, name: str, grid: Grid, look: Look) -> tuple[str, str]:
    """A time column's own spelling and its type, if it can say which interval of the grid a row belongs to."""
    column, kind = find_column(frame, name, look)
    fitting = _TIMES if grid.every != "hour" else _TIMES[:2]
    if kind not in fitting:
        needs = "a timestamp or a date" if grid.every != "hour" else "a timestamp"
        facts = {"whose": look.whose, "pipeline": look.pipeline, "where": look.where}
        raise WrongTimeType(column=column, type=kind, every=grid.every, needs=needs, **facts)
    return column, kind
