"""The history of a table with keys, rebuilt for the keys of a batch: the same whatever order the events come in.

An event is a row at its time, or a delete. The table shows the events that opened a version. Those that did not (deletes,
and rows that repeat what is tracked) are remembered beside it, because a row that comes late in between may yet make a
version of them.
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

from oncelake.delta.targets import look_at
from oncelake.delta.writes import Clauses, Layout
from oncelake.errors import NullKeys
from oncelake.keyed.conform import DELETED, TableColumns, misfit, refuse
from oncelake.keyed.latest import column, content, prefixed, same
from oncelake.keyed.merge import Merging, mine, taken
from oncelake.keyed.reduce import COPIES, MATCHED, TIE, Batch, digest, ranked
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.spark.columns import among, find_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
_OPENS, _TRACKED = "__once_opens", "__once_tracked"


@dataclass(frozen=True)
class History:
    """A batch of events on its way into a table of versions."""

    merging: Merging
    tracked: T.StructType

    @classmethod
    def begun(cls, frame: DataFrame, spec: Spec, track: tuple[str, ...], layout: Layout, writing: Writing) -> History:
        """A merging into a table with columns of its own for the time a version was valid."""

        def own(rows: DataFrame) -> Mapping[str, Column]:
            for name in track:
                find_column(rows, name, look_at(writing))
            if clash := {FROM, TO, CURRENT} & {name.casefold() for name in rows.columns}:
                raise misfit(writing, f"the frame has a column {', '.join(sorted(clash))}, which scd2 makes itself")
            return {FROM: column(spec.by[0]), TO: column(spec.by[0]), CURRENT: F.lit(True)}

        merging = Merging.begun(frame, spec, layout, writing, own)
        return cls(merging, _tracked(merging.columns, track))

    def write(self) -> None:
        """Rebuild the versions of the keys in the batch, and merge what became of them in one commit."""
        merging, columns = self.merging, self.merging.columns
        batch = merging.reduced(columns.schema, per=columns.by[:1])
        if batch.untimed:
            untimed = batch.rows.where(column(columns.by[0]).isNull()).drop(DELETED, TIE)
            refuse(NullKeys, untimed, replace(columns, keys=columns.by[:1]), merging.writing)
        keys = batch.rows.select(*prefixed(columns.keys, "k")).distinct()
        there = _of_keys(merging.table(batch), keys, columns).localCheckpoint()
        known = self._known(keys)
        events = self._events(batch, there, known).localCheckpoint()
        merging.memory().prepare(_unseen(events, known, columns))
        self._merge(batch, _changes(_versions(events, columns), there, columns))

    def _known(self, keys: DataFrame) -> DataFrame | None:
        """The events of these keys that opened no version."""
        rows, columns = self.merging.memory().rows(), self.merging.columns
        if rows is None:
            return None
        lacking = [field for field in columns.schema.fields if field.name not in rows.columns]
        rows = rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})
        return _of_keys(rows, keys, columns).select(*map(column, columns.names), DELETED)

    def _events(self, batch: Batch, there: DataFrame, known: DataFrame | None) -> DataFrame:
        """All there is to know of these keys: one event per key and time, and whether it opens a version."""
        columns = self.merging.columns
        parts = [
            batch.rows.select(*map(column, columns.names), DELETED),
            _shown(there, columns),
            _closed(there, columns),
        ]
        parts += [known] if known is not None else []
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part)
        events = ranked(whole, columns, columns.schema, (*columns.keys, columns.by[0])).drop(COPIES)
        events = events.withColumn(_TRACKED, content(self.tracked, column))
        earlier = _in_time(columns)
        repeats = (F.lag(_TRACKED).over(earlier) == column(_TRACKED)) & ~F.lag(DELETED).over(earlier)
        return events.withColumn(_OPENS, ~column(DELETED) & ~F.coalesce(repeats, F.lit(False)))

    def _merge(self, batch: Batch, changes: DataFrame) -> None:
        names = [*self.merging.columns.names, FROM, TO, CURRENT]
        clauses = Clauses(
            on=self.merging.same_key(batch, FROM),
            delete=mine(DELETED),
            update=F.lit(True),
            sets=taken(names),
            insert=~mine(DELETED),
            values=taken(names),
            evolve=self.merging.spec.evolve,
        )
        self.merging.merge(changes, clauses, batch)


def _tracked(columns: TableColumns, track: tuple[str, ...]) -> T.StructType:
    """The columns whose change opens a version: those declared, or all but keys and order."""
    return among(columns.schema, track or {*columns.names} - {*columns.keys, *columns.by})


def _of_keys(rows: DataFrame, keys: DataFrame, columns: TableColumns) -> DataFrame:
    return rows.join(F.broadcast(keys), same(columns.keys, "k"), "left_semi")


def _in_time(columns: TableColumns, time: str | None = None) -> WindowSpec:
    return Window.partitionBy(*map(column, columns.keys)).orderBy(column(time or columns.by[0]))


def _shown(there: DataFrame, columns: TableColumns) -> DataFrame:
    """The events that the table shows: every version was opened by one."""
    time = columns.by[0]
    names = [column(FROM).alias(time) if name == time else column(name) for name in columns.names]
    return there.select(*names, F.lit(False).alias(DELETED))


def _closed(there: DataFrame, columns: TableColumns) -> DataFrame:
    """The deletes that the table shows: a version that ends where no other begins."""
    following = F.lead(FROM).over(_in_time(columns, FROM))
    ended = there.withColumn("next", following).where(column(TO).isNotNull() & ~F.col("next").eqNullSafe(column(TO)))
    known = {**{key: column(key) for key in columns.keys}, columns.by[0]: column(TO)}
    fields = [(known.get(f.name, F.lit(None)).cast(f.dataType)).alias(f.name) for f in columns.schema.fields]
    return ended.select(*fields, F.lit(True).alias(DELETED))


def _unseen(events: DataFrame, known: DataFrame | None, columns: TableColumns) -> DataFrame:
    """The events that open no version and are not remembered yet."""
    unseen = events.where(~column(_OPENS))
    if known is not None:
        names = (*columns.keys, columns.by[0], DELETED, TIE)
        tied = known.withColumn(TIE, digest(columns.schema)).select(*prefixed(names, "r"))
        unseen = unseen.join(tied, same(names, "r"), "left_anti")
    return unseen.select(*map(column, columns.names), DELETED)


def _versions(events: DataFrame, columns: TableColumns) -> DataFrame:
    """The versions that the events make: each ends where the next one, or a delete, begins."""
    time = column(columns.by[0])
    ends = events.where(column(_OPENS) | column(DELETED)).withColumn(TO, F.lead(time).over(_in_time(columns)))
    versions = ends.where(_OPENS).withColumn(FROM, time).withColumn(CURRENT, column(TO).isNull())
    return versions.select(*map(column, (*columns.names, FROM, TO, CURRENT)), TIE)


def _changes(versions: DataFrame, there: DataFrame, columns: TableColumns) -> DataFrame:
    """What must change for the table to show these versions: rows to put in, and rows to take out."""
    on, told = (*columns.keys, FROM), (TO, CURRENT, TIE)
    shown = there.withColumn(TIE, content(among(columns.schema, there.columns), column))
    coalesce = versions.join(shown.select(*prefixed((*on, *told), "t")), same(on, "t"), "full")
    gone = column(FROM).isNull()
    unchanged = reduce(and_, same(told, "t", nulls=True)) & ~gone
    keyed = {name: F.coalesce(column(name), column(f"t {name}")) for name in on}
    names = [*columns.names, FROM, TO, CURRENT]
    chosen = [(keyed[name] if name in keyed else column(name)).alias(name) for name in names]
    matched = column(f"t {FROM}").isNotNull().alias(MATCHED)
    return coalesce.where(~unchanged).select(*chosen, gone.alias(DELETED), matched).localCheckpoint()
