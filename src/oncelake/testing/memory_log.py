"""A target's log in memory: plans can be tested without a table, without Spark and without a disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelake.model.coverage import Coverage, resolve_overlaps
from oncelake.model.markers import RESTATE_PREFIX, Marker, app_id, streams_of, writer_of
from oncelake.model.slices import Whole
from oncelake.model.work import Commit, Rows


@dataclass
class MemoryLog:
    """A log that has these markers, by app id, and the commits that carry them."""

    markers: dict[str, int] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    version: int = -1
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    deletion_vectors: bool = False
    schema: dict[str, str] = field(default_factory=dict)
    # Works that must be applied once more, each with the version in which another commit had overtaken it.
    overtaken: dict[str, int] = field(default_factory=dict)

    def add(self, marker: Marker, **facts: Any) -> MemoryLog:
        """Commit a marker. Like Delta, ignore one whose app id has this version or a later one."""
        if not self.done(marker):
            self.version += 1
            self.markers[marker.app_id] = marker.version
            self.commits[marker.app_id] = Commit(self.version, None, Rows(), facts)
        return self

    def done(self, marker: Marker) -> bool:
        """Return whether the marker, or a later one of the same app id, is recorded."""
        recorded = self.markers.get(marker.app_id)
        return recorded is not None and recorded >= marker.version

    def recorded(self, app_id: str) -> int | None:
        """Return the version recorded for an app id, if there is one."""
        return self.markers.get(app_id)

    def commit(self, app_id: str) -> Commit | None:
        """Return the newest commit with that app id."""
        return self.commits.get(app_id)

    def commit_at(self, version: int) -> Commit | None:
        """Return the commit of a version."""
        return next((commit for commit in self.commits.values() if commit.version == version), None)

    def overtaken_version(self, app_id: str) -> int | None:
        """Return the version in which a work was overtaken, if it must be applied once more."""
        return self.overtaken.get(app_id)

    def newest_facts(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the facts of the newest commit of every app id."""
        return [(name, commit.facts) for name, commit in self.commits.items()]

    def recent_facts(self, app_ids: Iterable[str]) -> dict[str, Mapping[str, Any] | None]:
        """Return the facts of works; None for a work whose commit is gone."""
        return {name: self.commits[name].facts if name in self.commits else None for name in app_ids}

    def streams(self, pipelines: Iterable[str], target: str) -> dict[str, int]:
        """Return the streams of pipelines, by some names, that wrote batches here: the last batch of each."""
        return streams_of(self.markers, pipelines, target)

    def writers(self) -> set[tuple[str, str]]:
        """Return the pipelines that have markers here, each with the name of the target in its markers."""
        return {writer for name in self.markers if (writer := writer_of(name))}

    def coverage(self, pipeline: str, target: str, requested: bool = False) -> list[Coverage]:
        """Return the time a pipeline has done here, or was requested to restate."""
        whole = Whole().text
        start = app_id(pipeline, target, Whole()).removesuffix(whole) + (RESTATE_PREFIX if requested else "")
        spans = {name: name[len(start) :].partition("..") for name in self.markers if name.startswith(start)}
        return resolve_overlaps(
            Coverage(first, last, self.markers[name], name)
            for name, (first, _, last) in spans.items()
            if first[:1].isdigit() and self.markers[name]
        )
