"""Examine the set-up and the streams of a project: findings, and the fixes that are certain to be right. No JVM."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.declare.settings import Settings
from oncelake.delta.log import TableLog
from oncelake.delta.tables import Lake, reaching
from oncelake.errors import CheckpointCopied, CheckpointTorn, LakeUnreachable, OncelakeError, UpstreamRecreated
from oncelake.model.streams import MessageSource
from oncelake.operations.checkpoint_findings import ERROR, NOTE, WARNING, Finding, Recorded, examine_checkpoint
from oncelake.planning.streams import StreamState, batch_pins, misplaced, read_stream_state, stream_reading
from oncelake.spark.jars import cached_delta_jars, cached_kafka_jars, java
from oncelake.storage.lock import holders
from oncelake.storage.objects import storage
from oncelake.storage.paths import is_local, local_path
from oncelake.storage.stream_lock import hold_stream

# Fixing one thing may show the next; each round fixes something.
_ROUNDS = 8


@dataclass(frozen=True)
class Diagnosis:
    """What was examined, and what was found."""

    examined: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """Return 3 if an error is left, else 0."""
        return 3 if any(each.severity == ERROR and not each.fixed for each in self.findings) else 0

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as `doctor --json` prints it."""
        return {"examined": list(self.examined), "findings": [each.document() for each in self.findings]}


@dataclass(frozen=True)
class StreamDoctor:
    """The examination of streams: all pipelines of the project, and what is around them."""

    pipelines: Mapping[str, Pipeline]
    lake: Lake
    lock_timeout: float

    def examine(self, pipelines: Iterable[Pipeline], fix: bool = False) -> Diagnosis:
        """Return what is found with the streams of some pipelines; with `fix` after fixing what is certain to be right."""
        streams = [pipeline for pipeline in pipelines if pipeline.stream is not None]
        found = [each for pipeline in streams for each in (self._fixed if fix else self._findings)(pipeline)]
        return Diagnosis(tuple(pipeline.name for pipeline in streams), tuple(found))

    def _fixed(self, pipeline: Pipeline) -> list[Finding]:
        """Fix what can be fixed while no query runs, and return what was fixed and what is left."""
        command, fixed = f"oncelake doctor --streams {pipeline.name} --fix", []
        with hold_stream(self.lake.path, pipeline.name, self.lock_timeout, command):
            for _ in range(_ROUNDS):
                findings = self._findings(pipeline, running=False)
                fixable = [each for each in findings if each.apply]
                for each in fixable:
                    assert each.apply is not None
                    each.apply()
                    fixed.append(replace(each, fixed=True))
                if not fixable:
                    break
            return [*fixed, *findings]

    def _findings(self, pipeline: Pipeline, running: bool | None = None) -> list[Finding]:
        """Return what is found with one stream; a log that cannot be read is a finding too."""
        try:
            return self._examined(pipeline, running)
        except OncelakeError as error:
            found = Finding(error.code, ERROR, self.lake.path, error.message, next=error.next, pipeline=pipeline.name)
            return [found]

    def _examined(self, pipeline: Pipeline, running: bool | None) -> list[Finding]:
        logs = {target: self.lake.table(target).log() for target in sorted(pipeline.writes_tables)}
        state = read_stream_state(pipeline, logs, self.lake)
        holder = holders(self.lake.path).get(f"stream {pipeline.name}") if running is None else None
        files: list[Finding] = []
        if holder is None:
            # The files of a query that runs change while they are looked at.
            recorded = Recorded(state.id.query, state.batches, dict(_recorded_pins(state, logs)))
            files = examine_checkpoint(state.checkpoint_folder, recorded, pipeline.stateful)
        else:
            message = f"the stream is running ({holder}): the files of its checkpoint are not examined"
            files = [Finding("running", NOTE, state.checkpoint_folder, message)]
        found = [*files, *self._state_findings(pipeline, state, files)]
        return [replace(each, pipeline=pipeline.name) for each in found]

    def _state_findings(self, pipeline: Pipeline, state: StreamState, files: list[Finding]) -> Iterator[Finding]:
        """Yield what does not fit between the checkpoint, the targets, the source and the declaration."""
        folder, problem = state.checkpoint_folder, state.problem
        explained = any(each.severity == ERROR for each in files)
        # What the files are wrong with is said with them.
        if problem is not None and not (explained and isinstance(problem, CheckpointTorn | CheckpointCopied)):
            yield Finding(
                problem.code, ERROR, folder, problem.message + self._origin(pipeline, state), next=problem.next
            )
        if problem is None and (found := misplaced(pipeline, folder, self.lake, ask_store=True)):
            yield Finding(found.code, ERROR, folder, found.message, next=found.next)
        if state.lag.lost and not isinstance(problem, CheckpointCopied):  # whose position is of another source
            yield _lost(pipeline, state)
        if problem is None and state.missing:
            yield self._behind(pipeline, state)
        if problem is None and state.checkpoint is not None and state.lag.count is None and not state.lag.lost:
            message = f"the source ({state.lag.unit}) cannot be asked, so it is not known whether it lost anything"
            yield Finding("source_not_asked", NOTE, folder, message)

    def _behind(self, pipeline: Pipeline, state: StreamState) -> Finding:
        """Return which targets lack batches, and whether the source still has them."""
        assert pipeline.stream is not None
        behind = ", ".join(target for target, number in state.batches.items() if number < state.finished)
        what, folder = f"{behind}: batches {state.missing[0]} to {state.missing[-1]}", state.checkpoint_folder
        start = state.position_before(state.missing[0])
        lost = pipeline.stream.lag(stream_reading(pipeline, self.lake), start).lost if start else ""
        if not lost:
            message, again = f"{what} are read again by the next run", f"oncelake run {pipeline.name}"
            return Finding("targets_behind", NOTE, folder, message, next=again)
        message = f"{what} cannot be read again, the source no longer has them: {lost}"
        again = (
            f"take {behind} out of the declaration ({pipeline.where}), so that the stream goes on; or keep only what the "
            f"source still has, in all targets: oncelake restart {pipeline.name} --from-beginning --accept-loss"
        )
        return Finding("targets_behind", ERROR, folder, message, next=again)

    def _origin(self, pipeline: Pipeline, state: StreamState) -> str:
        """Return whose checkpoint a copied one is, if another pipeline or its targets know the id of the query."""
        if not isinstance(state.problem, CheckpointCopied) or state.checkpoint is None:
            return ""
        for other in self.pipelines.values():
            if other.stream is None or other.name == pipeline.name:
                continue
            logs = {target: self.lake.table(target).log() for target in sorted(other.writes_tables)}
            known = read_stream_state(other, logs, self.lake).id.query
            if state.checkpoint.query == known:
                return f" from {other.name}"
        return ""


def _lost(pipeline: Pipeline, state: StreamState) -> Finding:
    """Return what the source no longer has: messages, or the table itself, of which a new one is read from its beginning."""
    again, folder = f"oncelake restart {pipeline.name} --from-beginning", state.checkpoint_folder
    if not isinstance(pipeline.stream, MessageSource):
        return Finding(
            UpstreamRecreated.code, ERROR, folder, state.lag.lost, next=f"read the table as it is now: {again}"
        )
    message = f"the source no longer has what was not read yet: {state.lag.lost}"
    return Finding("beyond_retention", ERROR, folder, message, next=f"read what is left: {again} --accept-loss")


def _recorded_pins(state: StreamState, logs: Mapping[str, TableLog | None]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield what the newest commits of the targets record of the batches of a stream, by number."""
    for log in logs.values():
        for _, facts in log.newest_facts() if log else ():
            pins = batch_pins(facts)
            if pins.get("stream") == state.id.text:
                yield pins["batch"], pins


def examine_setup(settings: Settings, pipelines: Iterable[Pipeline]) -> Diagnosis:
    """Return what is missing on this machine for the pipelines of a project. Nothing is started or resolved."""
    streams = [pipeline.stream for pipeline in pipelines if pipeline.stream is not None]
    reads_kafka = any("kafka" in stream.stream_identity for stream in streams)
    found = [*_java(), *_packages(reads_kafka), *_jars(reads_kafka), *_lake(settings)]
    return Diagnosis(("set-up",), tuple(found))


def _java() -> Iterator[Finding]:
    try:
        java()
    except OncelakeError as error:
        yield Finding("java", ERROR, os.environ.get("JAVA_HOME") or "PATH", error.message, next=error.next)


def _packages(reads_kafka: bool) -> Iterator[Finding]:
    for name, wanted in (("pyspark", "4.2."), ("delta-spark", "4.4."), ("deltalake", ""), ("pyarrow", "")):
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(
                "package", ERROR, name, f"the package {name} is not installed", next=f"pip install {name}=={wanted}*"
            )
            continue
        if not found.startswith(wanted):
            message = f"the package {name} is {found}, and {wanted}x is what was tested"
            yield Finding("package", WARNING, name, message)
    if reads_kafka and find_spec("confluent_kafka") is None:
        message = "without confluent-kafka, lag and lost messages are not known before a run"
        yield Finding("package", NOTE, "confluent-kafka", message, next="pip install confluent-kafka")


def _jars(reads_kafka: bool) -> Iterator[Finding]:
    if not cached_delta_jars():
        message = "the jars of Delta are not there yet; the first session resolves them, which needs a network"
        yield Finding("jars", NOTE, "delta", message, next="python -m oncelake.spark.prepare")
    if reads_kafka and not cached_kafka_jars():
        message = "the jars with which Spark reads Kafka are not there yet; the first session resolves them"
        yield Finding("jars", NOTE, "kafka", message, next="python -m oncelake.spark.prepare --kafka")


def _store(lake: str) -> Iterator[Finding]:
    """Yield why the store of a lake cannot be read: by one listing, with the credentials of the profile."""
    try:
        with reaching(lake):
            storage(lake).names()
    except LakeUnreachable as error:
        yield Finding(error.code, ERROR, lake, error.message, next=error.next)


def _lake(settings: Settings) -> Iterator[Finding]:
    if not is_local(settings.lake):
        yield from _store(settings.lake)
        return
    place = local_path(settings.lake)
    existing = next(each for each in (place, *place.parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        yield Finding("lake", ERROR, settings.lake, f"the lake cannot be written: {existing}")
