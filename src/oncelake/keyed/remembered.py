"""What a keyed table must remember and no reader of it should see: deletes, and events that opened no version.

Delta commits one table at a time, and the target's commit is the decision. What a work would remember is appended here
before it, as prepared by that attempt. It counts once the target's log has the commit of that attempt; what was prepared
for a commit that never came does not. A work has one commit per generation, so as soon as its marker is there, everything
other attempts prepared for it is known to be void. What is decided is settled here now and then, so that the log need not
be asked for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from oncelake.contracts import Writing
from oncelake.identity import Marker
from oncelake.lake import verbs
from oncelake.lake.conflicts import Meaning, meaning
from oncelake.lake.log import TableLog, find_log
from oncelake.points import reach

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STATE, WORK, GENERATION, ATTEMPT, AT = (f"__once_{name}" for name in ("state", "work", "generation", "attempt", "at"))
_OWN = (STATE, WORK, GENERATION, ATTEMPT, AT)
_PREPARED, _KEPT = "prepared", "kept"
# Attempts are settled once this many are decided: each settling is a commit or two.
_MANY = 8


@dataclass(frozen=True)
class Remembered:
    """What is remembered for one target, beside its table."""

    session: SparkSession
    writing: Writing
    log: TableLog
    age: timedelta | None = None

    @property
    def path(self) -> str:
        """Where it lies."""
        return f"{self.writing.own}/remembered/{self.writing.work.target}"

    def rows(self) -> DataFrame | None:
        """What counts now; None if there is nothing."""
        if find_log("remembered", self.path) is None:
            return None
        table = self.session.read.format("delta").load(self.path)
        counted, void = self._decided(table)
        if len(counted) + len(void) >= _MANY:
            self._settle(counted, void)
            table = self.session.read.format("delta").load(self.path)
        counts = (F.col(STATE) == _KEPT) | F.col(ATTEMPT).isin(counted)
        return table.where(counts & ~self._forgotten()).drop(*_OWN)

    def prepare(self, rows: DataFrame) -> None:
        """Remember these rows, if the target's commit of this attempt comes."""
        rows = rows.localCheckpoint()
        if rows.isEmpty():
            return
        work = self.writing.work
        facts = {STATE: _PREPARED, WORK: work.marker.app_id, GENERATION: work.generation, ATTEMPT: self.writing.attempt}
        tagged = rows.select("*", *(F.lit(value).alias(name) for name, value in facts.items()))
        tagged = tagged.withColumn(AT, F.current_timestamp())
        if find_log("remembered", self.path) is None:
            verbs.create(tagged, self.path, verbs.Layout(partition_by=(STATE,)))
        # A marker of its own, because one that a user left in the session's settings would make the write vanish.
        marked = {"txnAppId": self.writing.attempt, "txnVersion": "1", "mergeSchema": "true"}
        tagged.write.format("delta").mode("append").options(**marked).save(self.path)
        reach("prepared")

    def _decided(self, table: DataFrame) -> tuple[list[str], list[str]]:
        """The attempts whose commit is there, and those that will never have one."""
        prepared = table.where(F.col(STATE) == _PREPARED).groupBy(WORK, GENERATION, ATTEMPT)
        works: dict[tuple[str, int], list[str]] = {}
        for row in sorted(prepared.agg(F.max(AT).alias(AT)).collect(), key=lambda row: (row[AT], row[ATTEMPT])):
            works.setdefault((row[WORK], row[GENERATION]), []).append(row[ATTEMPT])
        counted: list[str] = []
        void: list[str] = []
        for (app_id, generation), attempts in works.items():
            if self.log.done(Marker(app_id, generation)):
                chosen = self._committed(app_id, generation, attempts)
                counted += [chosen]
                void += [attempt for attempt in attempts if attempt != chosen]
        return counted, void

    def _committed(self, app_id: str, generation: int, attempts: Sequence[str]) -> str:
        commit = self.log.commit(app_id)
        if commit is not None and commit.facts.get("generation") == generation:
            return str(commit.facts.get("attempt"))
        # The log has been cleaned up, or a restatement came after. Attempts come one after another, and none is made
        # once the work is done: the last was the one.
        return attempts[-1]

    def _settle(self, counted: list[str], void: list[str]) -> None:
        prepared = F.col(STATE) == _PREPARED
        self._housekeep(prepared & F.col(ATTEMPT).isin(counted), {STATE: F.lit(_KEPT)})
        self._housekeep((prepared & F.col(ATTEMPT).isin(void)) | ((F.col(STATE) == _KEPT) & self._forgotten()))

    def _forgotten(self) -> Column:
        """Whether it was remembered longer ago than was asked for."""
        if self.age is None:
            return F.lit(False)
        return F.unix_micros(AT) < F.unix_micros(F.current_timestamp()) - int(self.age.total_seconds()) * 1_000_000

    def _housekeep(self, condition: Column, sets: Mapping[str, Column] | None = None) -> None:
        try:
            verbs.change(self.session, self.path, condition, sets)
        except Exception as error:
            # Somebody else is at it; the next work will settle what is left.
            if meaning(error) is not Meaning.CONFLICT:
                raise
