"""The job under proof, inside the worker process: a pipeline of a project, or any PySpark script."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import oncelake as once
from oncelake.declare.graph import former_names
from oncelake.declare.pipelines import Pipeline
from oncelake.errors import OncelakeError
from oncelake.model import failpoints
from oncelake.model.contracts import Pins, Read, Reading, Source
from oncelake.model.streams import StreamSource
from oncelake.model.work import COMMITTED, FAILED, Report
from oncelake.proving.altered_project import alter_project
from oncelake.proving.input_copies import copy_inputs
from oncelake.proving.stream_input import with_stream_input
from oncelake.proving.testbed import SECOND
from oncelake.proving.worker_handle import wait_at_gate
from oncelake.spark.session import with_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from oncelake.operations.rebuild import Rebuild

Works = list[dict[str, Any]]


class Job(Protocol):
    """A job that can be run repeatedly."""

    @property
    def tables(self) -> Mapping[str, str]:
        """Return the path of each table it writes."""
        ...

    def session(self) -> SparkSession:
        """Return the session it runs in."""
        ...

    def warm(self) -> None:
        """Start what can be started before a run."""
        ...

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run it as requested, and return its works and the failpoints reached."""
        ...

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what it would do; nothing is known of a script."""
        ...

    def copy_inputs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the tables that it reads by interval; a script reads what it likes."""
        ...


class Stopped(BaseException):
    """A simulated end of the process at a failpoint: the commit protocol does not catch this."""


class PipelineJob:
    """A pipeline of a project whose lake is a folder of the sandbox."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Load the project; Spark starts with the first run."""
        self.spec = spec
        self.name: str = spec["name"]
        self.project = self._open(spec["root"], None)
        self.tables = {t: self.project.lake.table(t).path for t in self.project.pipelines[self.name].writes_tables}

    def _open(self, root: str, spark: SparkSession | None) -> once.Project:
        project = once.open(self.spec["root"], self.spec["profile"], spark).in_sandbox(self.spec["lake"], self.name)
        project.lake = replace(project.lake, root=root)
        if start := self.spec.get("start"):
            pipeline = replace(project.pipelines[self.name], start=datetime.fromisoformat(start))
            project.pipelines = {**project.pipelines, self.name: pipeline}
        if fields := self.spec.get("stream"):
            pipeline = with_stream_input(project.pipelines[self.name], fields)
            project.pipelines = {**project.pipelines, self.name: pipeline}
        project = alter_project(project, self.name, {"inputs": self.spec.get("inputs")})
        project.settings = replace(project.settings, lock_timeout=self.spec["lock_timeout"])
        return project

    def session(self) -> SparkSession:
        """Return the project's session."""
        return self.project.session()

    def warm(self) -> None:
        """Start the session."""
        self.session()

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the requested spans one after the other, in one thread or concurrently in several."""
        reached: list[str] = []
        meanwhile: Works = []
        stall = partial(self._stall, request, meanwhile) if "stall_at" in request else None
        watching = _watch(reached, request.get("stop_at"), request.get("stall_at"), stall)
        with with_settings(self.session(), request.get("settings", {})), watching:
            if (threads := request.get("threads", 1)) > 1:
                requests = [_rotate(request, number) for number in range(threads)]
                with ThreadPoolExecutor(threads) as pool:
                    works = [work for each in pool.map(self._works, requests) for work in each]
            else:
                works = self._until_stopped(request)
        return {"works": works + meanwhile, "reached": reached}

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan of all requested spans."""
        (start, _), (_, end) = request["spans"][0], request["spans"][-1]
        now, stale = datetime.fromisoformat(self.spec["now"]), request.get("stale", False)
        plan = self._project(request).plan(self.name, start=start, end=end, now=now, stale=stale)
        return {"works": plan.document()["works"]}

    def copy_inputs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the tables that the pipeline reads by interval, and return the document of the copies."""
        return copy_inputs(self.project, self.name, request["spans"], request["folder"])

    def _stall(self, request: Mapping[str, Any], meanwhile: Works) -> None:
        """Run other works in a thread of their own; or wait until the prover opens the gate."""
        if "gate" in request:
            wait_at_gate(Path(request["gate"]))
        else:
            with ThreadPoolExecutor(1) as pool:
                meanwhile += pool.submit(self._until_stopped, {**request, "spans": request["meanwhile"]}).result()

    def _until_stopped(self, request: Mapping[str, Any]) -> Works:
        try:
            return self._works(request)
        except Stopped:
            return []
        except OncelakeError as error:  # what is refused as a whole
            facts = {"code": error.code, "target": error.facts.get("target")}
            return [{"outcome": error.outcome, "error": str(error), **facts}]

    def _works(self, request: Mapping[str, Any]) -> Works:
        """Run, restate, rebuild or restore as requested, and return the works."""
        project = self._project(request)
        now, name = datetime.fromisoformat(self.spec["now"]), request.get("name", self.name)
        if versions := request.get("restore"):
            return [_ended(table, project.restore(table, version).version) for table, version in versions.items()]
        if request.get("rebuild"):
            targets = sorted(project.pipelines[name].writes_tables)
            return [work for table in targets for work in _rebuilt(project.rebuild(table, now=now))]
        if request.get("restate"):
            starts, ends = zip(*request["spans"], strict=True)
            whole = {"start": min(starts), "end": max(ends)} if starts[0] else {}
            return _documents(project.restate(name, now=now, **whole))
        accepting, stale = request.get("accept_new_input", False), request.get("stale", False)
        reports = (
            project.run(name, start=start, end=end, now=now, stale=stale, accept_new_input=accepting)
            for start, end in request["spans"]
        )
        return [work for report in reports for work in _documents(report)]

    def _project(self, request: Mapping[str, Any]) -> once.Project:
        """Return the project as requested: with other input files, or the pipeline declared otherwise."""
        project = self._open(request["root"], self.session()) if request.get("root") else self.project
        project.settings = replace(
            project.settings, lock_timeout=request.get("lock_timeout", self.spec["lock_timeout"])
        )
        pipeline = project.pipelines[self.name]
        if number := request.get("scatter"):
            reads = {key: _repartitioned(source, number) for key, source in pipeline.reads.items()}
            pipeline = replace(pipeline, reads=reads)
        if request.get("second"):
            pipeline = _with_second_targets(pipeline)
        if name := request.get("name"):
            former = (*(pipeline.formerly or ()), self.name) if request.get("formerly") else None
            pipeline = replace(pipeline, name=name, formerly=former)
        if pipeline is not project.pipelines[self.name]:
            project = _redeclared(project, self.name, pipeline)
        return alter_project(project, pipeline.name, request)


@dataclass(frozen=True)
class _RepartitionedSource:
    """A source that returns the same bag of rows in another order and in other tasks."""

    source: Source
    number: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        read = self.source.read(session, reading, pins)
        return lambda slice_: read(slice_).repartition(self.number)


def _repartitioned(source: Source, number: int) -> Source:
    """Return the source with its rows in other tasks; of a stream, the rows of each batch."""
    if not isinstance(source, StreamSource):
        return _RepartitionedSource(source, number)
    declared: Any = type(source)

    class Repartitioned(declared):  # type: ignore[misc]
        def decode(self, frame: DataFrame) -> DataFrame:
            rows: DataFrame = super().decode(frame)
            return rows.repartition(number)

    return Repartitioned(**{field.name: getattr(source, field.name) for field in fields(declared)})


def _redeclared(project: once.Project, name: str, pipeline: Pipeline) -> once.Project:
    """Return the project with a pipeline in the place of another."""
    changed = copy(project)
    changed.pipelines = {
        pipeline.name if each == name else each: pipeline if each == name else found
        for each, found in project.pipelines.items()
    }
    former = former_names(changed.pipelines.values())
    changed.lake = replace(project.lake, formerly=former, _tables={})
    return changed


def _with_second_targets(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with a second target beside each of its targets, written by the same pattern from the same frame."""
    first = pipeline.writes[0].target

    @wraps(pipeline.function)
    def both(**arguments: Any) -> dict[str, Any]:
        result = pipeline.function(**arguments)
        frames = result if isinstance(result, dict) else {first: result}
        return {**frames, **{f"{target}{SECOND}": frame for target, frame in frames.items()}}

    patterns = [replace(pattern, target=f"{pattern.target}{SECOND}") for pattern in pipeline.writes]  # type: ignore[type-var]
    return replace(pipeline, writes=(*pipeline.writes, *patterns), function=both)


def _documents(report: Report) -> Works:
    return [work.document() for work in report.works]


def _ended(target: str, version: int | None, error: str | None = None) -> dict[str, Any]:
    """Return the document of an operation on a whole table."""
    return {"outcome": FAILED if error else COMMITTED, "error": error, "target": target, "version": version}


def _rebuilt(found: Rebuild) -> Works:
    works = [_ended(found.target, found.version)] if found.failed is None else _documents(found.failed)
    return works or [_ended(found.target, None, "nothing was rebuilt")]


def _rotate(request: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the request of one of several threads: each begins with another span, if that is requested."""
    spans = request["spans"]
    first = number % len(spans) if request.get("rotate") else 0
    return {**request, "spans": [*spans[first:], *spans[:first]]}


@contextmanager
def _watch(
    reached: list[str], stop_at: int | str | None, stall_at: int | str | None, stall: Callable[[], None] | None
) -> Iterator[None]:
    """Record every failpoint that is reached, and stop or stall at the n-th, or at the first of a name."""
    stalled: list[str] = []

    def on_reach(point: str) -> None:
        if stalled:
            return  # what runs meanwhile, or afterwards
        reached.append(point)
        if stop_at in (len(reached), point):
            raise Stopped
        if stall is not None and stall_at in (len(reached), point):
            stalled.append(point)
            stall()

    failpoints.watch(on_reach)
    try:
        yield
    finally:
        failpoints.watch(None)


class ScriptJob:
    """A script, run like `python script args`, repeatedly in one process with one warm session."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Store the script; nothing is started before the first run."""
        self.script: str = spec["script"]
        self.arguments: Sequence[str] = spec["arguments"]
        self.tables = dict(spec["tables"])
        os.chdir(spec["folder"])

    def session(self) -> SparkSession:
        """Return the session that the script created, or a new one."""
        from oncelake.spark.session import open_session

        return open_session({})

    def warm(self) -> None:
        """Do nothing: the script creates its own session."""

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the script from the beginning."""
        problem = None
        with _as_main(self.script, self.arguments), _keep_session(request.get("settings")):
            try:
                runpy.run_path(self.script, run_name="__main__")
            except SystemExit as ended:
                problem = None if ended.code in (None, 0) else f"exit {ended.code}"
            except Exception as error:  # noqa: BLE001  any exception is the outcome of the script
                from oncelake.delta.conflicts import one_line

                problem = f"{type(error).__name__}: {one_line(error)}"
        outcome = "committed" if problem is None else "failed"
        return {"works": [{"outcome": outcome, "error": problem}], "reached": []}

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  the contract
        """Return nothing: a script has no plan."""
        return {"works": []}

    def copy_inputs(self, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  the contract
        """Return nothing: it is not known what a script reads."""
        return {}


@contextmanager
def _as_main(script: str, arguments: Sequence[str]) -> Iterator[None]:
    before = sys.argv[:], sys.path[:], os.getcwd()
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = before[0], before[1]
        os.chdir(before[2])


@contextmanager
def _keep_session(settings: Mapping[str, str] | None) -> Iterator[None]:
    """Disable `spark.stop()`, because the next run needs the session, and reset the settings that the script changed."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    before = dict(active.conf.getAll) if active is not None else {}
    stop = SparkSession.stop
    SparkSession.stop = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005
    try:
        with with_settings(active, settings or {}) if active is not None else nullcontext():
            yield
    finally:
        SparkSession.stop = stop  # type: ignore[method-assign]
        if active is not None:
            _reset_settings(active, before, dict(active.conf.getAll))


def _reset_settings(session: SparkSession, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [key for key in now.keys() | before.keys() if now.get(key) != before.get(key)]
    for key in filter(session.conf.isModifiable, changed):
        if key in before:
            session.conf.set(key, before[key])
        else:
            session.conf.unset(key)


def make_job(spec: Mapping[str, Any]) -> Job:
    """Create the job that a specification describes."""
    return PipelineJob(spec) if spec["kind"] == "pipeline" else ScriptJob(spec)
