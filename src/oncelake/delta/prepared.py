"""Prepared rows: the transactional outbox of the lake.

Delta commits one table at a time, and the target's commit is the decision. Rows that belong to a work but not into its
table (tombstones, events that opened no version) are appended here before that commit, tagged with the attempt. They
count once the target's log has the commit of that attempt, and are void as soon as the log has the work's marker by
another one. What is decided is settled now and then, so that the log need not be asked for ever.

Attempts are partitions, so that the two logs, read without Spark, say which files count.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import functions as F

from oncelake.delta import writes
from oncelake.delta.conflicts import ErrorKind, classify
from oncelake.delta.lineage import undone_versions
from oncelake.delta.log import TableLog, find_log, read_log
from oncelake.delta.targets import table_schema
from oncelake.errors import TombstonesUnknown
from oncelake.model.contracts import Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.markers import Marker
from oncelake.spark.columns import select_fields
from oncelake.spark.materialize import materialize
from oncelake.spark.session import has_leaked_txn
from oncelake.spark.sql import text_literal
from oncelake.storage.listing import escape_glob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORK, GENERATION, ATTEMPT, READ, VERSION, AT = (
    f"__once_{name}" for name in ("work", "generation", "attempt", "read", "version", "at")
)
_TAGS = (WORK, GENERATION, ATTEMPT, READ)
# Verdicts are recorded once so many attempts are decided, or one was decided so long ago: each recording is a commit or
# two, and Delta cleans up logs after some days.
_MANY, _LONG_AGO = 8, timedelta(days=1)


class _Prepared(NamedTuple):
    """An attempt that prepared rows: for which work, and the version of the target that it had read."""

    attempt: str
    work: str
    generation: int
    read: int
    at: datetime


@dataclass(frozen=True)
class PreparedRows:
    """The rows prepared for one target, beside its table."""

    session: SparkSession
    writing: Writing
    log: TableLog
    age: timedelta | None = None

    @property
    def path(self) -> str:
        """Where they lie. The table's id is in it: another table of the same name has other rows."""
        return f"{self.writing.internal}/tombstones/{self.writing.work.target}/{self.log.metadata.get('id')}"

    def rows(self) -> DataFrame | None:
        """Return the rows that count now; None if there are none."""
        own = find_log("tombstones", self.path)
        if own is None:
            return None
        counted, void, due = self._decide(own)
        if due:
            self._settle(counted, void)
            own = read_log("tombstones", self.path)
            counted, _, _ = self._decide(own)
        attempts = {attempt for attempt, version in counted.items() if not self._undone(version)} | {None}
        tagged = zip(own.files.paths(), _tags(own, ATTEMPT), strict=True)
        files = [path for path, attempt in tagged if attempt in attempts]
        return self._read(own, files) if files else None

    def prepare(self, rows: DataFrame) -> None:
        """Write rows that will count if the target's commit of this attempt lands."""
        rows = materialize(rows)
        if rows.isEmpty():
            return
        marker = self.writing.stamp.marker
        tags = (marker.app_id, marker.version, self.writing.attempt, self.log.version)
        tagged = rows.select("*", *(F.lit(value).alias(name) for name, value in zip(_TAGS, tags, strict=True)))
        tagged = tagged.withColumn(VERSION, F.lit(None).cast("long")).withColumn(AT, F.current_timestamp())
        if find_log("tombstones", self.path) is None:
            writes.create(tagged, self.path, writes.Layout(partition_by=_TAGS))
        # A marker that a user left in the session's settings would make the write vanish; one of its own keeps it.
        own = {"txnAppId": self.writing.attempt, "txnVersion": "1"} if has_leaked_txn(self.session) else {}
        tagged.write.format("delta").mode("append").options(mergeSchema="true", **own).save(self.path)
        failpoint("prepared")

    def _read(self, own: TableLog, files: list[str]) -> DataFrame:
        schema = select_fields(table_schema(own), {*own.schema} - {*_TAGS})
        paths = [escape_glob(posixpath.join(self.path, unquote(file))) for file in files]
        rows = self.session.read.schema(schema).parquet(*paths)
        for first, last in self._undone_versions:
            rows = rows.where(F.col(VERSION).isNull() | ~F.col(VERSION).between(first, last))
        return rows.where(f"NOT ({self._expired()})").drop(AT, VERSION)

    @cached_property
    def _undone_versions(self) -> list[tuple[int, int]]:
        """The versions that restores undid: ours by their markers, those of others as far as the newest commits show."""
        others = [entry for entry in self.log.newest() if entry.info.get("operation") == "RESTORE" and not entry.facts]
        restores = [(entry.version, entry.info.get("operationParameters", {}).get("version")) for entry in others]
        if any(to is None for _, to in restores):
            facts = {"pipeline": self.writing.work.pipeline, "work": "a RESTORE by time", "path": self.path}
            raise TombstonesUnknown(target=self.writing.work.target, **facts)
        return undone_versions([*self.log.restores, *((at, int(to)) for at, to in restores)], self.log.version)

    def _undone(self, version: int) -> bool:
        return any(first <= version <= last for first, last in self._undone_versions)

    def _decide(self, own: TableLog) -> tuple[dict[str, int], list[str], bool]:
        """Return the attempts that were committed, with the version; the void ones; and whether to record the verdicts."""
        counted: dict[str, int] = {}
        void: list[str] = []
        oldest = datetime.now(UTC)
        for prepared in _attempts(own):
            committed = self._committed(prepared)
            if committed is not None:
                counted[prepared.attempt] = committed
            elif self.log.done(Marker(prepared.work, prepared.generation)):
                # Another attempt committed the work, and Delta does not commit one work twice.
                void.append(prepared.attempt)
            else:
                continue
            oldest = min(oldest, prepared.at)
        decided = len(counted) + len(void)
        return counted, void, decided >= _MANY or (decided > 0 and datetime.now(UTC) - oldest > _LONG_AGO)

    def _committed(self, prepared: _Prepared) -> int | None:
        """Return the version that an attempt committed, by the commits that came after the version it had read."""
        first = prepared.read + 1
        if not self.log.done(Marker(prepared.work, prepared.generation)):
            return None
        if first <= self.log.version and (not self.log.commits or self.log.commits[0] > first):
            facts = {"pipeline": self.writing.work.pipeline, "work": prepared.work, "path": self.path}
            raise TombstonesUnknown(target=self.writing.work.target, **facts)
        for version in self.log.commits[bisect_left(self.log.commits, first) :]:
            if self.log.entry(version).facts.get("attempt") == prepared.attempt:
                return version
        return None

    def _settle(self, counted: Mapping[str, int], void: list[str]) -> None:
        """Record the verdicts: void rows are deleted, the others keep the version of their commit and lose the attempt."""
        self._change(f"{_among(void)} OR ({ATTEMPT} IS NULL AND {self._expired()})")
        if counted:
            versions = (f"WHEN {text_literal(attempt)} THEN {version}L" for attempt, version in counted.items())
            sets = {**dict.fromkeys(_TAGS, "NULL"), VERSION: f"CASE {ATTEMPT} {' '.join(versions)} END"}
            self._change(_among(counted), sets)

    def _expired(self) -> str:
        """Return the condition for rows that are older than declared."""
        if self.age is None:
            return "FALSE"
        return f"unix_micros({AT}) < unix_micros(current_timestamp()) - {int(self.age.total_seconds()) * 1_000_000}L"

    def _change(self, condition: str, sets: Mapping[str, str] | None = None) -> None:
        try:
            writes.change(self.session, self.path, condition, sets)
        except Exception as error:
            # Another writer settles them; the next work does what is left.
            if classify(error) is not ErrorKind.CONFLICT:
                raise


def _among(attempts: Iterable[str]) -> str:
    """Return the condition for the rows of some attempts."""
    listed = ", ".join(map(text_literal, attempts))
    return f"{ATTEMPT} IN ({listed})" if listed else "FALSE"


def _attempts(own: TableLog) -> list[_Prepared]:
    """Return the attempts whose verdict is not recorded, by the partitions of their files."""
    found: dict[str, _Prepared] = {}
    written = own.files.modified.to_pylist()
    for at, work, generation, attempt, read in zip(written, *(_tags(own, name) for name in _TAGS), strict=True):
        if attempt is not None:
            time = datetime.fromtimestamp(at / 1000, UTC)
            found.setdefault(attempt, _Prepared(attempt, work, int(generation), int(read), time))
    return list(found.values())


def _tags(own: TableLog, name: str) -> list[Any]:
    """Return for each file what its partition says of the attempt that wrote it; None, if it is settled."""
    return [value or None for value in own.files.partition(name).to_pylist()]
