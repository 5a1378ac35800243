"""Look at the files and the quarantine of a pipeline that is driven by arrivals. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog
from oncelake.delta.tables import Lake
from oncelake.errors import NotArriving
from oncelake.model.arrivals import ArrivalSource, FileEntry, QuarantinedRow
from oncelake.model.contracts import Reading
from oncelake.model.slices import Batch, parse_slice
from oncelake.planning.batches import arrival_reading, last_batch


@dataclass(frozen=True)
class Arrivals:
    """The source that drives a pipeline, and what its targets have."""

    source: ArrivalSource
    reading: Reading
    done: int | None
    # The newest commits of batches, by their number: the version of the table and the facts.
    commits: Mapping[int, tuple[int, Mapping[str, Any]]]

    @classmethod
    def of(cls, pipeline: Pipeline, lake: Lake) -> Arrivals:
        """Return the arrivals of a pipeline; raise NotArriving if it is not driven by them."""
        if pipeline.arrival is None:
            raise NotArriving(pipeline=pipeline.name, where=pipeline.where)
        logs = {target: lake.table(target).log() for target in pipeline.writes_tables}
        commits: dict[int, tuple[int, Mapping[str, Any]]] = {}
        for log in logs.values():
            commits |= _commits(pipeline, log) if log else {}
        return cls(pipeline.arrival, arrival_reading(pipeline, lake), last_batch(pipeline, logs), commits)

    def files(self, state: str | None = None) -> list[FileEntry]:
        """Return the files, each with the version of the table that has its rows, as far as the newest commits tell."""
        entries = (entry for entry in self.source.list_files(self.reading, self.done) if state in (None, entry.state))
        return [replace(entry, version=self._version(entry.batch)) for entry in entries]

    def quarantine(self, state: str | None = "quarantined") -> list[QuarantinedRow]:
        """Return what is in quarantine."""
        rows = self.source.list_quarantine(self.reading, self.done)
        return [row for row in rows if state in (None, row.state)]

    def rebuild(self) -> list[int]:
        """Write missing manifests from the facts of the commits, and return their numbers."""
        return self.source.rebuild_manifests(
            self.reading, {number: facts for number, (_, facts) in self.commits.items()}
        )

    def _version(self, batch: int | None) -> int | None:
        return self.commits[batch][0] if batch is not None and batch in self.commits else None


def choose(rows: Iterable[QuarantinedRow], numbers: Iterable[int]) -> list[QuarantinedRow]:
    """Return the rows with these numbers; all if there are none."""
    wanted = set(numbers)
    return [row for row in rows if not wanted or row.number in wanted]


def _commits(pipeline: Pipeline, log: TableLog) -> dict[int, tuple[int, Mapping[str, Any]]]:
    found: dict[int, tuple[int, Mapping[str, Any]]] = {}
    names = {pipeline.name, *(pipeline.formerly or ())}
    for version in log.commits:
        entry = log.entry(version)
        slice_ = parse_slice(entry.facts["slice"]) if entry.facts.get("pipeline") in names else None
        if isinstance(slice_, Batch) and log.in_lineage(version):
            found[slice_.number] = (version, entry.facts)
    return found
