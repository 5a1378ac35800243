"""Reduce a batch to the rows that change its table: deduplicate to one row per key, and drop rows that are not newer.

The same pass collects the statistics that prune the merge to the table's partitions and files in which keys can lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta.log import TableLog
from oncelake.keyed.conform import DELETED, TableColumns, has_null_key
from oncelake.keyed.latest import GetColumn, column, content_hash, deduplicate, equal_to_prefixed, prefixed
from oncelake.spark.columns import select_fields
from oncelake.spark.materialize import materialize
from oncelake.spark.sql import bound_literal, exact_literal, in_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIE, COPIES, WON, MATCHED, ARRIVED = (f"__once_{name}" for name in ("tie", "copies", "won", "matched", "arrived"))
# A condition that lists more partition values than this costs more than it saves.
_MAX_LISTED = 200
# Types whose partition values the log spells like a cast to string does.
_SAME_SPELLING = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint")
# Up to this many rows are broadcast: of whole rows, or of rows with only keys, order and hash.
BROADCAST_ROWS, _BROADCAST_NARROW_ROWS = 250_000, 1_000_000


@dataclass(frozen=True)
class BatchStats:
    """Statistics of a deduplicated batch, from one aggregate over its rows."""

    count: int
    null_keys: int
    # Rows whose first order column is null.
    null_times: int
    # The highest number of rows that one key had before deduplication.
    copies: int
    deletes: int
    # Whether every row is newer than every row of the table.
    all_newer: bool
    # By partition column that is a key: its distinct values, as text.
    partition_values: Mapping[str, set[str]]
    # By clustering column that is a key: its minimum and maximum, as text.
    ranges: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True)
class ReducedBatch:
    """A batch with one row per key, computed once, and the part of the table in which its keys can lie."""

    rows: DataFrame
    columns: TableColumns
    stats: BatchStats
    # Conditions on the table that is merged into.
    where: tuple[str, ...]
    # The size of the table's files in which the keys can lie.
    bytes: int


def reduce_batch(
    frame: DataFrame, columns: TableColumns, compared: T.StructType, log: TableLog, per: tuple[str, ...] = ()
) -> ReducedBatch:
    """Deduplicate the batch to one row per key, or one row per key and `per`.

    The user's frame is computed here, once: every later step sees the same rows. A column ARRIVED of the frame orders the
    rows of a key before anything else.
    """
    # Lazy: the aggregate below computes the checkpoint, which saves a job.
    rows = materialize(rank_rows(frame, columns, compared, (*columns.keys, *per)), eager=False)
    stats = _collect_stats(rows, columns, log)
    # A null key is in no list and no range.
    values = {} if stats.null_keys else stats.partition_values
    values = {name: texts for name, texts in values.items() if 0 < len(texts) <= _MAX_LISTED}
    ranges = {} if stats.null_keys else stats.ranges
    where = (*_in_partitions(values, columns), *_in_ranges(ranges, columns))
    return ReducedBatch(rows.drop(COPIES, ARRIVED), columns, stats, where, _matching_bytes(values, columns, log))


def _collect_stats(rows: DataFrame, columns: TableColumns, log: TableLog) -> BatchStats:
    partitions = [name for name in log.partitioned_by if name in columns.keys]
    clusters = [name for name in log.clustered_by if name in columns.keys]
    found = rows.agg(
        F.count(F.lit(1)).alias("count"),
        F.count_if(has_null_key(columns)).alias("null_keys"),
        F.count_if(column(columns.by[0]).isNull() if columns.by else F.lit(False)).alias("null_times"),
        F.max(COPIES).alias("copies"),
        F.count_if(column(DELETED)).alias("deletes"),
        _all_newer(columns, log).alias("all_newer"),
        *(_distinct_texts(columns, name).alias(f"values {name}") for name in partitions),
        *(_edge_text(F.min, columns, name).alias(f"min {name}") for name in clusters),
        *(_edge_text(F.max, columns, name).alias(f"max {name}") for name in clusters),
    ).collect()[0]
    return BatchStats(
        count=found["count"] or 0,
        null_keys=found["null_keys"] or 0,
        null_times=found["null_times"] or 0,
        copies=found["copies"] or 0,
        deletes=found["deletes"] or 0,
        all_newer=bool(found["all_newer"]),
        partition_values={name: set(found[f"values {name}"]) for name in partitions},
        ranges={name: (found[f"min {name}"], found[f"max {name}"]) for name in clusters},
    )


def rank_rows(frame: DataFrame, columns: TableColumns, compared: T.StructType, per: tuple[str, ...]) -> DataFrame:
    """Return the latest row of each `per`, with its tie-breaking hash and the number of rows it was chosen from."""
    tied = frame.withColumn(TIE, tie_hash(compared))
    first = (ARRIVED,) if ARRIVED in frame.columns else columns.by
    rank = F.struct(*(column(name) for name in (*first, DELETED, TIE)))
    return deduplicate(tied, per, rank, F.count(F.lit(1)).alias(COPIES))


def tie_hash(compared: T.StructType) -> Column:
    """Return the hash that breaks ties between rows of equal order. A delete has no content to compare."""
    return F.when(column(DELETED), "").otherwise(content_hash(compared, column))


def _all_newer(columns: TableColumns, log: TableLog) -> Column:
    """Return whether every row of the batch is newer than every row of the table, so that none needs comparing."""
    bound = newest_in_table(log, columns.by[0]) if columns.by else None
    if not bound:
        return F.lit(bound is not None)
    first = column(columns.by[0])
    return (F.min(first) > F.expr(bound)) & (F.count_if(first.isNull()) == 0)


def newest_in_table(log: TableLog, name: str) -> str | None:
    """Return a literal that no row of the table exceeds in a column, from the file statistics.

    Return "" if the table has no value in that column, and None if the statistics do not say.
    """
    kind = log.schema.get(name, "")
    known, most = log.files.greatest(name, kind)
    if not known:
        return None
    return "" if most is None else bound_literal(most, kind)


def wins(columns: TableColumns, batch: GetColumn, table: GetColumn, tie: Column | None) -> Column:
    """Return the condition under which a batch row replaces the table's row of the same key.

    The declared order decides. Where it is equal, a delete wins, then the content hash decides. Without a declared
    order the last batch wins if its row differs. `tie` is None where no two rows can be equal.
    """
    if not columns.by:
        return batch(DELETED) | (F.lit(True) if tie is None else batch(TIE) != tie)
    batch_order, table_order = (F.struct(*(get(name) for name in columns.by)) for get in (batch, table))
    breaks_tie = batch(DELETED) if tie is None else batch(DELETED) | (batch(TIE) > tie)
    return (batch_order > table_order) | ((batch_order == table_order) & breaks_tie)


def select_changes(batch: ReducedBatch, table: DataFrame, compared: T.StructType, may_update: bool) -> DataFrame:
    """Return the rows of the batch that would change the table, in one scan of it. Rows that lose are dropped.

    Each row has a flag that says whether its key exists already: a merge of new keys only costs a fraction.
    """
    columns = batch.columns
    needed = {*columns.keys, *columns.by, *compared.fieldNames()} & set(table.columns)
    table_rows = table.select(*prefixed((name for name in table.columns if name in needed), "t"))
    batch_rows = batch.rows.select(*(column(name) for name in (*columns.keys, *columns.by, DELETED, TIE)))
    batch_rows = broadcast_if_small(batch_rows, batch.stats.count, _BROADCAST_NARROW_ROWS)
    null_safe = batch.stats.null_keys > 0
    joined = table_rows.join(batch_rows, equal_to_prefixed(columns.keys, "t", null_safe))
    tie = content_hash(select_fields(compared, table.columns), lambda name: column(f"t {name}"))
    won = wins(columns, column, lambda name: column(f"t {name}"), tie)
    won = won if may_update else won & column(DELETED)
    existing = joined.groupBy(*prefixed(columns.keys, "met")).agg(F.bool_or(won).alias(WON))
    changes = batch.rows.join(existing, equal_to_prefixed(columns.keys, "met", null_safe), "left")
    changes = changes.where(F.coalesce(column(WON), ~column(DELETED)))
    matched = column(WON).isNotNull().alias(MATCHED)
    return materialize(changes.select(*map(column, batch.rows.columns), matched), eager=False)


def broadcast_if_small(rows: DataFrame, count: int, limit: int = BROADCAST_ROWS) -> DataFrame:
    """Broadcast rows that are joined with a table if there are at most `limit`.

    Spark does not know the size of a checkpoint, and would sort the whole table for the join.
    """
    return F.broadcast(rows) if count <= limit else rows


def _as_text(value: Column, kind: str) -> Column:
    """Return a value as text that does not depend on the session."""
    return (F.unix_micros(value) if kind == "timestamp" else value).cast("string")


def _distinct_texts(columns: TableColumns, name: str) -> Column:
    return F.collect_set(_as_text(column(name), _kind(columns, name)))


def _edge_text(edge: Any, columns: TableColumns, name: str) -> Column:
    return _as_text(edge(column(name)), _kind(columns, name))


def _in_partitions(values: Mapping[str, set[str]], columns: TableColumns) -> list[str]:
    """Return conditions on the table for the batch's partitions. They are keys, so a row cannot change partition."""
    conditions = []
    for name, texts in values.items():
        literals = (exact_literal(text, _kind(columns, name)) for text in sorted(texts))
        conditions.append(f"{in_target(name)} IN ({', '.join(literals)})")
    return conditions


def _matching_bytes(values: Mapping[str, set[str]], columns: TableColumns, log: TableLog) -> int:
    """Return the size of the files in these partitions. Columns whose values the log spells differently do not prune."""
    usable = {n: texts for n, texts in values.items() if _kind(columns, n) in _SAME_SPELLING and not log.mapped}
    return log.files.size_in(usable)


def _in_ranges(ranges: Mapping[str, tuple[str | None, str | None]], columns: TableColumns) -> list[str]:
    """Return conditions on the table for the ranges of the batch's keys."""
    conditions = []
    for name, (least, most) in ranges.items():
        kind = _kind(columns, name)
        if least is not None and most is not None and kind not in ("float", "double"):
            lower, upper = exact_literal(least, kind), exact_literal(most, kind)
            conditions.append(f"{in_target(name)} >= {lower} AND {in_target(name)} <= {upper}")
    return conditions


def _kind(columns: TableColumns, name: str) -> str:
    return columns.schema[name].dataType.simpleString()
