"""The project as an object: everything the commands do, from Python, with the same fields."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from oncelake.declare.loading import load_project
from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog, find_log, read_log
from oncelake.errors import TableBusy, UnknownTarget
from oncelake.errors.base import did_you_mean
from oncelake.model.contracts import Log, Watcher
from oncelake.model.intervals import Interval, parse_interval
from oncelake.model.work import FAILED_BEFORE, RESTATED, STALE, Plan, Report, Request
from oncelake.operations.history import HistoryEntry, history_entry
from oncelake.operations.status import StatusInputs, TargetStatus, target_status
from oncelake.patterns import PATTERNS
from oncelake.planning.lake_state import read_lake_state
from oncelake.planning.plan import make_plan, select_pipelines
from oncelake.planning.scope import scope_of
from oncelake.sources import SOURCES
from oncelake.storage.paths import Address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelake.delta.fingerprint import Differences, Fingerprint
    from oncelake.keyed.repair import Repair
    from oncelake.operations.restate import RestateRequest
    from oncelake.operations.restore import Restore
    from oncelake.running.attempt import RunContext


class RunOptions(TypedDict, total=False):
    """What may be asked of a plan beside the names of pipelines."""

    date: str | None
    start: str | None
    end: str | None
    now: datetime | None
    failed: bool
    stale: bool
    newest_first: bool
    limit: int | None


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

    def plan(self, *names: str, **options: Unpack[RunOptions]) -> Plan:
        """What `run` would do, and why. `end` is exclusive."""
        request = _request(names, options)
        failed = self._failed() if options.get("failed") else {}
        known = read_lake_state(self.pipelines, select_pipelines(self.pipelines, names), self.address, request, failed)
        return make_plan(self.pipelines, known, request)

    def run(self, *names: str, watcher: Watcher | None = None, jobs: int = 1, **options: Unpack[RunOptions]) -> Report:
        """Do what is due (or the date, or the range) and is not done. Works that fail are reported, not raised."""
        return self.apply(self.plan(*names, **options), watcher, jobs)

    def restatement(
        self, name: str, *, downstream: bool = False, **options: Unpack[RunOptions]
    ) -> list[RestateRequest]:
        """What `restate` would do again, and in which generation."""
        from oncelake.operations.restate import downstream_of, refuse_never_done, restate_requests

        (pipeline,) = select_pipelines(self.pipelines, [name])
        span = scope_of(pipeline, _request((name,), options))[0].span
        found = restate_requests(pipeline, span, self._logs(pipeline))
        refuse_never_done(pipeline, span, found)
        for other, reached in downstream_of(name, span, self.pipelines) if downstream else ():
            found += restate_requests(other, reached, self._logs(other))
        return found

    def downstream(self, name: str) -> list[str]:
        """The pipelines that read what one writes, and what reads theirs."""
        from oncelake.operations.restate import downstream_of

        select_pipelines(self.pipelines, [name])
        return [pipeline.name for pipeline, _ in downstream_of(name, None, self.pipelines)]

    def restate(
        self, name: str, *, downstream: bool = False, watcher: Watcher | None = None, **options: Unpack[RunOptions]
    ) -> Report:
        """Do again what is done, in the next generation; with `downstream` also what was made from it."""
        from oncelake.operations.restate import request_restate
        from oncelake.running.execute import execute

        found = self.restatement(name, downstream=downstream, **options)
        context = self._ring(watcher or Silent())
        for each in found:
            if not each.pending:
                request_restate(each, context)
        names = [name, *(self.downstream(name) if downstream else ())]
        request = replace(_request(tuple(names), {"now": options["now"]} if "now" in options else {}), only=RESTATED)
        known = read_lake_state(self.pipelines, select_pipelines(self.pipelines, names), self.address, request, {})
        return execute(make_plan(self.pipelines, known, request), self.pipelines, context)

    def apply(self, plan: Plan, watcher: Watcher | None = None, jobs: int = 1) -> Report:
        """Do what a plan says, so many slices at once. Works that fail are reported, not raised."""
        from oncelake.running.execute import execute

        watcher = watcher or Silent()
        if self.address.one_driver_only and plan.to_do:
            watcher.warn(f"{self.address.lake}: Delta's log store for S3 keeps only one driver safe; run one at a time")
        return execute(plan, self.pipelines, replace(self._ring(watcher), jobs=jobs))

    def _ring(self, watcher: Watcher) -> RunContext:
        from oncelake.listeners.ledger import DeltaLedger
        from oncelake.running.attempt import RunContext

        ledger = DeltaLedger(self.address, watcher.warn)
        return RunContext(self.address, self.session, ledger, watcher, self.settings.lock_timeout)

    def status(self, *names: str, now: datetime | None = None) -> list[TargetStatus]:
        """Where every target of the pipelines stands."""
        from oncelake.storage.lock import holders

        request = Request(now or datetime.now(UTC), names)
        chosen = select_pipelines(self.pipelines, names)
        known = read_lake_state(self.pipelines, chosen, self.address, request, {})
        seen = StatusInputs(holders(self.address.lake), self._failures(), known.stale)
        logs = {table: log for table, log in known.logs.items() if isinstance(log, TableLog)}
        return [
            target_status(pipeline, pattern, logs.get(pattern.target), seen, request.now)
            for pipeline in chosen
            for pattern in pipeline.writes
        ]

    def history(self, target: str, limit: int | None = None) -> list[HistoryEntry]:
        """Who wrote what to a table, newest first, as far back as its log goes."""
        known = sorted({table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables})
        if target not in known:
            raise UnknownTarget(name=target, did_you_mean=did_you_mean(target, known), known=", ".join(known))
        log = read_log(target, self.address.table(target))
        return [history_entry(entry) for entry, _ in zip(log.history(), range(limit or len(log.commits)), strict=False)]

    def repair(self, target: str, keys: Iterable[str], keep: Iterable[str] = (), dry_run: bool = False) -> Repair:
        """Remove rows of a key that are there more than once, in one commit; those that differ only if `keep` ranks them."""
        from oncelake.keyed.repair import repair_duplicates
        from oncelake.storage.lock import Busy, table_lock

        path, keys = self.address.table(target), tuple(keys)
        read_log(target, path)  # what is not there needs no session
        session = self.session()
        try:
            with table_lock(self.address.lake, target, self.settings.lock_timeout, lambda: False):
                return repair_duplicates(session, read_log(target, path), keys, tuple(keep), dry_run)
        except Busy as busy:
            again = f"oncelake repair {target} --keys {','.join(keys)}"
            raise TableBusy(target=target, holder=busy.holder, again=again) from busy

    def restore(self, target: str, to: int, dry_run: bool = False) -> Restore:
        """Go back to an older version of a table, knowingly: what that undoes is to be done again."""
        from oncelake.operations.restore import apply_restore, plan_restore
        from oncelake.storage.lock import Busy, table_lock

        path = self.address.table(target)
        try:
            with table_lock(self.address.lake, target, self.settings.lock_timeout, lambda: False, f"restore to {to}"):
                planned = plan_restore(read_log(target, path), to, self.pipelines)
                if dry_run:
                    return planned
                apply_restore(planned, path)
                return replace(planned, version=read_log(target, path).version)
        except Busy as busy:
            again = f"oncelake restore {target} --to {to}"
            raise TableBusy(target=target, holder=busy.holder, again=again) from busy

    def ledger(self) -> list[dict[str, Any]]:
        """Every attempt there was, oldest first, as far as the ledger knows."""
        from oncelake.listeners.ledger import DeltaLedger

        return DeltaLedger(self.address, Silent().warn).entries()

    def in_sandbox(self, lake: str, *names: str) -> Project:
        """The same project with a lake of its own: what the named pipelines write goes there, the rest is only read."""
        written = {table for pipeline in select_pipelines(self.pipelines, names) for table in pipeline.writes_tables}
        known = {table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables}
        sandboxed = copy(self)
        sandboxed.address = Address(lake, self.address.root, {t: self.address.table(t) for t in known - written})
        return sandboxed

    def session(self) -> SparkSession:
        """The project's Spark session, started if need be."""
        if self._spark is None:
            from oncelake.spark.session import open_session

            self._spark = open_session(self.settings.spark)
        return self._spark

    def _logs(self, pipeline: Pipeline) -> dict[str, Log | None]:
        return {table: self._log(table) for table in pipeline.writes_tables}

    def _failures(self) -> list[dict[str, Any]]:
        from oncelake.listeners.ledger import DeltaLedger

        return DeltaLedger(self.address, Silent().warn).failures()

    def _failed(self) -> dict[str, list[Interval]]:
        """What failed when it was last tried, as time by pipeline."""
        failed: dict[str, list[Interval]] = {}
        for entry in self._failures():
            if entry["start"]:
                failed.setdefault(entry["pipeline"], []).append(parse_interval(f"{entry['start']}..{entry['end']}"))
        return failed

    def _log(self, table: str) -> TableLog | None:
        return find_log(table, self.address.table(table))


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
    from oncelake.delta import fingerprint as fingerprints
    from oncelake.spark.session import open_session

    if isinstance(content, str | Path):
        session = open_session({})
        return fingerprints.fingerprint_table(session, str(content), version=version, exclude=exclude, quick=quick)
    return fingerprints.fingerprint(content, exclude=exclude, by=by, quick=quick)


def differences(
    left: DataFrame | str | Path, right: DataFrame | str | Path, *, exclude: Iterable[str] = (), limit: int = 5
) -> Differences:
    """How two frames or Delta tables differ: how many rows only one of them has, and examples of either side."""
    from oncelake.delta import fingerprint as fingerprints

    return fingerprints.differences(_frame(left), _frame(right), exclude=exclude, limit=limit)


def latest(frame: DataFrame, keys: str | Iterable[str], by: str | Iterable[str] = ()) -> DataFrame:
    """The latest row of every key: the one with the greatest `by`, the first column first, a null below everything.

    Rows that are equal there are told apart by their content, so that every run picks the same one, whatever the order
    they come in. Null is a key like any other here.
    """
    from oncelake.keyed.latest import latest as chosen

    return chosen(frame, keys, by)


def _frame(content: DataFrame | str | Path) -> DataFrame:
    from oncelake.delta.writes import table_at
    from oncelake.spark.session import open_session

    if not isinstance(content, str | Path):
        return content
    return table_at(open_session({}), str(content), read_log(str(content), str(content)).version)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _request(names: tuple[str, ...], options: RunOptions) -> Request:
    only = FAILED_BEFORE if options.get("failed") else STALE if options.get("stale") else None
    start, end, date = (_text(options.get(key)) for key in ("start", "end", "date"))
    order = options.get("newest_first", False)
    return Request(options.get("now") or datetime.now(UTC), names, date, start, end, only, order, options.get("limit"))
