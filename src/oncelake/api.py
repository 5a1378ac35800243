"""The project as an object: everything the commands do, from Python, with the same fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.contracts import Log, Reading, Watcher
from oncelake.errors import OncelakeError, UnknownTarget
from oncelake.identity import Whole
from oncelake.lake.address import Address
from oncelake.lake.log import TableLog, find_log, read_log
from oncelake.patterns import PATTERNS
from oncelake.pipelines import Pipeline
from oncelake.planning import Known, choose, make_plan
from oncelake.project import load_project
from oncelake.reporting import Change, Standing, change_of, standing_of
from oncelake.settings import guess
from oncelake.sources import SOURCES
from oncelake.work import Plan, Report, Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Silent:
    """A watcher that says nothing."""

    def planned(self, plan: Plan) -> None:
        """Say nothing."""

    def started(self, work: Any) -> None:
        """Say nothing."""

    def ended(self, outcome: Any) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Say nothing."""


class Project:
    """A loaded project. Its Spark session is started when there is work, and kept for the next call."""

    def __init__(self, root: str | Path = ".", profile: str | None = None, spark: SparkSession | None = None) -> None:
        """Load the project in a folder. A session of your own is used as it is and left as it was."""
        loaded = load_project(Path(root), profile or os.environ.get("ONCELAKE_PROFILE"), SOURCES, PATTERNS)
        self.settings = loaded.settings
        self.pipelines: Mapping[str, Pipeline] = loaded.pipelines
        self.address = Address(self.settings.lake, str(self.settings.root))
        self._spark = spark

    def plan(
        self,
        *names: str,
        date: str | None = None,
        start: str | None = None,
        end: str | None = None,
        now: datetime | None = None,
    ) -> Plan:
        """What `run` would do, and why. `end` is exclusive."""
        request = Request(now or datetime.now(UTC), names, _text(date), _text(start), _text(end))
        return make_plan(self.pipelines, self._known(names), request)

    def run(
        self,
        *names: str,
        date: str | None = None,
        start: str | None = None,
        end: str | None = None,
        now: datetime | None = None,
        watcher: Watcher | None = None,
    ) -> Report:
        """Do what is due (or the date, or the range) and is not done. Works that fail are reported, not raised."""
        from oncelake.lake.ledger import DeltaLedger
        from oncelake.running import Ring, carry_out

        request = Request(now or datetime.now(UTC), names, _text(date), _text(start), _text(end))
        known = self._known(names)
        plan = make_plan(self.pipelines, known, request)
        watcher = watcher or Silent()
        if self.address.one_driver_only and plan.to_do:
            watcher.warn(f"{self.address.lake}: Delta's log store for S3 keeps only one driver safe; run one at a time")
        ledger = DeltaLedger(self.address, watcher.warn)
        return carry_out(
            plan, self.pipelines, Ring(self.address, self.session, ledger, watcher, self.settings.patience)
        )

    def status(self, *names: str, now: datetime | None = None) -> list[Standing]:
        """Where every target of the pipelines stands."""
        now = now or datetime.now(UTC)
        chosen = choose(self.pipelines, names)
        return [
            standing_of(pipeline, pattern, self._log(pattern.target), now)
            for pipeline in chosen
            for pattern in pipeline.writes
        ]

    def history(self, target: str, limit: int | None = None) -> list[Change]:
        """Who wrote what to a table, newest first, as far back as its log goes."""
        known = sorted({table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables})
        if target not in known:
            raise UnknownTarget(name=target, guess=guess(target, known), known=", ".join(known))
        log = read_log(target, self.address.table(target))
        return [change_of(entry) for entry, _ in zip(log.history(), range(limit or len(log.commits)), strict=False)]

    def ledger(self) -> list[dict[str, Any]]:
        """Every attempt there was, oldest first, as far as the ledger knows."""
        from oncelake.lake.ledger import DeltaLedger

        return DeltaLedger(self.address, Silent().warn).entries()

    def session(self) -> SparkSession:
        """The project's Spark session, started if need be."""
        if self._spark is None:
            from oncelake.lake.session import open_session

            self._spark = open_session(self.settings.spark)
        return self._spark

    def _known(self, names: tuple[str, ...]) -> Known:
        logs: dict[str, Log | None] = {}
        chosen = choose(self.pipelines, names)
        wanted = {table for pipeline in chosen for table in pipeline.writes_tables | pipeline.reads_tables}
        owned = {table for pipeline in self.pipelines.values() for table in pipeline.writes_tables}
        for table in wanted & owned:
            logs[table] = self._log(table)
        return Known(logs, {p.name: self._pins(p) for p in chosen if p.grid is None})

    def _log(self, table: str) -> TableLog | None:
        return find_log(table, self.address.table(table))

    def _pins(self, pipeline: Pipeline) -> Mapping[str, Any] | None:
        """What a pipeline without intervals would read now; None if something of it is missing, which the run will say."""
        reading = Reading(pipeline.name, Whole(), None, self.address, pipeline.where)
        with suppress(OncelakeError):
            return {name: dict(source.pin(reading)) for name, source in pipeline.reads.items()}
        return None


def open(  # noqa: A001  once.open("project") is how it reads
    root: str | Path = ".", profile: str | None = None, spark: SparkSession | None = None
) -> Project:
    """Open the project in a folder."""
    return Project(root, profile, spark)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
