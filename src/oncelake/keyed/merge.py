"""Merging a batch into a table with keys: one commit of what changes, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta import writes
from oncelake.delta.conflicts import TableChanged
from oncelake.delta.log import TableLog, find_log
from oncelake.delta.prepared import PreparedRows
from oncelake.delta.targets import look_at, ready
from oncelake.delta.writes import Clauses, Layout
from oncelake.errors import CannotRestate, NullKeys, RepeatedKeys
from oncelake.keyed.cdc import unwrapped
from oncelake.keyed.conform import (
    DELETED,
    TableColumns,
    fitted,
    flagged,
    misfit,
    null_keys,
    refuse,
    refuse_keyless,
    set_aside,
    table_columns,
)
from oncelake.keyed.latest import column, content, prefixed, same
from oncelake.keyed.reduce import MATCHED, WHOLE, Batch, changed, reduced, sent, wins
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.model.markers import restate_app_id
from oncelake.spark.columns import among, find_column
from oncelake.spark.sql import all_of, identifier
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Own = Callable[["DataFrame"], Mapping[str, "Column"]]

_EXACT = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType)


@dataclass(frozen=True)
class Merging:
    """A batch on its way into a table."""

    frame: DataFrame
    columns: TableColumns
    spec: Spec
    log: TableLog
    writing: Writing

    @classmethod
    def begun(cls, frame: DataFrame, spec: Spec, layout: Layout, writing: Writing, own: Own = lambda _: {}) -> Merging:
        """Unwrap the frame, get the table ready, and fit the one to the other; rows without a key are set aside if asked.

        A table may have columns of its `own`, which no batch brings; they are made from the frame only for their types.
        """
        rows = flagged(unwrapped(frame, spec.cdc, spec.by, writing), spec, writing)
        refuse_keyless(rows, spec, writing)
        extra = own(rows)
        log = ready(rows.drop(DELETED).withColumns(dict(extra)), writing, layout, evolve=spec.evolve)
        columns = table_columns(rows, log, spec, extra, writing)
        return cls(fitted(rows, columns, writing), columns, spec, log, writing).keyed()

    @property
    def session(self) -> SparkSession:
        """The session of the frame."""
        return self.frame.sparkSession

    def memory(self, age: timedelta | None = None) -> PreparedRows:
        """What is remembered beside the table, for ever or up to an age."""
        return PreparedRows(self.session, self.writing, self.log, age)

    def upsert(self, update: bool | tuple[str, ...], insert: bool, remembers: timedelta | None) -> None:
        """Put the latest row of every key in the place of what is there, if it is newer and different."""
        compared = self._compared(update)
        batch = self.reduced(compared)
        if self.spec.deletes and self.columns.by:
            batch = _recalled(batch, self.memory(remembers))
        sure = batch.newer and self.alone
        rows = batch.rows if sure else changed(batch, self.table(batch), compared, bool(update))
        there = among(compared, self.log.schema)
        won = wins(self.columns, mine, theirs, None if sure else content(there, theirs))
        clauses = Clauses(
            on=self.same_key(batch),
            delete=mine(DELETED) & won if self.spec.deletes else None,
            update=won,
            sets=taken(compared.fieldNames()) if update else None,
            insert=~mine(DELETED),
            values=taken(self.columns.names) if insert else None,
            evolve=self.spec.evolve,
        )
        self.merge(rows, clauses, batch, batch.count if sure else None)

    def add(self, summed: Iterable[str]) -> None:
        """Add to the rows that are there. Only the marker in the same commit keeps it from being added twice."""
        work = self.writing.work
        # A later generation is added only in the place of an earlier one that a restore took back.
        undone = self.log.recorded(restate_app_id(work.pipeline, work.target, work.slice)) or 1
        if work.generation > undone:
            raise CannotRestate(target=work.target, pipeline=work.pipeline, slice=str(work.slice))
        names = {name.casefold() for name in summed}
        sums = among(self.columns.schema, names).fields
        others = set(self.columns.names) - {field.name for field in sums} - set(self.columns.keys)
        if others or len(sums) != len(names):
            problem = ", ".join(sorted(others or names))
            raise misfit(self.writing, f"{problem}: adding knows keys and the columns in add=, and nothing else")
        for field in sums:
            if not isinstance(field.dataType, _EXACT):
                kind = f"{field.dataType.simpleString()}, whose sum depends on the order: cast it to a decimal"
                raise misfit(self.writing, f"column {field.name} is {kind}")
        batch = self.reduced(self.columns.schema)
        plus = {f.name: F.coalesce(theirs(f.name) + mine(f.name), theirs(f.name), mine(f.name)) for f in sums}
        sets = {identifier(f.name): plus[f.name].cast(f.dataType) for f in sums}
        clauses = Clauses(self.same_key(batch), sets=sets, values=taken(self.columns.names))
        self.merge(batch.rows, clauses, batch, batch.count)

    def keyed(self) -> Merging:
        """Without the rows that have no key, if those are to be set aside."""
        if self.spec.nulls != "quarantine":
            return self
        rows, lacking = self.frame.localCheckpoint(), null_keys(self.columns)
        writing = set_aside(rows.where(lacking), "a key is null", self.writing)
        return replace(self, frame=rows.where(~lacking), writing=writing)

    def reduced(self, compared: T.StructType, per: tuple[str, ...] = ()) -> Batch:
        """The batch with one row per key; rows without a key, or of one group, are refused."""
        batch = reduced(self.frame, self.columns, compared, self.log, per)
        if batch.nulls and self.spec.nulls != "key":
            refuse(NullKeys, self.frame.where(null_keys(self.columns)).drop(DELETED), self.columns, self.writing)
        if batch.copies > 1 and self.spec.nulls == "key":
            groups = self.frame.groupBy(*(column(key) for key in self.columns.keys)).count()
            refuse(RepeatedKeys, groups.where("count > 1"), self.columns, self.writing)
        return batch

    def table(self, batch: Batch | None = None) -> DataFrame:
        """The target, or the part of it in which keys of a batch can be.

        Not as of a version, whose state Delta would compute anew: that it did not change is checked later.
        """
        table = self.session.read.format("delta").load(self.writing.path)
        return table.alias("t").where(all_of(list(batch.where))) if batch and batch.where else table

    def same_key(self, batch: Batch, *also: str) -> str:
        """The condition for a row of the batch and one of the table to have one key, and where such rows can be."""
        sign = "<=>" if self.spec.nulls == "key" else "="
        names = (*self.columns.keys, *also)
        return all_of([*(f"t.{identifier(name)} {sign} s.{identifier(name)}" for name in names), *batch.where])

    @property
    def alone(self) -> bool:
        """Whether the lock keeps other runners out; where there is none, a row may come in between."""
        return is_local(self.writing.path)

    def merge(self, rows: DataFrame, clauses: Clauses, batch: Batch, count: int | None = None) -> None:
        """One commit, if the table is still what it was. New keys alone cost only an insert, old ones alone no outer join.

        Rows that were compared with the table say which they are. Of others, given their `count`, each may be new or old.
        """
        log = find_log(self.writing.work.target, self.writing.path)
        if log is None or log.version != self.log.version:
            raise TableChanged(f"{self.writing.work.target} got a new version meanwhile")
        old, new = bool(self.log.files), True
        if count is None:
            count, matched = rows.agg(F.count(F.lit(1)), F.count_if(column(MATCHED))).collect()[0]
            old, new = matched > 0, matched < count or not self.alone
        clauses = clauses if old else replace(clauses, delete=None, sets=None)
        clauses = clauses if new else replace(clauses, values=None)
        if not count or not any((clauses.sets, clauses.values, clauses.delete is not None)):
            # Nothing changes: the commit carries the marker alone, and costs no look at the table.
            writes.append(self.table().limit(0), self.writing.path, self.writing.stamp)
            return
        quick = batch.bytes < writes.SMALL and count <= WHOLE
        writes.merge(sent(rows, count), self.writing.path, clauses, self.writing.stamp, quick)

    def _compared(self, update: bool | tuple[str, ...]) -> T.StructType:
        """The columns that an update sets, and whose content decides where the order is equal."""
        if isinstance(update, bool):
            return self.columns.schema
        for name in update:
            find_column(self.frame, name, look_at(self.writing))
        return among(self.columns.schema, (*update, *self.columns.by))


def _recalled(batch: Batch, memory: PreparedRows) -> Batch:
    """The batch without rows that are older than a delete of their key; its own deletes are remembered, if they are news."""
    columns = batch.columns
    deletes = batch.rows.where(DELETED).select(*(column(name) for name in (*columns.keys, *columns.by, DELETED)))
    known = memory.rows()
    if known is not None:
        known = known.where(DELETED).select(*prefixed((*columns.keys, *columns.by), "d"))
        ours, its = (F.struct(*(column(f"{of}{name}") for name in columns.by)) for of in ("", "d "))
        since = [*same(columns.keys, "d"), ours <= its]
        deletes = deletes.join(known, since, "left_anti")
        batch = replace(batch, rows=batch.rows.join(known, [*since, ~column(DELETED)], "left_anti").localCheckpoint())
    if batch.deletes:
        memory.prepare(deletes)
    return batch


def mine(name: str) -> Column:
    """A column of the batch, in a merge."""
    return F.col(f"s.{identifier(name)}")


def theirs(name: str) -> Column:
    """A column of the table, in a merge."""
    return F.col(f"t.{identifier(name)}")


def taken(names: Iterable[str]) -> dict[str, Column]:
    """Columns set to what the batch has."""
    return {identifier(name): mine(name) for name in names}
