"""The history of a table with keys, rebuilt for the keys of a batch: the same whatever order the events come in.

An event is a row at its time, or a delete. The table shows the events that opened a version. Those that did not (deletes,
and rows that repeat what is tracked) are remembered beside it, because a row that comes late in between may yet make a
version of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window, WindowSpec

from oncelake.contracts import Writing
from oncelake.errors import NullKeys
from oncelake.keyed.batch import DELETED, Columns, fitted, flagged, misfit, refuse, table_columns
from oncelake.keyed.changes import COPIES, MATCHED, TIE, Batch, digest, ranked
from oncelake.keyed.envelopes import unwrapped
from oncelake.keyed.latest import column, content
from oncelake.keyed.merging import Merging, mine, taken
from oncelake.keyed.spec import Spec
from oncelake.lake.frames import find_column
from oncelake.lake.targets import look_at, ready
from oncelake.lake.verbs import Clauses, Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
_OPENS, _TRACKED = "__once_opens", "__once_tracked"


@dataclass(frozen=True)
class History:
    """A batch of events on its way into a table of versions."""

    merging: Merging
    tracked: T.StructType

    @classmethod
    def begun(cls, frame: DataFrame, spec: Spec, track: tuple[str, ...], layout: Layout, writing: Writing) -> History:
        """Unwrap the frame, get the table ready, and fit the one to the other."""
        rows = flagged(unwrapped(frame, spec.cdc, spec.by, writing), spec, writing)
        if taken_names := {FROM, TO, CURRENT} & {name.casefold() for name in rows.columns}:
            raise misfit(writing, f"the frame has a column {', '.join(sorted(taken_names))}, which scd2 makes itself")
        time = column(find_column(rows, spec.by[0], look_at(writing))[0])
        own = {FROM: time, TO: time, CURRENT: F.lit(True)}
        log = ready(rows.drop(DELETED).withColumns(own), writing, layout, evolve=spec.evolve)
        columns = table_columns(rows, log, spec.keys, spec.by, writing)
        schema = T.StructType([field for field in columns.schema.fields if field.name not in own])
        columns = replace(columns, schema=schema)
        merging = Merging(fitted(rows, columns, writing), columns, spec, log, writing).keyed()
        return cls(merging, _tracked(rows, columns, track, writing))

    def write(self) -> None:
        """Rebuild the versions of the keys in the batch, and merge what became of them in one commit."""
        merging, columns = self.merging, self.merging.columns
        batch = merging.reduced(columns.schema, per=columns.by[:1])
        if batch.untimed:
            untimed = batch.rows.where(column(columns.by[0]).isNull()).drop(DELETED, TIE)
            refuse(NullKeys, untimed, replace(columns, keys=columns.by[:1]), merging.writing)
        keys = batch.rows.select(*(column(key).alias(f"k {key}") for key in columns.keys)).distinct()
        there = _of_keys(merging.table(), keys, columns).localCheckpoint()
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
        self.merging.merge(changes, clauses)


def _tracked(rows: DataFrame, columns: Columns, track: tuple[str, ...], writing: Writing) -> T.StructType:
    """The columns whose change opens a version: those declared, or all but keys and order."""
    for name in track:
        find_column(rows, name, look_at(writing))
    wanted = {name.casefold() for name in track}
    untold = {*columns.keys, *columns.by}
    fields = columns.schema.fields
    return T.StructType([f for f in fields if (f.name.casefold() in wanted if wanted else f.name not in untold)])


def _of_keys(rows: DataFrame, keys: DataFrame, columns: Columns) -> DataFrame:
    same = [column(key) == column(f"k {key}") for key in columns.keys]
    return rows.join(F.broadcast(keys), same, "left_semi")


def _in_time(columns: Columns, time: str | None = None) -> WindowSpec:
    return Window.partitionBy(*map(column, columns.keys)).orderBy(column(time or columns.by[0]))


def _shown(there: DataFrame, columns: Columns) -> DataFrame:
    """The events that the table shows: every version was opened by one."""
    time = columns.by[0]
    names = [column(FROM).alias(time) if name == time else column(name) for name in columns.names]
    return there.select(*names, F.lit(False).alias(DELETED))


def _closed(there: DataFrame, columns: Columns) -> DataFrame:
    """The deletes that the table shows: a version that ends where no other begins."""
    following = F.lead(FROM).over(_in_time(columns, FROM))
    ended = there.withColumn("next", following).where(column(TO).isNotNull() & ~F.col("next").eqNullSafe(column(TO)))
    known = {**{key: column(key) for key in columns.keys}, columns.by[0]: column(TO)}
    fields = [(known.get(f.name, F.lit(None)).cast(f.dataType)).alias(f.name) for f in columns.schema.fields]
    return ended.select(*fields, F.lit(True).alias(DELETED))


def _unseen(events: DataFrame, known: DataFrame | None, columns: Columns) -> DataFrame:
    """The events that open no version and are not remembered yet."""
    unseen = events.where(~column(_OPENS))
    if known is not None:
        tied = known.withColumn(TIE, digest(columns.schema))
        names = (*columns.keys, columns.by[0], DELETED, TIE)
        tied = tied.select(*(column(name).alias(f"r {name}") for name in names))
        unseen = unseen.join(tied, [column(name) == column(f"r {name}") for name in names], "left_anti")
    return unseen.select(*map(column, columns.names), DELETED)


def _versions(events: DataFrame, columns: Columns) -> DataFrame:
    """The versions that the events make: each ends where the next one, or a delete, begins."""
    time = column(columns.by[0])
    ends = events.where(column(_OPENS) | column(DELETED)).withColumn(TO, F.lead(time).over(_in_time(columns)))
    versions = ends.where(_OPENS).withColumn(FROM, time).withColumn(CURRENT, column(TO).isNull())
    return versions.select(*map(column, (*columns.names, FROM, TO, CURRENT)), TIE)


def _changes(versions: DataFrame, there: DataFrame, columns: Columns) -> DataFrame:
    """What must change for the table to show these versions: rows to put in, and rows to take out."""
    compared = T.StructType([field for field in columns.schema.fields if field.name in there.columns])
    on = (*columns.keys, FROM)
    shown = there.withColumn(TIE, content(compared, column))
    shown = shown.select(*(column(name).alias(f"t {name}") for name in (*on, TO, CURRENT, TIE)))
    same = [column(name) == column(f"t {name}") for name in on]
    joined = versions.join(shown, same, "full")
    gone = column(FROM).isNull()
    alike = [column(name).eqNullSafe(column(f"t {name}")) for name in (TO, CURRENT, TIE)]
    unchanged = alike[0] & alike[1] & alike[2] & ~gone
    keyed = {name: F.coalesce(column(name), column(f"t {name}")) for name in on}
    names = [*columns.names, FROM, TO, CURRENT]
    chosen = [(keyed[name] if name in keyed else column(name)).alias(name) for name in names]
    matched = column(f"t {FROM}").isNotNull().alias(MATCHED)
    return joined.where(~unchanged).select(*chosen, gone.alias(DELETED), matched).localCheckpoint()
