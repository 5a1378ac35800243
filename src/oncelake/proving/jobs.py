"""What is under proof, as the process that runs it sees it: a pipeline of a project, or any PySpark script."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import oncelake as once
from oncelake.model import failpoints
from oncelake.model.contracts import Pins, Read, Reading, Source
from oncelake.model.work import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class Job(Protocol):
    """Something that can be run again and again."""

    @property
    def tables(self) -> Mapping[str, str]:
        """The tables it writes, and where they are."""
        ...

    def session(self) -> SparkSession:
        """The session it runs in."""
        ...

    def warm(self) -> None:
        """Start what can be started before it runs."""
        ...

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run it as asked, and say what came of it."""
        ...


class Stopped(BaseException):
    """The process ends here, as far as the ring can tell: nothing in it catches this."""


class PipelineJob:
    """A pipeline of a project whose lake is a folder of the sandbox."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Load the project; Spark starts with the first run."""
        self.spec = spec
        self.name: str = spec["name"]
        self.project = self._open(spec["root"], None)
        self.tables = {t: self.project.address.table(t) for t in self.project.pipelines[self.name].writes_tables}

    def _open(self, root: str, spark: SparkSession | None) -> once.Project:
        project = once.open(self.spec["root"], self.spec["profile"], spark).in_sandbox(self.spec["lake"], self.name)
        project.address = replace(project.address, root=root)
        project.settings = replace(project.settings, lock_timeout=self.spec["lock_timeout"])
        return project

    def session(self) -> SparkSession:
        """The project's own."""
        return self.project.session()

    def warm(self) -> None:
        """Start the session."""
        self.session()

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the spans asked for, one after the other, in one thread or in several at once."""
        reached: list[str] = []
        with _set(self.session(), request.get("settings", {})), _stopping(reached, request.get("stop_at")):
            if (threads := request.get("threads", 1)) > 1:
                with ThreadPoolExecutor(threads) as pool:
                    reports = [r for each in pool.map(lambda _: self._reports(request), range(threads)) for r in each]
            else:
                reports = self._until_stopped(request)
        works = [work.document() for report in reports for work in report.works]
        return {"works": works, "reached": reached}

    def _until_stopped(self, request: Mapping[str, Any]) -> list[Report]:
        try:
            return self._reports(request)
        except Stopped:
            return []

    def _reports(self, request: Mapping[str, Any]) -> list[Report]:
        project = self._open(request["root"], self.session()) if request.get("root") else self.project
        project.settings = replace(
            project.settings, lock_timeout=request.get("lock_timeout", self.spec["lock_timeout"])
        )
        if number := request.get("scatter"):
            project = _scattering(project, self.name, number)
        now = datetime.fromisoformat(self.spec["now"])
        if request.get("restate"):
            starts, ends = zip(*request["spans"], strict=True)
            whole = {"start": min(starts), "end": max(ends)} if starts[0] else {}
            return [project.restate(self.name, now=now, **whole)]
        return [project.run(self.name, start=start, end=end, now=now) for start, end in request["spans"]]


@dataclass(frozen=True)
class _Scattered:
    """A source whose rows come in another order and in other tasks: as a bag they are the same."""

    source: Source
    number: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        read = self.source.read(session, reading, pins)
        return lambda slice_: read(slice_).repartition(self.number)


def _scattering(project: once.Project, name: str, number: int) -> once.Project:
    pipeline = project.pipelines[name]
    reads = {key: _Scattered(source, number) for key, source in pipeline.reads.items()}
    scattering = copy(project)
    scattering.pipelines = {**project.pipelines, name: replace(pipeline, reads=reads)}
    return scattering


@contextmanager
def _stopping(reached: list[str], stop_at: int | None) -> Iterator[None]:
    """Note every point that is reached, and stop at the n-th."""

    def on_reach(point: str) -> None:
        reached.append(point)
        if len(reached) == stop_at:
            raise Stopped

    failpoints.watch(on_reach)
    try:
        yield
    finally:
        failpoints.watch(None)


class ScriptJob:
    """A script, run as `python script args` would, again and again in one process. Its session is kept warm."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Nothing is started before the first run."""
        self.script: str = spec["script"]
        self.arguments: Sequence[str] = spec["arguments"]
        self.tables = dict(spec["tables"])
        os.chdir(spec["folder"])

    def session(self) -> SparkSession:
        """The session the script made, or one of ours if it made none."""
        from oncelake.spark.session import open_session

        return open_session({})

    def warm(self) -> None:
        """Nothing: the script makes its own session."""

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the script from its first line."""
        problem = None
        with _as_main(self.script, self.arguments), _kept_session(request.get("settings")):
            try:
                runpy.run_path(self.script, run_name="__main__")
            except SystemExit as ended:
                problem = None if ended.code in (None, 0) else f"exit {ended.code}"
            except Exception as error:  # noqa: BLE001  whatever it raised is its outcome
                from oncelake.delta.conflicts import one_line

                problem = f"{type(error).__name__}: {one_line(error)}"
        outcome = "committed" if problem is None else "failed"
        return {"works": [{"outcome": outcome, "error": problem}], "reached": []}


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
def _kept_session(settings: Mapping[str, str] | None) -> Iterator[None]:
    """Let `spark.stop()` do nothing, for the next run needs the session; and undo what the script set, for it is gone."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    before = dict(active.conf.getAll) if active is not None else {}
    stop = SparkSession.stop
    SparkSession.stop = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005
    try:
        with _set(active, settings or {}) if active is not None else nullcontext():
            yield
    finally:
        SparkSession.stop = stop  # type: ignore[method-assign]
        if active is not None:
            _put_back(active, before, dict(active.conf.getAll))


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Some settings inside the block; afterwards these are as they were."""
    before = {key: value for key, value in dict(session.conf.getAll).items() if key in settings}
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        _put_back(session, before, settings)


def _put_back(session: SparkSession, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [key for key in now.keys() | before.keys() if now.get(key) != before.get(key)]
    for key in filter(session.conf.isModifiable, changed):
        if key in before:
            session.conf.set(key, before[key])
        else:
            session.conf.unset(key)


def make_job(spec: Mapping[str, Any]) -> Job:
    """The job a specification describes."""
    return PipelineJob(spec) if spec["kind"] == "pipeline" else ScriptJob(spec)
