"""Dedup of an existing table: find keys with several rows, trace the commits that added them, and repair them in one commit."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from oncelake.delta import writes
from oncelake.delta.conflicts import TableChanged
from oncelake.delta.log import TableLog, read_log
from oncelake.delta.writes import Clauses, partitions_of
from oncelake.keyed.conform import format_row
from oncelake.keyed.latest import column, content_hash, deduplicate, equal_to_prefixed, prefixed, require_sortable
from oncelake.keyed.reduce import COPIES, TIE, broadcast_if_small
from oncelake.model.contracts import Stamp
from oncelake.model.markers import Marker, app_id
from oncelake.model.slices import Named
from oncelake.spark.columns import FrameOrigin, find_column
from oncelake.spark.materialize import materialize
from oncelake.spark.sql import TARGET, all_of, identifier, in_target, one_of, typed_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Names that no user column has: a repair must not overwrite a column.
_FILE, _FILES, _KEPT, _SPARE = (f"__once_{name}" for name in ("file", "files", "kept", "spare"))
_CONTENTS = "__once_contents"
_EXAMPLES = 3
# A condition that lists more partitions than this costs more than it saves.
_MAX_LISTED = 200


@dataclass(frozen=True)
class Repair:
    """The duplicates found in a table, and whether they were removed."""

    target: str
    keys: tuple[str, ...]
    keep: tuple[str, ...]
    read: int
    doubled: int
    surplus: int
    identical: int
    differing: int
    removable: int
    files: int
    since: tuple[Mapping[str, Any], ...]
    examples: tuple[str, ...]
    version: int | None = None

    @property
    def left(self) -> int:
        """Return the number of surplus rows that stay, because no order says which of them is right."""
        return self.surplus - self.removable

    def document(self) -> dict[str, Any]:
        """Return the document that `repair --json` prints."""
        plain = {name: getattr(self, name) for name in ("target", "surplus", "identical", "differing", "files", "left")}
        return {
            **plain,
            "keys": list(self.keys),
            "keep": list(self.keep),
            "read_version": self.read,
            "duplicate_keys": self.doubled,
            "removed": self.removable if self.version is not None else 0,
            "since": [dict(commit) for commit in self.since],
            "examples": list(self.examples),
            "version": self.version,
        }


@dataclass(frozen=True)
class DuplicateStats:
    """Counts over the keys that have several rows."""

    keys: int
    # Rows beyond the first of their key.
    surplus_rows: int
    # Rows beyond the first of their key and content.
    identical_rows: int
    # Keys whose rows are all identical.
    identical_keys: int


@dataclass(frozen=True)
class Repairing:
    """A repair on its way: it is repeated until no other commit came between the version that was read and its own."""

    session: SparkSession
    keys: tuple[str, ...]
    keep: tuple[str, ...]
    dry_run: bool
    exclusive: bool
    passes: list[Repair] = field(default_factory=list)

    def repair(self, log: TableLog) -> Repair:
        """Find duplicates and, unless it is a dry run, remove them; raise TableChanged if another commit came in between.

        Without an exclusive lock the duplicates are found once more, by the transaction that removes them: rows that
        another runner wrote meanwhile are neither lost nor brought back.
        """
        duplicates = Duplicates.find(self.session, log, self.keys, self.keep)
        found = duplicates.describe()
        if self.dry_run or not found.removable:
            return self._add_up(found)
        duplicates.remove() if self.exclusive else duplicates.remove_current()
        after = read_log(log.table, log.path)
        commit = after.commit(duplicates.stamp.marker.app_id)
        found = replace(found, version=commit.version if commit else after.version)
        self.passes.append(found)
        if found.version != log.version + 1:
            raise TableChanged(f"another commit came between version {log.version} and version {found.version}")
        return self._add_up(found)

    def _add_up(self, last: Repair) -> Repair:
        """Return one repair for all passes; what the last one leaves is left."""
        if not self.passes:
            return last
        removed = sum(each.removable for each in self.passes)
        left = last.left if last.version is not None else last.surplus
        return replace(self.passes[0], removable=removed, surplus=removed + left, version=self.passes[-1].version)


@dataclass(frozen=True)
class Duplicates:
    """The rows of a table whose key occurs more than once, and the partitions that contain them."""

    log: TableLog
    keys: tuple[str, ...]
    keep: tuple[str, ...]
    rows: DataFrame
    partitions: list[dict[str, str]]
    bytes: int

    @classmethod
    def find(cls, session: SparkSession, log: TableLog, keys: Sequence[str], keep: Sequence[str]) -> Duplicates:
        """Scan the keys once, then the partitions that contain a duplicate key. A null is not a key."""
        table = writes.table_at(session, log.path, log.version)
        origin = FrameOrigin(f"table {log.table}", "repair", log.path)
        names, order = (tuple(find_column(table, name, origin)[0] for name in which) for which in (keys, keep))
        require_sortable(table.schema, [*names, *order], log.path)
        keyed = table.na.drop(subset=[identifier(name) for name in names])
        # This pass only counts: collecting the files of every key as well takes longer than both passes together.
        counted = keyed.groupBy(*prefixed(names, "k")).count().where("count > 1").drop("count")
        repeated = materialize(counted)
        in_partitions = keyed.where(_in_partitions(repeated, tuple(n for n in log.partitioned_by if n in names)))
        in_partitions = in_partitions.withColumn(_FILE, F.col("_metadata.file_path"))
        rows = in_partitions.join(
            broadcast_if_small(repeated, repeated.count()), equal_to_prefixed(names, "k"), "left_semi"
        )
        rows = materialize(rows.withColumn(TIE, content_hash(table.schema, column)))
        files = _partition_and_size(log)
        affected = {posixpath.basename(unquote(row[0])) for row in rows.select(_FILE).distinct().collect()}
        partitions = {partition for file, (partition, _) in files.items() if file in affected}
        # Too many to list in a condition: the merge scans the whole table.
        partitions = partitions if len(partitions) <= _MAX_LISTED else set()
        scanned = sum(size for partition, size in files.values() if partition in partitions or not partitions)
        return cls(log, names, order, rows, [dict(partition) for partition in sorted(partitions) if partition], scanned)

    def describe(self) -> Repair:
        """Return the counts, the origin and examples of the duplicates, and what a removal would leave."""
        per_key = self.rows.groupBy(*map(column, self.keys)).agg(
            F.count(F.lit(1)).alias(COPIES),
            F.size(F.collect_set(TIE)).alias(_CONTENTS),
            F.collect_list(_FILE).alias(_FILES),
        )
        per_key = materialize(per_key)
        stats = _collect_stats(per_key)
        first = per_key.drop(_FILES).orderBy(*map(column, self.keys)).limit(_EXAMPLES).collect()
        by_files = per_key.groupBy(F.array_sort(_FILES).alias(_FILES)).count().collect()
        return Repair(
            target=self.log.table,
            keys=self.keys,
            keep=self.keep,
            read=self.log.version,
            doubled=stats.keys,
            surplus=stats.surplus_rows,
            identical=stats.identical_keys,
            differing=stats.keys - stats.identical_keys,
            removable=stats.surplus_rows if self.keep else stats.identical_rows,
            files=len({file for row in by_files for file in row[_FILES]}),
            since=self._origins({tuple(row[_FILES]): row["count"] for row in by_files}),
            examples=tuple(format_row(_example(row.asDict())) for row in first),
        )

    def remove(self) -> None:
        """Keep one row per key, or without `keep` one row per key and content, in one commit.

        The merge deletes all rows of those keys and inserts the kept rows, because it cannot distinguish identical rows.
        """
        source, clauses = self._merge(self.rows, self.partitions)
        source = materialize(source)
        self._write(broadcast_if_small(source, source.count()), clauses)

    def remove_current(self) -> None:
        """Remove the duplicates that the table has in the transaction of the merge, whatever was found before.

        Delta computes a source that reads the target within that transaction, from the same snapshot, and raises a conflict if
        another commit changes rows before it ends.
        """
        table = self.rows.sparkSession.read.format("delta").load(self.log.path)
        keyed = table.na.drop(subset=[identifier(name) for name in self.keys])
        repeated = keyed.groupBy(*prefixed(self.keys, "k")).agg(F.count(F.lit(1)).alias(COPIES))
        rows = keyed.join(repeated.where(column(COPIES) > 1), equal_to_prefixed(self.keys, "k"), "left_semi")
        self._write(*self._merge(rows.withColumn(TIE, content_hash(table.schema, column)), []))

    def _merge(self, rows: DataFrame, partitions: list[dict[str, str]]) -> tuple[DataFrame, Clauses]:
        """Return the source and the clauses of the merge that keeps one of these rows per key."""
        affected = rows if self.keep else self._with_identical_rows(rows)
        rank = F.struct(*map(column, (*self.keep, TIE)))
        kept = deduplicate(affected, self.keys if self.keep else (*self.keys, TIE), rank).drop(_FILE, TIE)
        deleted = affected.select(*map(column, self.keys)).distinct().withColumn(_KEPT, F.lit(False))
        source = kept.withColumn(_KEPT, F.lit(True)).unionByName(deleted, allowMissingColumns=True)
        keys = [f"{in_target(key)} = s.{identifier(key)}" for key in self.keys]
        where = [one_of(partitions, of=f"{TARGET}.")] if partitions else []
        clauses = Clauses(
            on=all_of([f"NOT s.{_KEPT}", *keys, *filter(None, where)]),
            delete=F.lit(True),
            insert=F.col(f"s.{_KEPT}"),
            values={identifier(name): F.col(f"s.{identifier(name)}") for name in kept.columns},
        )
        return source, clauses

    def _write(self, source: DataFrame, clauses: Clauses) -> None:
        writes.merge(source, self.log.path, clauses, self.stamp, self.bytes < writes.SMALL)

    def _with_identical_rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows of the keys that have at least two identical rows."""
        per_key = Window.partitionBy(*map(column, self.keys))
        contents = F.size(F.collect_set(TIE).over(per_key))
        return rows.withColumn(_SPARE, F.count(F.lit(1)).over(per_key) > contents).where(_SPARE).drop(_SPARE)

    @property
    def stamp(self) -> Stamp:
        """The marker and facts. One version is one work: a second repair finds nothing, a concurrent one is void."""
        slice_ = Named(f"version {self.log.version}")
        facts = {"pipeline": "repair", "target": self.log.table, "slice": slice_.text, "generation": 1}
        return Stamp(Marker(app_id("repair", self.log.table, slice_), 1), json.dumps({"oncelake": facts}))

    def _origins(self, counts: Mapping[tuple[str, ...], int]) -> tuple[dict[str, Any], ...]:
        """Return the commits that added surplus rows, from the number of keys per list of files.

        Of the files that contain a key, the one added first is not surplus.
        """
        added: dict[str, Any] = {}
        for entry in self.log.history():
            for add in entry.actions("add"):
                added[posixpath.basename(unquote(add["path"]))] = entry
        surplus: Counter[int] = Counter()
        entries: dict[int, Any] = {}
        for files, count in counts.items():
            found = [added.get(posixpath.basename(unquote(file))) for file in files]
            known = sorted((entry for entry in found if entry is not None), key=lambda entry: entry.version)
            for entry in known[1:]:
                surplus[entry.version] += count
                entries[entry.version] = entry
        return tuple(
            {
                "version": version,
                "operation": entries[version].info.get("operation", "?"),
                "pipeline": entries[version].facts.get("pipeline"),
                "at": entries[version].timestamp.isoformat() if entries[version].timestamp else None,
                "rows": surplus[version],
            }
            for version in sorted(surplus)
        )


def _collect_stats(per_key: DataFrame) -> DuplicateStats:
    found = per_key.agg(
        F.count(F.lit(1)).alias("keys"),
        F.coalesce(F.sum(F.col(COPIES) - 1), F.lit(0)).alias("surplus_rows"),
        F.coalesce(F.sum(F.col(COPIES) - F.col(_CONTENTS)), F.lit(0)).alias("identical_rows"),
        F.count_if(F.col(_CONTENTS) == 1).alias("identical_keys"),
    ).collect()[0]
    return DuplicateStats(**found.asDict())


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key with the counts under names for people."""
    return {name.removeprefix("__once_"): value for name, value in row.items()}


def _in_partitions(repeated: DataFrame, names: tuple[str, ...]) -> str:
    """Return the condition for the partitions that contain the repeated keys, if partition columns are keys."""
    distinct = repeated.select(*(column(f"k {name}").alias(name) for name in names)).distinct().limit(_MAX_LISTED + 1)
    found = partitions_of(distinct, names) if names else []
    return (one_of(found) if len(found) <= _MAX_LISTED else None) or "TRUE"


def _partition_and_size(log: TableLog) -> dict[str, tuple[tuple[tuple[str, str], ...], int]]:
    """Return each file's partition, as literals by column, and its size. With column mapping all share one partition."""
    names, files = () if log.mapped else log.partitioned_by, log.files
    columns = [
        [typed_literal(value, log.schema[name]) for value in files.partition(name).to_pylist()] for name in names
    ]
    partitions = [tuple(zip(names, each, strict=True)) for each in zip(*columns, strict=True)] if names else None
    paths = (posixpath.basename(unquote(path)) for path in files.paths())
    found = zip(partitions or [()] * len(files), files.sizes.to_pylist(), strict=True)
    return dict(zip(paths, found, strict=True))
