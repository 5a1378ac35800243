"""Look at the files and the quarantine of a pipeline that is driven by arrivals or by a stream. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog
from oncelake.delta.tables import Lake
from oncelake.errors import BatchesNotRedone, NotArriving
from oncelake.model.arrivals import ArrivalSource, FileEntry, Quarantine, QuarantinedRow
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Interval
from oncelake.model.slices import Batch, parse_slice
from oncelake.operations.restate import RestateRequest
from oncelake.planning.batches import arrival_reading, last_batch, next_number
from oncelake.planning.quarantine import find_quarantine


@dataclass(frozen=True)
class Arrivals:
    """What arrives for a pipeline: files or messages, what is in quarantine of them, and what its targets have."""

    pipeline: Pipeline
    kept: Quarantine
    reading: Reading
    done: int | None
    # The newest commits of batches, by their number: the version of the table and the facts.
    commits: Mapping[int, tuple[int, Mapping[str, Any]]]
    # The facts of commits that were undone by restores: their batches are read again.
    undone: Mapping[int, Mapping[str, Any]]
    # The last batch that any target has.
    newest: int

    @classmethod
    def of(cls, pipeline: Pipeline, lake: Lake, span: Interval | None = None) -> Arrivals:
        """Return the arrivals of a pipeline, all or those of a range; raise NotArriving if it is not driven by them."""
        logs = {target: lake.table(target).log() for target in pipeline.writes_tables}
        kept = find_quarantine(pipeline, logs, lake)
        if kept is None:
            raise NotArriving(pipeline=pipeline.name, where=pipeline.where)
        commits: dict[int, tuple[int, Mapping[str, Any]]] = {}
        undone: dict[int, Mapping[str, Any]] = {}
        for log in logs.values():
            for version, number, facts in _commits(pipeline, log) if log else ():
                if log and log.in_lineage(version):
                    commits[number] = (version, facts)
                else:
                    undone[number] = facts
        newest = next_number(pipeline, pipeline.arrival.stream, logs) - 1 if pipeline.arrival else -1
        reading = arrival_reading(pipeline, lake, span)
        return cls(pipeline, kept, reading, last_batch(pipeline, logs), commits, undone, newest)

    @property
    def source(self) -> ArrivalSource:
        """The source of files; raise NotArriving if the pipeline is driven by messages."""
        if self.pipeline.arrival is None:
            raise NotArriving(pipeline=self.pipeline.name, where=self.pipeline.where)
        return self.pipeline.arrival

    def files(self, state: str | None = None) -> list[FileEntry]:
        """Return the files, each with the version of the table that has its rows, as far as the newest commits tell."""
        entries = (entry for entry in self.source.list_files(self.reading, self.done) if state in (None, entry.state))
        return [replace(entry, version=self._version(entry.batch)) for entry in entries]

    def quarantine(self, state: str | None = "quarantined") -> list[QuarantinedRow]:
        """Return what is in quarantine."""
        return [row for row in self.kept.rows() if state in (None, row.state)]

    def drop(self, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows in quarantine as dropped: they are not retried."""
        self.kept.drop(rows)

    def rebuild(self) -> list[int]:
        """Write missing or damaged manifests from the facts of the commits, and return their numbers."""
        facts = {**self.undone, **{number: each for number, (_, each) in self.commits.items()}}
        return self.source.rebuild_manifests(self.reading, facts, self.newest)

    def restatement(self) -> list[RestateRequest]:
        """Return the batches that restate the files of the reading, one request for each target; raise if that cannot be."""
        _require_known_rows(self.pipeline)
        waiting = self.source.restated(self.reading, self.done, self._ordered)
        return [
            RestateRequest(
                self.pipeline.name,
                pattern.target,
                Batch(waiting.stream, batch.number),
                1,
                batch.frozen,
                replaces=pattern.kind == "append",
                files=batch.files,
            )
            for batch in waiting.batches
            for pattern in self.pipeline.writes
        ]

    def freeze_restatement(self) -> tuple[str, ...]:
        """Freeze the batches of a restatement: the next run reads them, and what was ingested of their files is replaced."""
        _require_known_rows(self.pipeline)
        return self.source.freeze_restated(self.reading, self.done, self._ordered)

    def retry(self, rows: Sequence[QuarantinedRow]) -> tuple[str, ...]:
        """Freeze a batch of what is in quarantine, for the next run; return what is to be said of it."""
        notes = self.source.retry_quarantine(self.reading, rows)
        if self._ordered and any(row.batch < self.newest for row in rows):
            wins = f"in {self._ordered} they replace those of their keys, also ones that came later"
            notes = (*notes, f"the result depends on the order, and retried rows are written last: {wins}")
        return notes

    @property
    def _ordered(self) -> str | None:
        """A target whose result depends on the order of batches."""
        return next((pattern.target for pattern in self.pipeline.writes if pattern.ordered), None)

    def _version(self, batch: int | None) -> int | None:
        return self.commits[batch][0] if batch is not None and batch in self.commits else None


def restate_problem(pipeline: Pipeline) -> BatchesNotRedone | None:
    """Return why files cannot be restated, whichever they are: a target would have the rows of a file twice."""
    for pattern in pipeline.writes if pipeline.arrival else ():
        facts = {"verb": "restate", "what": pattern.target, "pipeline": pipeline.name}
        if pattern.kind == "append" and pipeline.arrival and not pipeline.arrival.names_files:
            problem = "its rows do not say which file they came from"
            way = f'declare provenance="file" in {pipeline.where} for files that are yet to come; or '
            return BatchesNotRedone(problem=problem, way=way, **facts)
        if pattern.kind != "append" and not pattern.restates:
            return BatchesNotRedone(problem=f"{pattern.kind} would count them twice", way="", **facts)
    return None


def _require_known_rows(pipeline: Pipeline) -> None:
    if problem := restate_problem(pipeline):
        raise problem


def choose(rows: Iterable[QuarantinedRow], numbers: Iterable[int]) -> list[QuarantinedRow]:
    """Return the rows with these numbers; all if there are none."""
    wanted = set(numbers)
    return [row for row in rows if not wanted or row.number in wanted]


def _commits(pipeline: Pipeline, log: TableLog) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield version, batch and facts of the commits of batches that the log still has."""
    names = {pipeline.name, *(pipeline.formerly or ())}
    for version in log.commits:
        entry = log.entry(version)
        slice_ = parse_slice(entry.facts["slice"]) if entry.facts.get("pipeline") in names else None
        if isinstance(slice_, Batch):
            yield version, slice_.number, entry.facts
