"""Change data capture: turn Debezium envelopes and Delta change feeds into rows and a delete flag."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from oncelake.keyed.conform import DELETED, require_key_columns, wrong_columns
from oncelake.keyed.latest import column
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPE, _VERSION, _TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_NET, _NEWEST = "__once_net", "__once_newest"


def unwrap(frame: DataFrame, spec: Spec, writing: Writing) -> DataFrame:
    """Return the rows of a change feed with a delete flag. Envelope columns stay only if rows are ordered by them."""
    if spec.cdc == "debezium":
        return _debezium(frame, spec.by, writing)
    return _delta(frame, spec, writing) if spec.cdc == "delta" else frame


def _debezium(frame: DataFrame, by: Sequence[str], writing: Writing) -> DataFrame:
    if "payload" in frame.columns:
        frame = frame.select("payload.*")
    _require(frame, ("before", "after", "op"), "Debezium's envelope", writing)
    after = frame.schema["after"].dataType
    if not isinstance(after, T.StructType):
        raise wrong_columns(writing, f"column after is {after.simpleString()}, but a struct in Debezium's envelope")
    # A message without an op is a Kafka tombstone, "m" is a logical decoding message; neither is a row.
    rows = frame.where("op IN ('c', 'r', 'u', 'd', 't')")
    row = F.when(F.col("op") == "d", F.col("before")).otherwise(F.col("after"))
    fields = [row.getField(name).alias(name) for name in after.fieldNames()]
    order = [_envelope_column(frame, name) for name in by if name not in after.fieldNames()]
    truncate = F.raise_error(F.lit("a truncate (op 't') cannot be merged: restate, or reload the table"))
    deleted = F.when(F.col("op") == "t", truncate.cast("boolean")).otherwise(F.col("op") == "d")
    return rows.select(*fields, *(found for found in order if found is not None), deleted.alias(DELETED))


def _envelope_column(frame: DataFrame, name: str) -> Column | None:
    """Return a column of the envelope, or of its `source` struct, by which the rows are ordered."""
    if name in frame.columns:
        return column(name)
    source = frame.schema["source"].dataType if "source" in frame.columns else None
    if isinstance(source, T.StructType) and name in source.fieldNames():
        return F.col("source").getField(name).alias(name)
    return None


def _delta(frame: DataFrame, spec: Spec, writing: Writing) -> DataFrame:
    """Reduce the change feed to the net change per key of each version; of equal order, the newest version counts.

    A version that rewrites a row has a delete and an insert of its key: the insert is the net change. The pre-image of an
    update counts as a delete, because the update may have changed the key.
    """
    _require(frame, (_TYPE, _VERSION), "Delta's change feed", writing)
    require_key_columns(frame, spec, writing)
    keys = [column(key) for key in spec.keys]
    keyless = reduce(or_, (key.isNull() for key in keys))
    in_version = Window.partitionBy(*keys, column(_VERSION))
    in_order = Window.partitionBy(*keys, *(column(name) for name in spec.by))
    # Partition by key once: neither window, nor the later reduction to one row per key, needs another shuffle.
    rows = frame.repartition(*keys).withColumn(DELETED, column(_TYPE).isin("delete", "update_preimage"))
    # The minimum is a delete only if every change of the key is one. Rows without a key are left for the quarantine.
    rows = rows.withColumn(_NET, F.min(DELETED).over(in_version)).where(keyless | (column(DELETED) == column(_NET)))
    rows = rows.withColumn(_NEWEST, F.max(_VERSION).over(in_order)).where(
        keyless | (column(_VERSION) == column(_NEWEST))
    )
    return rows.drop(_NET, _NEWEST, *(name for name in (_TYPE, _VERSION, _TIMESTAMP) if name not in spec.by))


def _require(frame: DataFrame, names: Sequence[str], what: str, writing: Writing) -> None:
    if lacking := [name for name in names if name not in frame.columns]:
        raise wrong_columns(writing, f"the frame has no column {', '.join(lacking)}, which {what} has")
