"""One row per key: the latest, by an order in which no two different rows are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta.layout import ColumnNames, checked_columns
from oncelake.errors import BadDeclaration
from oncelake.model.source_location import declared_at
from oncelake.spark.columns import Look, find_column
from oncelake.spark.row_encoding import content_text, has_order
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Of = Callable[[str], Column]


def latest(frame: DataFrame, keys: ColumnNames, by: ColumnNames = None) -> DataFrame:
    """The latest row of every key, for `once.latest` and for tables that are read by it."""
    look = Look("the frame", "once.latest", declared_at())
    names = [find_column(frame, name, look)[0] for name in checked_columns("keys", keys)]
    order = [find_column(frame, name, look)[0] for name in checked_columns("by", by)]
    if not names:
        raise BadDeclaration(where=look.where, problem="once.latest needs keys=")
    refuse_unordered(frame.schema, [*names, *order], look.where)
    rank = F.struct(*(column(name) for name in order), content(frame.schema, column))
    return one_per(frame, names, rank)


def one_per(frame: DataFrame, keys: Sequence[str], rank: Column, *also: Column) -> DataFrame:
    """Of every key the row of the highest rank, and what else is asked for of all its rows."""
    winner = F.max_by(F.struct(*(column(name) for name in frame.columns)), rank).alias("row")
    grouped = frame.groupBy(*(column(key).alias(f"key {key}") for key in keys)).agg(winner, *also)
    return grouped.drop(*(f"key {key}" for key in keys)).select("row.*", *grouped.columns[len(keys) + 1 :])


def content(schema: T.StructType, of: Of) -> Column:
    """A digest of what a row holds, by which rows that are otherwise equal are told apart."""
    return F.sha2(content_text(schema.fields, of), 256)


def column(name: str) -> Column:
    """A column by its name, whatever signs are in it."""
    return F.col(identifier(name))


def prefixed(names: Iterable[str], mark: str) -> list[Column]:
    """Columns under names that clash with none in a join."""
    return [column(name).alias(f"{mark} {name}") for name in names]


def same(names: Iterable[str], mark: str, nulls: bool = False) -> list[Column]:
    """The conditions for columns to equal the marked ones; only where nulls are equal too does Spark join them slowly."""
    pairs = [(column(name), column(f"{mark} {name}")) for name in names]
    return [mine.eqNullSafe(its) if nulls else mine == its for mine, its in pairs]


def refuse_unordered(schema: T.StructType, names: Sequence[str], where: str) -> None:
    """Refuse keys and orders of a type that Spark cannot sort by."""
    for field in schema.fields:
        if field.name in names and not has_order(field.dataType):
            problem = f"column {field.name} is a {field.dataType.simpleString()}, which has no order: it is no key, and rows are not ranked by it"
            raise BadDeclaration(where=where, problem=problem)
