"""Change data as others wrap it, unwrapped: the rows, and which of them are deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.keyed.conform import DELETED, wrong_columns
from oncelake.model.contracts import Writing
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def unwrapped(frame: DataFrame, cdc: str | None, by: Sequence[str], writing: Writing) -> DataFrame:
    """The rows of a change feed; columns of the envelope stay only where rows are ordered by them."""
    if cdc == "debezium":
        return _debezium(frame, by, writing)
    return _delta(frame, by, writing) if cdc == "delta" else frame


def _debezium(frame: DataFrame, by: Sequence[str], writing: Writing) -> DataFrame:
    if "payload" in frame.columns:
        frame = frame.select("payload.*")
    _need(frame, ("before", "after", "op"), "Debezium's envelope", writing)
    after = frame.schema["after"].dataType
    if not isinstance(after, T.StructType):
        raise wrong_columns(writing, f"column after is {after.simpleString()}, Debezium's envelope has a struct there")
    # A message without an op is Kafka's own tombstone, "m" is a message beside the data; neither is a row.
    rows = frame.where("op IN ('c', 'r', 'u', 'd', 't')")
    row = F.when(F.col("op") == "d", F.col("before")).otherwise(F.col("after"))
    fields = [row.getField(name).alias(name) for name in after.fieldNames()]
    kept = [_envelope(frame, name) for name in by if name not in after.fieldNames()]
    truncated = F.raise_error(F.lit("a truncate (op 't') cannot be merged: restate, or reload the table"))
    deleted = F.when(F.col("op") == "t", truncated.cast("boolean")).otherwise(F.col("op") == "d")
    return rows.select(*fields, *(column for column in kept if column is not None), deleted.alias(DELETED))


def _envelope(frame: DataFrame, name: str) -> Column | None:
    """A column of the envelope, or of its `source`, by which the rows are ordered."""
    if name in frame.columns:
        return F.col(identifier(name))
    source = frame.schema["source"].dataType if "source" in frame.columns else None
    if isinstance(source, T.StructType) and name in source.fieldNames():
        return F.col("source").getField(name).alias(name)
    return None


def _delta(frame: DataFrame, by: Sequence[str], writing: Writing) -> DataFrame:
    _need(frame, ("_change_type",), "Delta's change feed", writing)
    own = ("_change_type", "_commit_version", "_commit_timestamp")
    rows = frame.where("_change_type <> 'update_preimage'")
    dropped = [name for name in own if name not in by]
    return rows.withColumn(DELETED, F.col("_change_type") == "delete").drop(*dropped)


def _need(frame: DataFrame, names: Sequence[str], what: str, writing: Writing) -> None:
    if lacking := [name for name in names if name not in frame.columns]:
        raise wrong_columns(writing, f"{what} has a column {', '.join(lacking)}, the frame has not")
