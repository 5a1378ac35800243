"""Upsert a batch into a keyed table: one MERGE commit that contains only the rows that change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta import writes
from oncelake.delta.conflicts import TableChanged
from oncelake.delta.log import TableLog
from oncelake.delta.prepared import PreparedRows
from oncelake.delta.targets import ensure_table, frame_origin, known_log, verify_inputs
from oncelake.delta.writes import Clauses, Layout
from oncelake.errors import CannotRestate, NullKeys, RepeatedKeys
from oncelake.keyed.cdc import unwrap
from oncelake.keyed.conform import (
    DELETED,
    TableColumns,
    fit_to_table,
    flag_deletes,
    has_null_key,
    quarantine,
    refuse,
    require_key_columns,
    resolve_columns,
    wrong_columns,
)
from oncelake.keyed.latest import column, content_hash, deduplicate, equal_to_prefixed, prefixed
from oncelake.keyed.reduce import (
    ARRIVED,
    BROADCAST_ROWS,
    COPIES,
    MATCHED,
    ReducedBatch,
    broadcast_if_small,
    reduce_batch,
    select_changes,
    wins,
)
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.model.markers import restate_app_id
from oncelake.model.slices import Batch
from oncelake.spark.columns import find_column, select_fields
from oncelake.spark.materialize import materialize
from oncelake.spark.sql import TARGET, all_of, identifier, in_target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GenerateColumns = Callable[["DataFrame"], Mapping[str, "Column"]]

_EXACT_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType)


@dataclass(frozen=True)
class KeyedMerge:
    """A conformed batch and the keyed table that it is merged into."""

    frame: DataFrame
    columns: TableColumns
    spec: Spec
    log: TableLog
    writing: Writing

    @classmethod
    def begin(
        cls,
        frame: DataFrame,
        spec: Spec,
        layout: Layout,
        writing: Writing,
        generate: GenerateColumns = lambda _: {},
    ) -> KeyedMerge:
        """Unwrap CDC envelopes, create the table if needed, fit the frame to it, and quarantine null keys if declared.

        `generate` returns columns that the pattern adds to the table and no batch has; only their types are used.
        """
        rows = flag_deletes(unwrap(frame, spec, writing), spec, writing)
        require_key_columns(rows, spec, writing)
        generated = generate(rows)
        if known_log(writing) is None:
            # A frame that fails must not leave an empty table.
            rows = materialize(rows)
            verify_inputs(writing)
        written = rows.drop(DELETED).select("*", *(value.alias(name) for name, value in generated.items()))
        log = ensure_table(written, writing, layout, evolve=spec.evolve)
        columns = resolve_columns(rows, log, spec, generated, writing)
        return cls(fit_to_table(rows, columns, writing), columns, spec, log, writing).quarantine_null_keys()

    @property
    def session(self) -> SparkSession:
        """Return the session of the frame."""
        return self.frame.sparkSession

    def prepared_rows(self, retention: timedelta | None = None) -> PreparedRows:
        """Return the tombstones or SCD2 events stored beside the table; without `retention` they are kept for ever."""
        return PreparedRows(self.session, self.writing, self.log, retention)

    def upsert(
        self,
        update: bool | tuple[str, ...],
        insert: bool,
        tombstone_retention: timedelta | None,
        all_change: bool = False,
    ) -> None:
        """Upsert the latest row of every key if it is newer than the table's row and different from it.

        `all_change` says that the rows differ from those in the table, so that they need not be compared first.
        """
        compared = self._compared_columns(update)
        batch = self.reduce(compared)
        by_tombstones = self.spec.deletes and bool(self.columns.by)
        if by_tombstones:
            batch = _apply_tombstones(batch, self.prepared_rows(tombstone_retention), self.consistent)
        is_newest = (batch.stats.all_newer or all_change) and self.exclusive
        # Without a lock the MERGE itself compares every row with the table: an earlier read may be out of date by then.
        merge_all = is_newest or not self.exclusive
        rows = batch.rows if merge_all else select_changes(batch, self.table(batch), compared, bool(update))
        existing = select_fields(compared, self.log.schema)
        won = wins(self.columns, batch_col, table_col, None if is_newest else content_hash(existing, table_col))
        clauses = Clauses(
            on=self.same_key(batch),
            delete=batch_col(DELETED) & won if self.spec.deletes else None,
            update=won,
            sets=assignments(compared.fieldNames()) if update else None,
            insert=~batch_col(DELETED),
            values=assignments(self.columns.names) if insert else None,
            evolve=self.spec.evolve,
        )
        self.merge(rows, clauses, batch, batch.stats.count if merge_all else None, from_read=by_tombstones)

    def add(self, summed: Iterable[str]) -> None:
        """Add the batch's values to the existing rows. Only the marker in the same commit prevents adding twice."""
        work = self.writing.work
        # A later generation may be added only after a restore undid the earlier ones.
        undone = self.log.recorded(restate_app_id(work.pipeline, work.target, work.slice)) or 1
        if work.generation > undone:
            raise CannotRestate(target=work.target, pipeline=work.pipeline, slice=str(work.slice))
        names = {name.casefold() for name in summed}
        sums = select_fields(self.columns.schema, names).fields
        others = set(self.columns.names) - {field.name for field in sums} - set(self.columns.keys)
        if others or len(sums) != len(names):
            problem = ", ".join(sorted(others or names))
            raise wrong_columns(
                self.writing, f"{problem}: the frame may have keys and the columns in add=, and nothing else"
            )
        for field in sums:
            if not isinstance(field.dataType, _EXACT_TYPES):
                kind = f"{field.dataType.simpleString()}, whose sum depends on the order: cast it to a decimal"
                raise wrong_columns(self.writing, f"column {field.name} is {kind}")
        batch = self.reduce(self.columns.schema)
        sets = {identifier(field.name): _sum_of(field.name).cast(field.dataType) for field in sums}
        clauses = Clauses(self.same_key(batch), sets=sets, values=assignments(self.columns.names))
        self.merge(batch.rows, clauses, batch, batch.stats.count)

    def quarantine_null_keys(self) -> KeyedMerge:
        """Move rows with a null key to quarantine, if that is declared."""
        if self.spec.nulls != "quarantine":
            return self
        rows, null_key = materialize(self.frame), has_null_key(self.columns)
        writing = quarantine(rows.where(null_key), "a key is null", self.writing)
        return replace(self, frame=rows.where(~null_key), writing=writing)

    def reduce(self, compared: T.StructType, per: tuple[str, ...] = ()) -> ReducedBatch:
        """Deduplicate the batch to one row per key. Raise for null keys, and for repeated keys where null is a key."""
        batch = reduce_batch(self._in_order(), self.columns, compared, self.log, per)
        verify_inputs(self.writing)
        if batch.stats.null_keys and self.spec.nulls != "key":
            refuse(NullKeys, self.frame.where(has_null_key(self.columns)).drop(DELETED), self.columns, self.writing)
        if batch.stats.copies > 1 and self.spec.nulls == "key":
            groups = self.frame.groupBy(*(column(key) for key in self.columns.keys)).agg(F.count("*").alias(COPIES))
            refuse(RepeatedKeys, groups.where(column(COPIES) > 1).drop(COPIES), self.columns, self.writing)
        return batch

    def _in_order(self) -> DataFrame:
        """Return the rows; those of a batch without `latest_by` with the order in which they arrived.

        That is the order of a partition of Kafka, or of a file: what a function does to single rows keeps it.
        """
        if self.columns.by or not isinstance(self.writing.work.slice, Batch):
            return self.frame
        return self.frame.withColumn(ARRIVED, F.monotonically_increasing_id())

    def table(self, batch: ReducedBatch | None = None) -> DataFrame:
        """Return the target, or the part of it in which keys of a batch can lie.

        No version is pinned, because Delta would recompute the state of that version. `merge` checks the version.
        """
        table = self.session.read.format("delta").load(self.writing.path)
        return table.alias(TARGET).where(all_of(list(batch.where))) if batch and batch.where else table

    def same_key(self, batch: ReducedBatch, *also: str) -> str:
        """Return the ON condition of the merge: equal keys, in the part of the table in which they can lie."""
        operator = "<=>" if self.spec.nulls == "key" else "="
        names = (*self.columns.keys, *also)
        return all_of([*(f"{in_target(name)} {operator} s.{identifier(name)}" for name in names), *batch.where])

    @property
    def exclusive(self) -> bool:
        """Return whether the lock keeps other runners out. Without a lock another runner may commit in between."""
        return self.writing.table.exclusive

    @property
    def consistent(self) -> bool:
        """Return whether the table certainly is what all events together make of it: no work was ever overtaken."""
        return self.exclusive and not self.log.overtaken

    def merge(
        self,
        rows: DataFrame,
        clauses: Clauses,
        batch: ReducedBatch,
        count: int | None = None,
        *,
        from_read: bool = False,
    ) -> None:
        """Merge the rows in one commit; raise TableChanged if the table has a new version.

        Only new keys: the merge is an insert. Only existing keys: it needs no outer join. Rows from `select_changes`
        carry a flag for that. Rows that come with a `count` have no flag, and each may be new or existing. Without an
        exclusive lock no clause is dropped: what was read before may have changed. If the rows were decided `from_read`,
        by a version of the table or its tombstones, the commit carries that version: if it is not the next one, another
        commit overtook it, and the work is applied once more.
        """
        log = self.writing.table.log()
        if log is None or log.version != self.log.version:
            raise TableChanged(f"{self.writing.work.target} got a new version while the batch was compared with it")
        if self.writing.table.lost_lock():
            raise TableChanged(f"the lease on {self.writing.work.target} expired, and another runner has it")
        has_existing, has_new = bool(self.log.files) or not self.exclusive, True
        if count is None:
            count, matched = rows.agg(F.count(F.lit(1)), F.count_if(column(MATCHED))).collect()[0]
            has_existing, has_new = matched > 0 or not self.exclusive, matched < count or not self.exclusive
        clauses = clauses if has_existing else replace(clauses, delete=None, sets=None)
        clauses = clauses if has_new else replace(clauses, values=None)
        stamp = self.writing.stamp
        stamp = stamp.with_facts(read=self.log.version) if from_read and not self.exclusive else stamp
        if not count or not any((clauses.sets, clauses.values, clauses.delete is not None)):
            # Nothing changes: an empty append commits the marker without a scan of the table.
            writes.append(self.table().limit(0), self.writing.path, stamp)
            return
        quick = batch.bytes < writes.SMALL and count <= BROADCAST_ROWS
        writes.merge(broadcast_if_small(rows, count), self.writing.path, clauses, stamp, quick)

    def _compared_columns(self, update: bool | tuple[str, ...]) -> T.StructType:
        """Return the columns that an update sets, and whose content breaks ties of the order."""
        if isinstance(update, bool):
            return self.columns.schema
        for name in update:
            find_column(self.frame, name, frame_origin(self.writing))
        return select_fields(self.columns.schema, (*update, *self.columns.by))


def _apply_tombstones(batch: ReducedBatch, prepared: PreparedRows, consistent: bool) -> ReducedBatch:
    """Prepare tombstones for the batch's deletes, and drop late rows that are not newer than a tombstone of their key.

    If the table may not be consistent with its tombstones, such a row becomes the delete of its tombstone: when a work is
    applied once more, because another commit overtook it, its row is in the table.
    """
    columns = batch.columns
    deletes = batch.rows.where(DELETED).select(*(column(name) for name in (*columns.keys, *columns.by, DELETED)))
    tombstones = prepared.rows()
    if tombstones is not None:
        tombstones = tombstones.where(DELETED).select(*prefixed((*columns.keys, *columns.by), "d"))
        row_order, deleted_at = (F.struct(*(column(f"{prefix}{name}") for name in columns.by)) for prefix in ("", "d "))
        deleted_since = [*equal_to_prefixed(columns.keys, "d"), row_order <= deleted_at]
        deletes = deletes.join(tombstones, deleted_since, "left_anti")
        if consistent:
            rows = batch.rows.join(tombstones, [*deleted_since, ~column(DELETED)], "left_anti")
        else:
            newest = deduplicate(tombstones, [f"d {key}" for key in columns.keys], deleted_at)
            rows = _as_deletes(batch.rows.join(newest, deleted_since, "left"), batch)
        batch = replace(batch, rows=materialize(rows))
    if batch.stats.deletes:
        prepared.prepare(deletes)
    return batch


def _as_deletes(rows: DataFrame, batch: ReducedBatch) -> DataFrame:
    """Return the rows of a batch, those that were joined with a tombstone as deletes at its time."""
    is_deleted = column(f"d {batch.columns.keys[0]}").isNotNull()
    values = {name: F.when(is_deleted, column(f"d {name}")).otherwise(column(name)) for name in batch.columns.by}
    values[DELETED] = column(DELETED) | is_deleted
    return rows.select(*(values.get(name, column(name)).alias(name) for name in batch.rows.columns))


def batch_col(name: str) -> Column:
    """Return a column of the batch, the source of a merge."""
    return F.col(f"s.{identifier(name)}")


def table_col(name: str) -> Column:
    """Return a column of the table, the target of a merge."""
    return F.col(in_target(name))


def assignments(names: Iterable[str]) -> dict[str, Column]:
    """Return assignments that set columns to the batch's values."""
    return {identifier(name): batch_col(name) for name in names}


def _sum_of(name: str) -> Column:
    return F.coalesce(table_col(name) + batch_col(name), table_col(name), batch_col(name))
