"""What of a batch would change its table: one row per key, newer than what is there, and where in the table it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta.commit_file import statistics_of
from oncelake.delta.log import TableLog
from oncelake.keyed.conform import DELETED, TableColumns, null_keys
from oncelake.keyed.latest import Of, column, content, one_per, prefixed, same
from oncelake.spark.columns import among
from oncelake.spark.sql import bound_literal, exact_literal, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIE, COPIES, WON, MATCHED = (f"__once_{name}" for name in ("tie", "copies", "won", "matched"))
# More values than these make a condition that costs more than it saves.
_LISTED = 200
# What the log spells as a cast to text does.
_ALIKE = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint")
# Up to so many rows are sent to every executor: whole ones, or of a batch only keys, order and digest.
WHOLE, _NARROW = 250_000, 1_000_000


@dataclass(frozen=True)
class Batch:
    """One row per key, computed once, and what is known of it."""

    rows: DataFrame
    columns: TableColumns
    count: int
    nulls: int
    untimed: int
    copies: int
    deletes: int
    newer: bool
    where: tuple[str, ...]
    # The size of the table's files in which its keys can be.
    bytes: int


def reduced(
    frame: DataFrame, columns: TableColumns, compared: T.StructType, log: TableLog, per: tuple[str, ...] = ()
) -> Batch:
    """The batch with one row per key, or per key and `per`.

    The user's frame is computed here, once: everything after sees the same rows.
    """
    # Not eager: the look at the rows below computes them, and a job of their own is saved.
    rows = ranked(frame, columns, compared, (*columns.keys, *per)).localCheckpoint(eager=False)
    partitions = [name for name in log.partitioned_by if name in columns.keys]
    ranges = [name for name in log.clustered_by if name in columns.keys]
    found = rows.agg(
        F.count(F.lit(1)).alias("count"),
        F.count_if(null_keys(columns)).alias("nulls"),
        F.count_if(column(columns.by[0]).isNull() if columns.by else F.lit(False)).alias("untimed"),
        F.max(COPIES).alias("copies"),
        F.count_if(column(DELETED)).alias("deletes"),
        _newer(columns, log).alias("newer"),
        *(_distinct(columns, name).alias(f"values {name}") for name in partitions),
        *(_edge(F.min, columns, name).alias(f"least {name}") for name in ranges),
        *(_edge(F.max, columns, name).alias(f"most {name}") for name in ranges),
    ).collect()[0]
    # A null is in no list and no range.
    values = {name: set(found[f"values {name}"]) for name in partitions if not found["nulls"]}
    values = {name: texts for name, texts in values.items() if 0 < len(texts) <= _LISTED}
    where = (*_listed(values, columns), *(_between(found, columns, ranges) if not found["nulls"] else ()))
    counts = {name: found[name] or 0 for name in ("count", "nulls", "untimed", "copies", "deletes")}
    held = _held(values, columns, log)
    return Batch(rows.drop(COPIES), columns, newer=bool(found["newer"]), where=where, bytes=held, **counts)


def ranked(frame: DataFrame, columns: TableColumns, compared: T.StructType, per: tuple[str, ...]) -> DataFrame:
    """The latest row of each `per`, with the digest that settled it and the number of rows it was chosen from."""
    tied = frame.withColumn(TIE, digest(compared))
    rank = F.struct(*(column(name) for name in (*columns.by, DELETED, TIE)))
    return one_per(tied, per, rank, F.count(F.lit(1)).alias(COPIES))


def digest(compared: T.StructType) -> Column:
    """What settles between rows of one order; of a delete nothing is left to compare."""
    return F.when(column(DELETED), "").otherwise(content(compared, column))


def _newer(columns: TableColumns, log: TableLog) -> Column:
    """Whether every row of the batch is newer than every row of the table, so that none needs to be compared."""
    bound = newest(log, columns.by[0]) if columns.by else None
    if not bound:
        return F.lit(bound is not None)
    first = column(columns.by[0])
    return (F.min(first) > F.expr(bound)) & (F.count_if(first.isNull()) == 0)


def newest(log: TableLog, name: str) -> str | None:
    """A literal that no row of the table exceeds in a column, by its files' statistics; "" for no rows, None: not known."""
    kind, most = log.schema.get(name, ""), None
    for add in log.files:
        statistics = statistics_of(add)
        value = _instant(statistics.get("maxValues", {}).get(name), kind)
        if value is not None:
            most = value if most is None else max(most, value)
        elif statistics.get("nullCount", {}).get(name, -1) != statistics.get("numRecords"):
            return None
    return "" if most is None else bound_literal(most, kind)


def _instant(value: Any, kind: str) -> Any:
    """A time as such: statistics spell it in the zone of whoever wrote them."""
    return datetime.fromisoformat(value) if kind == "timestamp" and value is not None else value


def wins(columns: TableColumns, s: Of, t: Of, tie: Column | None) -> Column:
    """Whether a row of the batch takes the place of the table's row of the same key.

    By the declared order; where that is equal a delete wins, then the content decides. Without a declared order the
    row that comes last wins, if it is different at all. `tie` is left out where it is known that none is equal.
    """
    if not columns.by:
        return s(DELETED) | (F.lit(True) if tie is None else s(TIE) != tie)
    mine, its = (F.struct(*(of(name) for name in columns.by)) for of in (s, t))
    settled = s(DELETED) if tie is None else s(DELETED) | (s(TIE) > tie)
    return (mine > its) | ((mine == its) & settled)


def changed(batch: Batch, table: DataFrame, compared: T.StructType, may_update: bool) -> DataFrame:
    """The rows of the batch that would change the table, in one scan of it: those that lose are left out.

    Each says whether its key is there already: a merge that has only new ones costs a fraction.
    """
    columns = batch.columns
    needed = {*columns.keys, *columns.by, *compared.fieldNames()} & set(table.columns)
    theirs = table.select(*prefixed((name for name in table.columns if name in needed), "t"))
    mine = batch.rows.select(*(column(name) for name in (*columns.keys, *columns.by, DELETED, TIE)))
    nulls = batch.nulls > 0
    coalesce = theirs.join(sent(mine, batch.count, _NARROW), same(columns.keys, "t", nulls))
    tie = content(among(compared, table.columns), lambda name: column(f"t {name}"))
    won = wins(columns, column, lambda name: column(f"t {name}"), tie)
    won = won if may_update else won & column(DELETED)
    met = coalesce.groupBy(*prefixed(columns.keys, "met")).agg(F.bool_or(won).alias(WON))
    compared_rows = batch.rows.join(met, same(columns.keys, "met", nulls), "left").where(
        F.coalesce(column(WON), ~column(DELETED))
    )
    matched = column(WON).isNotNull().alias(MATCHED)
    return compared_rows.select(*map(column, batch.rows.columns), matched).localCheckpoint(eager=False)


def sent(rows: DataFrame, count: int, most: int = WHOLE) -> DataFrame:
    """Rows to join a table with, sent to every executor if they are few.

    Spark does not know how small a checkpoint is, and would sort the whole table to join the two.
    """
    return F.broadcast(rows) if count <= most else rows


def _spelled(value: Column, kind: str) -> Column:
    """A value as text that does not depend on the session."""
    return (F.unix_micros(value) if kind == "timestamp" else value).cast("string")


def _distinct(columns: TableColumns, name: str) -> Column:
    return F.collect_set(_spelled(column(name), _kind(columns, name)))


def _edge(which: Any, columns: TableColumns, name: str) -> Column:
    return _spelled(which(column(name)), _kind(columns, name))


def _listed(values: Mapping[str, set[str]], columns: TableColumns) -> list[str]:
    """The partitions a batch has rows for, as a condition on the table; keys, so a row cannot move between them."""
    conditions = []
    for name, texts in values.items():
        literals = (exact_literal(text, _kind(columns, name)) for text in sorted(texts))
        conditions.append(f"t.{identifier(name)} IN ({', '.join(literals)})")
    return conditions


def _held(values: Mapping[str, set[str]], columns: TableColumns, log: TableLog) -> int:
    """The size of the files in these partitions, as far as the log spells names and values as we do; else of all files."""
    told = {name: texts for name, texts in values.items() if _kind(columns, name) in _ALIKE and not log.mapped}
    files = (add for add in log.files if all(add["partitionValues"].get(name) in told[name] for name in told))
    return sum(add["size"] for add in files)


def _between(found: Any, columns: TableColumns, names: Sequence[str]) -> list[str]:
    """The range of the batch's keys, as a condition on the table."""
    conditions = []
    for name in names:
        kind, least, most = _kind(columns, name), found[f"least {name}"], found[f"most {name}"]
        if least is not None and kind not in ("float", "double"):
            least, most = exact_literal(least, kind), exact_literal(most, kind)
            conditions.append(f"t.{identifier(name)} >= {least} AND t.{identifier(name)} <= {most}")
    return conditions


def _kind(columns: TableColumns, name: str) -> str:
    return columns.schema[name].dataType.simpleString()
