"""The base of the patterns that write keyed tables: merge, scd2 and aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from oncelake.delta.writes import Layout
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Log
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, marker
from oncelake.model.slices import Slice


@dataclass(frozen=True)
class KeyedPattern:
    """A declared pattern that upserts rows by key. Several pipelines may write to one table."""

    target: str
    spec: Spec
    layout: Layout
    replaces = False
    within: ClassVar[Mapping[str, Any]] = {}

    @property
    def restates(self) -> bool:
        """Return True: merging the same rows again changes nothing."""
        return True

    @property
    def compacts(self) -> bool:
        """Return whether small files are compacted, which is the default."""
        return self.layout.compact

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  any grid is valid
        """Return None: the pattern fits every pipeline."""
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """Return the marker, whose app id contains the slice."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  contract
        """Return the coverage recorded by one marker per interval."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:
        """Return which files a merge scans and which it rewrites."""
        partitions = log.partitioned_by if log else self.layout.partition_by
        clusters = log.clustered_by if log else self.layout.cluster_by
        vectors = log.deletion_vectors if log else self.layout.deletion_vectors
        keys = {key.casefold() for key in self.spec.keys}
        notes = []
        if pruned := [name for name in partitions if name.casefold() in keys]:
            notes.append(f"scans only the partitions ({', '.join(pruned)}) that contain keys of the batch")
        elif partitions:
            notes.append(f"scans every partition: {', '.join(partitions)} is not a key, so a row may change partition")
        if skipping := [name for name in clusters if name.casefold() in keys]:
            notes.append(f"scans only files whose {', '.join(skipping)} overlaps the range of the batch")
        if vectors:
            notes.append("marks changed rows in deletion vectors and does not rewrite their files")
        else:
            notes.append("rewrites each file with a changed row; deletion_vectors=True would mark the rows instead")
        return tuple(f"{self.target}: a merge {note}" for note in notes)
