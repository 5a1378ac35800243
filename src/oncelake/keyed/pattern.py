"""The base of the patterns that write keyed tables: merge, scd2 and aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.delta.writes import Layout
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Log
from oncelake.model.pattern import PatternDefaults


@dataclass(frozen=True)
class KeyedPattern(PatternDefaults):
    """A declared pattern that upserts rows by key. Several pipelines may write to one table."""

    target: str
    spec: Spec
    layout: Layout

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the declared key columns."""
        return self.spec.keys

    @property
    def takes_batches(self) -> bool:
        """Return True: rows are upserted by key."""
        return True

    @property
    def compacts(self) -> bool:
        """Return whether small files are compacted, which is the default."""
        return self.layout.compact

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
