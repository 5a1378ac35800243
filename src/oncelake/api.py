"""The Python API: a project as an object, with a method for each command and the same fields as `--json`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from oncelake.declare.catalog_tables import catalog_tables, refuse_own_targets
from oncelake.declare.graph import former_names, sort_upstream_first
from oncelake.declare.loading import load_project
from oncelake.declare.pipelines import Pipeline
from oncelake.declare.settings import Settings
from oncelake.delta.catalog import known_locations, locate
from oncelake.delta.tables import Lake, reaching, require_log
from oncelake.errors import BadDeclaration, UnknownTarget
from oncelake.errors.base import did_you_mean
from oncelake.model.contracts import Listener, Log
from oncelake.model.events import Warned
from oncelake.model.intervals import Interval
from oncelake.model.names import lake_path
from oncelake.model.source_location import declared_at
from oncelake.model.work import FAILED_BEFORE, RESTATED, STALE, Outcome, Plan, Report, Request
from oncelake.operations.arrivals import Arrivals, choose
from oncelake.operations.history import HistoryEntry, history_entry
from oncelake.operations.status import StatusInputs, TargetStatus, target_status
from oncelake.operations.stream_commands import StreamCommands
from oncelake.patterns import PATTERNS
from oncelake.planning.batches import freeze_arrivals, settle_arrivals
from oncelake.planning.lake_state import read_lake_state
from oncelake.planning.plan import make_plan, scope_pipelines, select_pipelines
from oncelake.planning.scope import scope_of
from oncelake.planning.writers import Identity
from oncelake.sources import SOURCES
from oncelake.spark.connect import is_remote
from oncelake.storage.options import use_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelake.keyed.repair import Repair
    from oncelake.listeners.ledger import DeltaLedger
    from oncelake.operations.rebuild import Rebuild
    from oncelake.operations.restate import Downstream, RestateRequest
    from oncelake.operations.restore import Restore
    from oncelake.running.context import RunContext
    from oncelake.streaming.watching import StreamWatch


class RunOptions(TypedDict, total=False):
    """The options of `plan`, `run` and `restate` besides the names of pipelines."""

    date: str | None
    start: str | None
    end: str | None
    now: datetime | None
    failed: bool
    stale: bool
    newest_first: bool
    limit: int | None


class Project(StreamCommands):
    """A loaded project. Its Spark session is started when there is work, and reused by the next call."""

    def __init__(self, root: str | Path = ".", profile: str | None = None, spark: SparkSession | None = None) -> None:
        """Load the project in a folder. A session passed as `spark` is used and its settings are not changed."""
        self.profile = profile or os.environ.get("ONCELAKE_PROFILE")
        loaded = load_project(Path(root), self.profile, SOURCES, PATTERNS)
        self.has_folder = True
        self._set_up(loaded.settings, loaded.pipelines, spark)

    @classmethod
    def of(
        cls, *pipelines: Pipeline, lake: str | Path, spark: SparkSession | None = None, root: str | Path = "."
    ) -> Project:
        """Return a project of pipelines declared in this process, without a folder: for notebooks and tests.

        Relative paths of file sources start at `root`.
        """
        project = cls.__new__(cls)
        project.profile, project.has_folder = None, False
        for pipeline in pipelines:
            if not isinstance(pipeline, Pipeline):
                raise BadDeclaration(where=declared_at(), problem=f"Project.of takes pipelines, not {pipeline!r}")
        try:
            place = lake_path(lake)
        except ValueError as error:
            raise BadDeclaration(where=declared_at(), problem=str(error)) from error
        project._set_up(Settings(Path(root).resolve(), place), sort_upstream_first(pipelines), spark)  # noqa: SLF001  of its own class
        return project

    def _set_up(self, settings: Settings, pipelines: Mapping[str, Pipeline], spark: SparkSession | None) -> None:
        self.settings, self.pipelines, self._spark = settings, pipelines, spark
        self._owns_session, self._workers_checked = spark is None, False
        formerly, remote = former_names(pipelines.values()), is_remote(settings.spark, spark)
        lake, root, checkpoints = settings.lake, str(settings.root), settings.checkpoints
        self.lake = Lake(lake, root, formerly=formerly, remote=remote, checkpoints=checkpoints)
        use_settings(settings.lake, settings.store)
        if names := catalog_tables(pipelines.values()):
            self._place_catalog({name: path for name, path in known_locations(lake).items() if name in names})

    def plan(self, *names: str, **options: Unpack[RunOptions]) -> Plan:
        """Return what `run` would do, and why. `end` is exclusive."""
        problems: list[str] = []
        failed = self._ledger(problems.append).failed_intervals() if options.get("failed") else {}
        plan = self._plan(_request(names, options), failed)
        return replace(plan, notes=(*plan.notes, *problems))

    def run(
        self,
        *names: str,
        listener: Listener | None = None,
        jobs: int = 1,
        accept_new_input: bool = False,
        **options: Unpack[RunOptions],
    ) -> Report:
        """Run everything due (or the date, or the range) that is not done. Works that fail are reported, not raised."""
        return self.apply(self.plan(*names, **options), listener, jobs, accept_new_input)

    def apply(
        self, plan: Plan, listener: Listener | None = None, jobs: int = 1, accept_new_input: bool = False
    ) -> Report:
        """Execute a plan, up to `jobs` slices concurrently. Works that fail are reported, not raised.

        The rest of an interrupted work with several targets is written from the input of its finished targets; with
        `accept_new_input` from the input as it is now.
        """
        from oncelake.delta.lake_session import store_problems
        from oncelake.running.execute import execute

        context = replace(self._context(listener), jobs=jobs, accept_new_input=accept_new_input)
        for problem in store_problems(self.lake.path, self._spark) if plan.to_do else ():
            context.warn(problem)
        report = execute(freeze_arrivals(plan, self.pipelines, self.lake), self.pipelines, context)
        settle_arrivals(report, self.pipelines, self.lake)
        return report

    def watch(self, *names: str, seconds: float, listener: Listener | None = None) -> StreamWatch:
        """Return the streams of the pipelines, to be run together inside a `with` block, with a look every so many seconds."""
        from oncelake.streaming.watching import StreamWatch

        chosen = [pipeline for pipeline in select_pipelines(self.pipelines, names) if pipeline.stream]
        return StreamWatch(chosen, self._context(listener), seconds)

    def restatement(
        self, name: str, *, downstream: bool = False, **options: Unpack[RunOptions]
    ) -> list[RestateRequest]:
        """Return the requests that `restate` would make: the works to reprocess, and their generation.

        Downstream pipelines that read by another time column are not included: their affected intervals are known only
        after the rows are written.
        """
        from oncelake.operations.restate import refuse_never_done, restate_requests

        (pipeline,) = select_pipelines(self.pipelines, [name])
        span = scope_of(pipeline, _request((name,), options))[0].span
        if pipeline.arrival is not None:
            found = Arrivals.of(pipeline, self.lake, span).restatement()
            refuse_never_done(pipeline, span, found)
            return found
        found = restate_requests(pipeline, span, self._logs(pipeline))
        refuse_never_done(pipeline, span, found)
        for reached in self._downstream(name, span) if downstream else ():
            if reached.known:
                found += restate_requests(reached.pipeline, reached.span, self._logs(reached.pipeline))
        return found

    def downstream(self, name: str) -> list[str]:
        """Return the pipelines that read the targets of a pipeline, directly or through others."""
        select_pipelines(self.pipelines, [name])
        return [reached.pipeline.name for reached in self._downstream(name, None)]

    def restate(
        self, name: str, *, downstream: bool = False, listener: Listener | None = None, **options: Unpack[RunOptions]
    ) -> Report:
        """Reprocess finished work in the next generation; with `downstream` also the work that read its rows."""
        from oncelake.operations.restate import request_restate
        from oncelake.running.execute import execute

        found, context = self.restatement(name, downstream=downstream, **options), self._context(listener)
        if self.pipelines[name].arrival is not None:
            span = scope_of(self.pipelines[name], _request((name,), options))[0].span
            for note in Arrivals.of(self.pipelines[name], self.lake, span).freeze_restatement():
                context.warn(note)
            names = (name, *(self.downstream(name) if downstream else ()))
            return self.apply(self._plan(replace(_request(names, {}), frozen_only=True)), listener)
        for request in found:
            if not request.pending:
                request_restate(request, context)
        reached = sorted(self._downstream(name, None), key=lambda each: not each.planned_first) if downstream else []
        now: RunOptions = {"now": options["now"]} if "now" in options else {}
        names = (name, *(each.pipeline.name for each in reached if each.planned_first))
        plan, later = self._plan(replace(_request(names, now), only=RESTATED)), reached[len(names) - 1 :]
        requests = (replace(_request((each.pipeline.name,), now), only=each.only) for each in later)
        return execute(plan, self.pipelines, context, (partial(self._plan, request) for request in requests))

    def _downstream(self, name: str, span: Interval | None) -> Iterator[Downstream]:
        from oncelake.operations.restate import downstream_of

        return downstream_of(name, span, self.pipelines, lambda table: self.lake.table(table).last_log())

    def status(self, *names: str, now: datetime | None = None) -> list[TargetStatus]:
        """Return the status of each target of the pipelines."""
        from oncelake.storage.lock import holders
        from oncelake.storage.object_store import ask_all

        request = Request(now or datetime.now(UTC), names)
        chosen = select_pipelines(self.pipelines, names)
        problems: list[str] = []
        known, failed, running = ask_all(
            self.lake.path,
            lambda: read_lake_state(self.pipelines, chosen, self.lake, request, {}),
            self._ledger(problems.append).failures,
            lambda: holders(self.lake.path),
        )
        notes, identity = partial(known.source_notes, quick=True), self._identity()
        inputs = StatusInputs(running, failed, known.stale, identity, notes, known.waiting, known.streams, problems)
        return [
            target_status(pipeline, pattern, self.lake.table(pattern.target).last_log(), inputs, request.now)
            for pipeline in chosen
            for pattern in pipeline.writes
        ]

    def history(self, target: str, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits of a table (who wrote what), newest first, as far back as its log goes."""
        known = sorted({table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables})
        if target not in known:
            raise UnknownTarget(name=target, did_you_mean=did_you_mean(target, known), known=", ".join(known))
        table = self.lake.table(target)
        with reaching(table.path):
            return [history_entry(entry) for entry in require_log(table).newest(limit)]

    def arrivals(self, name: str) -> Arrivals:
        """Return the files and the quarantine of a pipeline that is driven by arrivals."""
        (pipeline,) = select_pipelines(self.pipelines, [name])
        return Arrivals.of(pipeline, self.lake)

    def retry_quarantine(self, name: str, numbers: Iterable[int] = (), listener: Listener | None = None) -> Report:
        """Read what is in quarantine once more, as a work of its own; of files, also whatever else has arrived."""
        arrivals, context = self.arrivals(name), self._context(listener)
        rows = choose(arrivals.quarantine(), numbers)
        if arrivals.pipeline.stream is not None:
            from oncelake.streaming.retrying import retry_messages

            return retry_messages(arrivals.pipeline, rows, context)
        for note in arrivals.retry(rows):
            context.warn(note)
        return self.run(name, listener=listener)

    def repair(self, target: str, keys: Iterable[str], keep: Iterable[str] = (), dry_run: bool = False) -> Repair:
        """Remove duplicate rows of a key in one commit. Rows that differ are removed only if `keep` ranks them."""
        from oncelake.keyed.repair import Repairing
        from oncelake.running.commit import Claim, commit_once

        table, keys = self.lake.table(target), tuple(keys)
        require_log(table)  # a table that does not exist needs no session
        repairing = Repairing(self.session(), keys, tuple(keep), dry_run, table.exclusive)
        claim = Claim([table], "repair", f"oncelake repair {target} --keys {','.join(keys)}")
        return commit_once(lambda: repairing.repair(require_log(table)), claim, self.settings.lock_timeout)

    def restore(self, target: str, to: int, dry_run: bool = False) -> Restore:
        """Restore an older version of a table. The works that this undoes are requested again."""
        from oncelake.operations.restore import restore_table

        return restore_table(self.lake.table(target), to, self.pipelines, self.settings.lock_timeout, dry_run)

    def rebuild(
        self, target: str, dry_run: bool = False, now: datetime | None = None, listener: Listener | None = None
    ) -> Rebuild:
        """Replay all completed works of a target from its inputs as they are now, and replace it in one commit.

        This is the true redo of merge, scd2 and aggregate, whose slices cannot be taken out one by one.
        """
        from oncelake.operations.rebuild import rebuilding

        known = sorted({table for pipeline in self.pipelines.values() for table in pipeline.writes_tables})
        if target not in known:
            raise UnknownTarget(name=target, did_you_mean=did_you_mean(target, known), known=", ".join(known))
        # The ledger is of the real tables: replayed works are not attempts at them.
        context = replace(self._context(listener), listeners=() if listener is None else (listener,))
        rebuild = rebuilding(target, self.pipelines, context, now or datetime.now(UTC))
        return rebuild.plan() if dry_run else rebuild.apply()

    def ledger(self) -> list[dict[str, Any]]:
        """Return all attempts in the ledger, oldest first."""
        return self._ledger(warnings.warn).entries()

    def in_sandbox(self, lake: str, *names: str) -> Project:
        """Return the project with a separate lake: the named pipelines write there, other tables are only read."""
        written = {table for pipeline in select_pipelines(self.pipelines, names) for table in pipeline.writes_tables}
        known = {table for p in self.pipelines.values() for table in p.writes_tables | p.reads_tables}
        sandboxed = copy(self)
        elsewhere = {table: self.lake.table(table).path for table in known - written}
        sandboxed.lake = Lake(lake, self.lake.root, elsewhere, self.lake.formerly, self.lake.remote)
        return sandboxed

    def session(self) -> SparkSession:
        """Return the project's Spark session; start one if there is none."""
        if self._spark is None:
            from oncelake.delta.lake_session import open_lake_session

            pools = {"spark.scheduler.mode": "FAIR"} if any(p.stream for p in self.pipelines.values()) else {}
            settings = {**pools, **self.settings.spark}
            self._spark = open_lake_session(self.lake.path, settings, kafka=self._reads_kafka)
        if not self._workers_checked:
            from oncelake.spark.workers import check_workers

            check_workers(self._spark)
            self._workers_checked = True
        return self._spark

    @property
    def _reads_kafka(self) -> bool:
        return any("kafka" in p.stream.stream_identity for p in self.pipelines.values() if p.stream)

    def _place_catalog(self, locations: Mapping[str, str]) -> None:
        """Read tables of the session's catalog at these paths."""
        self.lake = self.lake.place(locations)
        refuse_own_targets(self.pipelines.values(), self.lake.path_of, self.lake.elsewhere, self.settings.register)

    def _plan(self, request: Request, failed: Mapping[str, list[Interval]] | None = None) -> Plan:
        # Faults of usage are found before anything is read.
        scope_pipelines(self.pipelines, request)
        chosen = select_pipelines(self.pipelines, request.names)
        if unknown := catalog_tables(chosen) - self.lake.elsewhere.keys():
            self._place_catalog(locate(self.session(), sorted(unknown), self.lake.path))
        known = read_lake_state(self.pipelines, chosen, self.lake, request, failed or {})
        return make_plan(self.pipelines, known, request, self._identity())

    def _identity(self) -> Identity:
        return Identity(frozenset(self.pipelines), self.settings.id)

    def _context(self, listener: Listener | None) -> RunContext:
        from oncelake.running.context import RunContext

        def restart() -> bool:
            from oncelake.spark.session import discard_session

            if not self._owns_session:
                return False
            discard_session(self._spark)
            self._spark = None
            return True

        def warn(text: str) -> None:
            if listener is not None:
                listener.on(Warned(text))

        listeners = (self._ledger(warn), *(() if listener is None else (listener,)))
        lock_timeout, project = self.settings.lock_timeout, self.settings.id
        register = self.settings.register
        context = RunContext(self.lake, self.session, listeners, lock_timeout, restart, project=project)
        return replace(context, register=register, drain=self._drain)

    @staticmethod
    def _drain(pipeline: Pipeline, context: RunContext) -> list[Outcome]:
        from oncelake.streaming.draining import drain

        return drain(pipeline, context)

    def _ledger(self, warn: Callable[[str], None]) -> DeltaLedger:
        from oncelake.listeners.ledger import DeltaLedger

        return DeltaLedger(self.lake, warn)

    def _logs(self, pipeline: Pipeline) -> dict[str, Log | None]:
        return {table: self.lake.table(table).log() for table in pipeline.writes_tables}


def open(  # noqa: A001  once.open("project") is how it reads
    root: str | Path = ".", profile: str | None = None, spark: SparkSession | None = None
) -> Project:
    """Open the project in a folder."""
    return Project(root, profile, spark)


def latest(frame: DataFrame, keys: str | Iterable[str], by: str | Iterable[str] = ()) -> DataFrame:
    """Return the latest row of each key: the one with the greatest `by` columns, compared in order, nulls lowest.

    Ties are broken by the content of the rows, so each run picks the same row in whatever order they arrive. Null is a key
    like any other here.
    """
    from oncelake.keyed.latest import latest as chosen

    return chosen(frame, keys, by)


def _request(names: tuple[str, ...], options: RunOptions) -> Request:
    only = FAILED_BEFORE if options.get("failed") else STALE if options.get("stale") else None
    given = map(options.get, ("start", "end", "date"))
    start, end, date = (None if value is None else str(value) for value in given)
    order = options.get("newest_first", False)
    return Request(options.get("now") or datetime.now(UTC), names, date, start, end, only, order, options.get("limit"))
