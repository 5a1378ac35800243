"""The project as an object: everything the commands do, from Python, with the same fields."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.contracts import Log, Reading, Watcher
from oncelake.errors import Lost, OncelakeError, UnknownTarget
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
    from pyspark.sql import DataFrame, SparkSession

    from oncelake.keyed.duplicates import Repair
    from oncelake.lake.fingerprint import Differences, Fingerprint


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
        self.profile = profile or os.environ.get("ONCELAKE_PROFILE")
        loaded = load_project(Path(root), self.profile, SOURCES, PATTERNS)
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
        return self.carry_out(self.plan(*names, date=date, start=start, end=end, now=now), watcher)

    def carry_out(self, plan: Plan, watcher: Watcher | None = None) -> Report:
        """Do what a plan says. Works that fail are reported, not raised."""
        from oncelake.lake.ledger import DeltaLedger
        from oncelake.running import Ring, carry_out

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

    def repair(self, target: str, keys: Iterable[str], keep: Iterable[str] = (), dry_run: bool = False) -> Repair:
        """Remove rows of a key that are there more than once, in one commit; those that differ only if `keep` ranks them."""
        from oncelake.keyed.duplicates import repaired
        from oncelake.lake.lock import Busy, table_lock

        path, keys = self.address.table(target), tuple(keys)
        read_log(target, path)  # what is not there needs no session
        session = self.session()
        try:
            with table_lock(self.address.lake, target, self.settings.patience, lambda: False):
                return repaired(session, read_log(target, path), keys, tuple(keep), dry_run)
        except Busy as busy:
            again = f"oncelake repair {target} --keys {','.join(keys)}"
            raise Lost(target=target, holder=busy.holder, again=again) from busy

    def ledger(self) -> list[dict[str, Any]]:
        """Every attempt there was, oldest first, as far as the ledger knows."""
        from oncelake.lake.ledger import DeltaLedger

        return DeltaLedger(self.address, Silent().warn).entries()

    def in_sandbox(self, lake: str, *names: str) -> Project:
        """The same project with a lake of its own: what the named pipelines write goes there, the rest is only read."""
        written = {table for pipeline in choose(self.pipelines, names) for table in pipeline.writes_tables}
        known = {table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables}
        sandboxed = copy(self)
        sandboxed.address = Address(lake, self.address.root, {t: self.address.table(t) for t in known - written})
        return sandboxed

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


def fingerprint(
    content: DataFrame | str | Path,
    *,
    exclude: Iterable[str] = (),
    by: Iterable[str] = (),
    quick: bool = False,
    version: int | None = None,
) -> Fingerprint:
    """What a frame, or the Delta table at a path, holds, as a short text: equal for equal content, whatever the order.

    Columns are left out only by `exclude`. With `by`, or for a partitioned table, it also says which part differs.
    """
    from oncelake.lake import fingerprint as fingerprints
    from oncelake.lake.session import open_session

    if isinstance(content, str | Path):
        session = open_session({})
        return fingerprints.fingerprint_table(session, str(content), version=version, exclude=exclude, quick=quick)
    return fingerprints.fingerprint(content, exclude=exclude, by=by, quick=quick)


def differences(
    left: DataFrame | str | Path, right: DataFrame | str | Path, *, exclude: Iterable[str] = (), limit: int = 5
) -> Differences:
    """How two frames or Delta tables differ: how many rows only one of them has, and examples of either side."""
    from oncelake.lake import fingerprint as fingerprints

    return fingerprints.differences(_frame(left), _frame(right), exclude=exclude, limit=limit)


def latest(frame: DataFrame, keys: str | Iterable[str], by: str | Iterable[str] = ()) -> DataFrame:
    """The latest row of every key: the one with the greatest `by`, the first column first, a null below everything.

    Rows that are equal there are told apart by their content, so that every run picks the same one, whatever the order
    they come in. Null is a key like any other here.
    """
    from oncelake.keyed.latest import latest as chosen

    return chosen(frame, keys, by)


def _frame(content: DataFrame | str | Path) -> DataFrame:
    from oncelake.lake.session import open_session
    from oncelake.lake.verbs import table_at

    if not isinstance(content, str | Path):
        return content
    return table_at(open_session({}), str(content), read_log(str(content), str(content)).version)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
