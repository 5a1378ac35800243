"""Dedup: keep the latest row of each key, by a total order in which no two different rows are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta.layout import ColumnNames, parse_columns
from oncelake.errors import BadDeclaration
from oncelake.model.source_location import declared_at
from oncelake.spark.columns import FrameOrigin, find_column
from oncelake.spark.row_encoding import content_text, has_order
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GetColumn = Callable[[str], Column]


def latest(frame: DataFrame, keys: ColumnNames, by: ColumnNames = None) -> DataFrame:
    """Return the latest row of every key, for `once.latest` and for table sources that declare it."""
    origin = FrameOrigin("the frame", "once.latest", declared_at())
    names = [find_column(frame, name, origin)[0] for name in parse_columns("keys", keys)]
    order = [find_column(frame, name, origin)[0] for name in parse_columns("by", by)]
    if not names:
        raise BadDeclaration(where=origin.where, problem="once.latest needs keys=")
    require_sortable(frame.schema, [*names, *order], origin.where)
    rank = F.struct(*(column(name) for name in order), content_hash(frame.schema, column))
    return deduplicate(frame, names, rank)


def deduplicate(frame: DataFrame, keys: Sequence[str], rank: Column, *aggregates: Column) -> DataFrame:
    """Return the highest-ranked row of every key, with `aggregates` over all rows of that key."""
    winner = F.max_by(F.struct(*(column(name) for name in frame.columns)), rank).alias("row")
    grouped = frame.groupBy(*(column(key).alias(f"key {key}") for key in keys)).agg(winner, *aggregates)
    return grouped.drop(*(f"key {key}" for key in keys)).select("row.*", *grouped.columns[len(keys) + 1 :])


def content_hash(schema: T.StructType, get_column: GetColumn) -> Column:
    """Return a hash of a row's values, which breaks ties between rows of equal order."""
    return F.sha2(content_text(schema.fields, get_column), 256)


def column(name: str) -> Column:
    """Return a column by its exact name, which may contain any character."""
    return F.col(identifier(name))


def prefixed(names: Iterable[str], prefix: str) -> list[Column]:
    """Return columns under prefixed names, which clash with no other column in a join."""
    return [column(name).alias(f"{prefix} {name}") for name in names]


def equal_to_prefixed(names: Iterable[str], prefix: str, null_safe: bool = False) -> list[Column]:
    """Return join conditions between columns and their `prefixed` copies.

    Conditions are null-safe only where nulls are keys, because Spark joins them more slowly.
    """
    pairs = [(column(name), column(f"{prefix} {name}")) for name in names]
    return [plain.eqNullSafe(copy) if null_safe else plain == copy for plain, copy in pairs]


def require_sortable(schema: T.StructType, names: Sequence[str], where: str) -> None:
    """Raise if a key or order column has a type that Spark cannot sort by."""
    for field in schema.fields:
        if field.name in names and not has_order(field.dataType):
            problem = f"column {field.name} is a {field.dataType.simpleString()}, which has no order: it cannot be a key or an order column"
            raise BadDeclaration(where=where, problem=problem)
