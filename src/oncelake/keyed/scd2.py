"""SCD2 history: rebuild the versions of a batch's keys, with the same result whatever the order of events.

An event is a row at its time, or a delete. The table contains the events that opened a version. The other events (deletes,
and rows that repeat the tracked values) are stored beside the table as prepared rows, because a late row in between may
turn one of them into a version.

Without an exclusive lock another commit may come between the read of the versions and the MERGE. The MERGE then changes only
versions that are as they were read, so no event is lost, and the work is applied once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window, WindowSpec

from oncelake.delta.targets import frame_origin
from oncelake.delta.writes import Clauses, Layout
from oncelake.errors import NullKeys
from oncelake.keyed.conform import DELETED, TableColumns, refuse, wrong_columns
from oncelake.keyed.latest import column, content_hash, equal_to_prefixed, prefixed
from oncelake.keyed.merge import KeyedMerge, assignments, batch_col, table_col
from oncelake.keyed.reduce import COPIES, MATCHED, TIE, ReducedBatch, rank_rows, tie_hash
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.spark.columns import find_column, select_fields
from oncelake.spark.materialize import materialize

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
_OPENS, _TRACKED, _NEXT = "__once_opens", "__once_tracked", "__once_next"


@dataclass(frozen=True)
class Scd2Merge:
    """A batch of events and the table of versions that it is merged into."""

    merge: KeyedMerge
    tracked: T.StructType

    @classmethod
    def begin(cls, frame: DataFrame, spec: Spec, track: tuple[str, ...], layout: Layout, writing: Writing) -> Scd2Merge:
        """Begin a merge into a table with generated columns for the time a version was valid."""

        def generate(rows: DataFrame) -> Mapping[str, Column]:
            for name in track:
                find_column(rows, name, frame_origin(writing))
            if clash := {FROM, TO, CURRENT} & {name.casefold() for name in rows.columns}:
                raise wrong_columns(writing, f"the frame has a column {', '.join(sorted(clash))}, which scd2 generates")
            return {FROM: column(spec.by[0]), TO: column(spec.by[0]), CURRENT: F.lit(True)}

        merge = KeyedMerge.begin(frame, spec, layout, writing, generate)
        return cls(merge, _tracked_columns(merge.columns, track))

    def changes(self) -> tuple[DataFrame, Clauses, ReducedBatch]:
        """Rebuild the versions of the keys in the batch; return the changed ones, and how they are merged."""
        merge, columns = self.merge, self.merge.columns
        batch = merge.reduce(columns.schema, per=columns.by[:1])
        if batch.stats.null_times:
            untimed = batch.rows.where(column(columns.by[0]).isNull()).drop(DELETED, TIE)
            refuse(NullKeys, untimed, replace(columns, keys=columns.by[:1]), merge.writing)
        keys = batch.rows.select(*prefixed(columns.keys, "k")).distinct()
        existing = materialize(_select_keys(merge.table(batch), keys, columns))
        stored = self._stored_events(keys)
        events = materialize(self._all_events(batch, existing, stored))
        merge.prepared_rows().prepare(_new_hidden_events(events, stored, columns))
        as_read = () if merge.exclusive else (TO, CURRENT, TIE)
        changes = _version_changes(_build_versions(events, columns), existing, columns, as_read)
        return changes, self._clauses(batch), batch

    def _stored_events(self, keys: DataFrame) -> DataFrame | None:
        """Return the stored events of these keys, which opened no version."""
        rows, columns = self.merge.prepared_rows().rows(), self.merge.columns
        if rows is None:
            return None
        lacking = [field for field in columns.schema.fields if field.name not in rows.columns]
        rows = rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in lacking))
        return _select_keys(rows, keys, columns).select(*map(column, columns.names), DELETED)

    def _all_events(self, batch: ReducedBatch, existing: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return all events of these keys: one event per key and time, and whether it opens a version."""
        columns = self.merge.columns
        parts = [
            batch.rows.select(*map(column, columns.names), DELETED),
            _opening_events(existing, columns),
            self._unknown_deletes(existing, stored),
        ]
        parts += [stored] if stored is not None else []
        union = parts[0]
        for part in parts[1:]:
            union = union.unionByName(part)
        events = rank_rows(union, columns, columns.schema, (*columns.keys, columns.by[0])).drop(COPIES)
        events = events.withColumn(_TRACKED, content_hash(self.tracked, column))
        earlier = _by_time(columns)
        repeats = (F.lag(_TRACKED).over(earlier) == column(_TRACKED)) & ~F.lag(DELETED).over(earlier)
        return events.withColumn(_OPENS, ~column(DELETED) & ~F.coalesce(repeats, F.lit(False)))

    def _unknown_deletes(self, existing: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return the deletes that only the table implies: no event is known at the time at which a version ends."""
        merge, columns = self.merge, self.merge.columns
        closing = _closing_deletes(existing, columns)
        if merge.consistent:
            return closing
        # If a work was overtaken, the table has versions of two writers that did not know each other's events.
        opening, at = _opening_events(existing, columns), (*columns.keys, columns.by[0])
        known = opening.unionByName(stored) if stored is not None else opening
        return closing.join(known.select(*prefixed(at, "e")), equal_to_prefixed(at, "e"), "left_anti")

    def _clauses(self, batch: ReducedBatch) -> Clauses:
        names = [*self.merge.columns.names, FROM, TO, CURRENT]
        as_read = F.lit(True) if self.merge.exclusive else self._is_as_read()
        return Clauses(
            on=self.merge.same_key(batch, FROM),
            delete=batch_col(DELETED) & as_read,
            update=as_read,
            sets=assignments(names),
            insert=~batch_col(DELETED),
            values=assignments(names),
            evolve=self.merge.spec.evolve,
        )

    def _is_as_read(self) -> Column:
        """Return the condition that a version of the table is the one that the change was made for."""
        content = content_hash(select_fields(self.merge.columns.schema, self.merge.log.schema), table_col)
        same = [table_col(name).eqNullSafe(batch_col(f"t {name}")) for name in (TO, CURRENT)]
        return reduce(and_, same) & (content == batch_col(f"t {TIE}"))


def _tracked_columns(columns: TableColumns, track: tuple[str, ...]) -> T.StructType:
    """Return the columns whose change opens a version: the declared ones, or all but keys and order."""
    return select_fields(columns.schema, track or {*columns.names} - {*columns.keys, *columns.by})


def _select_keys(rows: DataFrame, keys: DataFrame, columns: TableColumns) -> DataFrame:
    return rows.join(F.broadcast(keys), equal_to_prefixed(columns.keys, "k"), "left_semi")


def _by_time(columns: TableColumns, time: str | None = None) -> WindowSpec:
    return Window.partitionBy(*map(column, columns.keys)).orderBy(column(time or columns.by[0]))


def _opening_events(existing: DataFrame, columns: TableColumns) -> DataFrame:
    """Return the events that opened the existing versions, one per version."""
    time = columns.by[0]
    names = [column(FROM).alias(time) if name == time else column(name) for name in columns.names]
    return existing.select(*names, F.lit(False).alias(DELETED))


def _closing_deletes(existing: DataFrame, columns: TableColumns) -> DataFrame:
    """Return the deletes that the table implies: a version that ends where no other begins was closed by a delete."""
    following = F.lead(FROM).over(_by_time(columns, FROM))
    ended = existing.withColumn(_NEXT, following).where(column(TO).isNotNull() & ~F.col(_NEXT).eqNullSafe(column(TO)))
    known = {**{key: column(key) for key in columns.keys}, columns.by[0]: column(TO)}
    fields = [(known.get(f.name, F.lit(None)).cast(f.dataType)).alias(f.name) for f in columns.schema.fields]
    return ended.select(*fields, F.lit(True).alias(DELETED))


def _new_hidden_events(events: DataFrame, stored: DataFrame | None, columns: TableColumns) -> DataFrame:
    """Return the events that open no version and are not stored yet."""
    hidden = events.where(~column(_OPENS))
    if stored is not None:
        names = (*columns.keys, columns.by[0], DELETED, TIE)
        tied = stored.withColumn(TIE, tie_hash(columns.schema)).select(*prefixed(names, "r"))
        hidden = hidden.join(tied, equal_to_prefixed(names, "r"), "left_anti")
    return hidden.select(*map(column, columns.names), DELETED)


def _build_versions(events: DataFrame, columns: TableColumns) -> DataFrame:
    """Build the versions from the events: each ends where the next one, or a delete, begins."""
    time = column(columns.by[0])
    ends = events.where(column(_OPENS) | column(DELETED)).withColumn(TO, F.lead(time).over(_by_time(columns)))
    versions = ends.where(_OPENS).withColumn(FROM, time).withColumn(CURRENT, column(TO).isNull())
    return versions.select(*map(column, (*columns.names, FROM, TO, CURRENT)), TIE)


def _version_changes(
    versions: DataFrame, existing: DataFrame, columns: TableColumns, as_read: tuple[str, ...]
) -> DataFrame:
    """Return the rows to insert, update and delete, so that the table contains these versions; with values `as_read`."""
    on, compared = (*columns.keys, FROM), (TO, CURRENT, TIE)
    existing = existing.withColumn(TIE, content_hash(select_fields(columns.schema, existing.columns), column))
    existing = existing.select(*prefixed((*on, *compared), "t"))
    joined = versions.join(existing, equal_to_prefixed(on, "t"), "full")
    gone = column(FROM).isNull()
    unchanged = reduce(and_, equal_to_prefixed(compared, "t", null_safe=True)) & ~gone
    keys = {name: F.coalesce(column(name), column(f"t {name}")) for name in on}
    names = [*columns.names, FROM, TO, CURRENT]
    selected = [(keys[name] if name in keys else column(name)).alias(name) for name in names]
    matched = column(f"t {FROM}").isNotNull().alias(MATCHED)
    read = (column(f"t {name}") for name in as_read)
    return materialize(joined.where(~unchanged).select(*selected, gone.alias(DELETED), matched, *read))
