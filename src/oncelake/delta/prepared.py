"""Prepared rows: the transactional outbox of the lake.

Delta commits one table at a time, and the target's commit is the decision. Rows that belong to a work but not into its
table (tombstones, events that opened no version) are appended here before that commit, tagged with the attempt. They
count once the target's log has the commit of that attempt, and are void as soon as the log has the work's marker by
another one. What is decided is settled now and then, so that the log need not be asked for ever.

Attempts are partitions, so that the two logs, read without Spark, say which files count.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F

from oncelake.delta import writes
from oncelake.delta.conflicts import ErrorKind, classify
from oncelake.delta.log import TableLog, find_log, read_log
from oncelake.delta.targets import table_schema
from oncelake.model.contracts import Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.markers import Marker
from oncelake.spark.columns import select_fields
from oncelake.spark.session import has_leaked_txn
from oncelake.storage.listing import escape_glob

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WORK, GENERATION, ATTEMPT, AT = (f"__once_{name}" for name in ("work", "generation", "attempt", "at"))
_TAGS = (WORK, GENERATION, ATTEMPT)
# Attempts are settled once this many are decided: each settling is a commit or two.
_MANY = 8


@dataclass(frozen=True)
class PreparedRows:
    """The rows prepared for one target, beside its table."""

    session: SparkSession
    writing: Writing
    log: TableLog
    age: timedelta | None = None

    @property
    def path(self) -> str:
        """Where they lie."""
        return f"{self.writing.internal}/tombstones/{self.writing.work.target}"

    def rows(self) -> DataFrame | None:
        """Return the rows that count now; None if there are none."""
        own = find_log("tombstones", self.path)
        if own is None:
            return None
        counted, void = self._decided(own)
        if len(counted) + len(void) >= _MANY:
            self._settle(counted, void)
            own = read_log("tombstones", self.path)
        attempts = {*counted, None}
        files = [file["path"] for file in own.files if _tags(file)[ATTEMPT] in attempts]
        return self._read(own, files) if files else None

    def prepare(self, rows: DataFrame) -> None:
        """Write rows that will count if the target's commit of this attempt lands."""
        rows = rows.localCheckpoint()
        if rows.isEmpty():
            return
        work = self.writing.work
        facts = {WORK: work.marker.app_id, GENERATION: work.generation, ATTEMPT: self.writing.attempt}
        tagged = rows.select("*", *(F.lit(value).alias(name) for name, value in facts.items()))
        tagged = tagged.withColumn(AT, F.current_timestamp())
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
        return rows.where(~self._expired()).drop(AT)

    def _decided(self, own: TableLog) -> tuple[list[str], list[str]]:
        """Return the attempts whose commit is in the log, and those that will never have one."""
        works: dict[tuple[str, int], list[str]] = {}
        for file in sorted(own.files, key=lambda file: file["modificationTime"]):
            tags = _tags(file)
            if tags[ATTEMPT] is not None:
                attempts = works.setdefault((tags[WORK], int(tags[GENERATION])), [])
                attempts += [tags[ATTEMPT]] if tags[ATTEMPT] not in attempts else []
        counted: list[str] = []
        void: list[str] = []
        for (app_id, generation), attempts in works.items():
            if self.log.done(Marker(app_id, generation)):
                chosen = self._committed(app_id, generation, attempts)
                counted += [chosen]
                void += [attempt for attempt in attempts if attempt != chosen]
        return counted, void

    def _committed(self, app_id: str, generation: int, attempts: list[str]) -> str:
        commit = self.log.commit(app_id)
        if commit is not None and commit.facts.get("generation") == generation:
            return str(commit.facts.get("attempt"))
        # The log has been cleaned up, or a restatement came after. Attempts come one after another, and none is made
        # once the work is done: the last was the one.
        return attempts[-1]

    def _settle(self, counted: list[str], void: list[str]) -> None:
        attempt = F.col(ATTEMPT)
        self._change(attempt.isin(void) | (attempt.isNull() & self._expired()))
        # Settled rows have no attempt.
        self._change(attempt.isin(counted), dict.fromkeys(_TAGS, F.lit(None)))

    def _expired(self) -> Column:
        """Return the condition for rows that are older than declared."""
        if self.age is None:
            return F.lit(False)
        return F.unix_micros(AT) < F.unix_micros(F.current_timestamp()) - int(self.age.total_seconds()) * 1_000_000

    def _change(self, condition: Column, sets: Mapping[str, Column] | None = None) -> None:
        try:
            writes.change(self.session, self.path, condition, sets)
        except Exception as error:
            # Another writer settles them; the next work does what is left.
            if classify(error) is not ErrorKind.CONFLICT:
                raise


def _tags(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file's partition says of the attempt that wrote it; nothing, if it is settled."""
    return {name: file["partitionValues"].get(name) or None for name in _TAGS}
