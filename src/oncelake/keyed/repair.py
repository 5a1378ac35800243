"""Rows that are there more than once: found, told since when, and removed in one commit that touches only their files."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from oncelake.delta import writes
from oncelake.delta.log import TableLog, read_log
from oncelake.delta.writes import Clauses, partitions_of
from oncelake.keyed.conform import shown
from oncelake.keyed.latest import column, content, one_per, prefixed, refuse_unordered, same
from oncelake.keyed.reduce import TIE, sent
from oncelake.model.contracts import Stamp
from oncelake.model.markers import Marker, app_id
from oncelake.model.slices import Named
from oncelake.spark.columns import Look, find_column
from oncelake.spark.sql import all_of, identifier, one_of, typed_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _KEPT = "__once_file", "__once_kept"
_EXAMPLES, _PARTITIONS = 3, 200


@dataclass(frozen=True)
class Repair:
    """What was found in a table, and what was done about it."""

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
        """The surplus rows that stay, because nothing says which of them is right."""
        return self.surplus - self.removable

    def document(self) -> dict[str, Any]:
        """The repair as `repair --json` prints it."""
        named = {name: getattr(self, name) for name in ("target", "surplus", "identical", "differing", "files", "left")}
        return {
            **named,
            "keys": list(self.keys),
            "keep": list(self.keep),
            "read_version": self.read,
            "duplicate_keys": self.doubled,
            "removed": self.removable if self.version is not None else 0,
            "since": [dict(commit) for commit in self.since],
            "examples": list(self.examples),
            "version": self.version,
        }


def repaired(session: SparkSession, log: TableLog, keys: Sequence[str], keep: Sequence[str], dry_run: bool) -> Repair:
    """Find what is there more than once and, unless it is a dry run, remove it."""
    duplicates = Duplicates.found(session, log, keys, keep)
    repair = duplicates.told()
    if dry_run or not repair.removable:
        return repair
    duplicates.remove()
    return replace(repair, version=read_log(log.table, log.path).version)


@dataclass(frozen=True)
class Duplicates:
    """The rows of a table whose key is there more than once, and the partitions that hold them."""

    log: TableLog
    keys: tuple[str, ...]
    keep: tuple[str, ...]
    rows: DataFrame
    partitions: list[dict[str, str]]
    bytes: int

    @classmethod
    def found(cls, session: SparkSession, log: TableLog, keys: Sequence[str], keep: Sequence[str]) -> Duplicates:
        """Look for them: one pass over the keys, one over the partitions that hold a key twice. A null is no key."""
        table = writes.table_at(session, log.path, log.version)
        look = Look(f"table {log.table}", "repair", log.path)
        names, order = (tuple(find_column(table, name, look)[0] for name in which) for which in (keys, keep))
        refuse_unordered(table.schema, [*names, *order], log.path)
        keyed = table.na.drop(subset=[identifier(name) for name in names])
        # Counted alone: to collect the files of every key beside it takes longer than this and the next pass together.
        counted = keyed.groupBy(*prefixed(names, "k")).count().where("count > 1").drop("count")
        twice = counted.localCheckpoint()
        held = keyed.where(_meant(twice, tuple(name for name in log.partitioned_by if name in names)))
        held = held.withColumn(_FILE, F.col("_metadata.file_path"))
        rows = held.join(sent(twice, twice.count()), same(names, "k"), "left_semi")
        rows = rows.withColumn(TIE, content(table.schema, column)).localCheckpoint()
        places = _places(log)
        holding = {posixpath.basename(unquote(row[0])) for row in rows.select(_FILE).distinct().collect()}
        touched = {place for file, (place, _) in places.items() if file in holding}
        # So many that a condition is not worth it: the whole table is looked at.
        touched = touched if len(touched) <= _PARTITIONS else set()
        looked_at = sum(size for place, size in places.values() if place in touched or not touched)
        return cls(log, names, order, rows, [dict(place) for place in sorted(touched) if place], looked_at)

    def told(self) -> Repair:
        """What there is, and what a removal would leave."""
        per = self.rows.groupBy(*map(column, self.keys)).agg(
            F.count(F.lit(1)).alias("copies"),
            F.size(F.collect_set(TIE)).alias("contents"),
            F.collect_list(_FILE).alias("at"),
        )
        per = per.localCheckpoint()
        sums = per.agg(
            F.count(F.lit(1)).alias("keys"),
            F.coalesce(F.sum(F.col("copies") - 1), F.lit(0)).alias("surplus"),
            F.coalesce(F.sum(F.col("copies") - F.col("contents")), F.lit(0)).alias("same"),
            F.count_if(F.col("contents") == 1).alias("identical"),
        ).collect()[0]
        examples = [row.asDict() for row in per.drop("at").orderBy(*map(column, self.keys)).limit(_EXAMPLES).collect()]
        places = per.groupBy(F.array_sort("at").alias("at")).count().collect()
        return Repair(
            target=self.log.table,
            keys=self.keys,
            keep=self.keep,
            read=self.log.version,
            doubled=sums["keys"],
            surplus=sums["surplus"],
            identical=sums["identical"],
            differing=sums["keys"] - sums["identical"],
            removable=sums["surplus"] if self.keep else sums["same"],
            files=len({file for row in places for file in row["at"]}),
            since=self._since({tuple(row["at"]): row["count"] for row in places}),
            examples=tuple(shown(example) for example in examples),
        )

    def remove(self) -> None:
        """Leave one row of each key, or without `keep` one of each content, in one commit.

        All rows of those keys are taken out and the chosen ones put in: a merge cannot tell identical rows apart.
        """
        per = Window.partitionBy(*map(column, self.keys))
        contents = F.size(F.collect_set(TIE).over(per))
        spare = self.rows.withColumn("spare", F.count(F.lit(1)).over(per) > contents)
        meant = self.rows if self.keep else spare.where("spare").drop("spare")
        rank = F.struct(*map(column, (*self.keep, TIE)))
        chosen = one_per(meant, self.keys if self.keep else (*self.keys, TIE), rank).drop(_FILE, TIE)
        gone = meant.select(*map(column, self.keys)).distinct().withColumn(_KEPT, F.lit(False))
        source = chosen.withColumn(_KEPT, F.lit(True)).unionByName(gone, allowMissingColumns=True)
        keys = [f"t.{identifier(key)} = s.{identifier(key)}" for key in self.keys]
        where = [one_of(self.partitions, of="t.")] if self.partitions else []
        clauses = Clauses(
            on=all_of([f"NOT s.{_KEPT}", *keys, *filter(None, where)]),
            delete=F.lit(True),
            insert=F.col(f"s.{_KEPT}"),
            values={identifier(name): F.col(f"s.{identifier(name)}") for name in chosen.columns},
        )
        source = source.localCheckpoint()
        quick = self.bytes < writes.SMALL
        writes.merge(sent(source, source.count()), self.log.path, clauses, self._stamp(), quick)

    def _stamp(self) -> Stamp:
        """A repair of one version is one work: done twice it finds nothing, done twice at once it is done once."""
        slice_ = Named(f"version {self.log.version}")
        facts = {"pipeline": "repair", "target": self.log.table, "slice": slice_.text, "generation": 1}
        return Stamp(Marker(app_id("repair", self.log.table, slice_), 1), json.dumps({"oncelake": facts}))

    def _since(self, places: Mapping[tuple[str, ...], int]) -> tuple[dict[str, Any], ...]:
        """The commits that brought surplus rows in: of the files that hold a key, the first one's is not surplus."""
        added: dict[str, Any] = {}
        for entry in self.log.history():
            for add in entry.actions("add"):
                added[posixpath.basename(unquote(add["path"]))] = entry
        brought: Counter[int] = Counter()
        entries: dict[int, Any] = {}
        for files, count in places.items():
            found = [added.get(posixpath.basename(unquote(file))) for file in files]
            known = sorted((entry for entry in found if entry is not None), key=lambda entry: entry.version)
            for entry in known[1:]:
                brought[entry.version] += count
                entries[entry.version] = entry
        return tuple(
            {
                "version": version,
                "operation": entries[version].info.get("operation", "?"),
                "pipeline": entries[version].facts.get("pipeline"),
                "at": entries[version].timestamp.isoformat() if entries[version].timestamp else None,
                "rows": brought[version],
            }
            for version in sorted(brought)
        )


def _meant(twice: DataFrame, names: tuple[str, ...]) -> str:
    """The condition for the partitions that keys which are there twice lie in, if partitions are part of the key."""
    places = twice.select(*(column(f"k {name}").alias(name) for name in names)).distinct().limit(_PARTITIONS + 1)
    found = partitions_of(places, names) if names else []
    return (one_of(found) if len(found) <= _PARTITIONS else None) or "TRUE"


def _places(log: TableLog) -> dict[str, tuple[tuple[tuple[str, str], ...], int]]:
    """Of every file its partition, as literals by column, and its size; where names are mapped, all lie in one place."""
    names = () if log.mapped else log.partitioned_by
    return {
        posixpath.basename(unquote(add["path"])): (
            tuple((name, typed_literal(add["partitionValues"][name], log.schema[name])) for name in names),
            add["size"],
        )
        for add in log.files
    }
