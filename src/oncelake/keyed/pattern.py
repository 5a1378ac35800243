"""What every pattern for tables with keys has in common."""

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
    """A pattern that merges rows by key, as it was declared: several pipelines may feed one table."""

    target: str
    spec: Spec
    layout: Layout
    replaces = False
    within: ClassVar[Mapping[str, Any]] = {}

    @property
    def restates(self) -> bool:
        """The same rows again change nothing."""
        return True

    @property
    def compacts(self) -> bool:
        """Unless it was declared otherwise."""
        return self.layout.compact

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  it fits every pipeline
        """Nothing can be wrong with it."""
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """The slice is in the app id."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  contract
        """Every interval has a marker of its own."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:
        """Which files a merge looks at, and which it rewrites."""
        partitions = log.partitioned_by if log else self.layout.partition_by
        clusters = log.clustered_by if log else self.layout.cluster_by
        marks = log.deletion_vectors if log else self.layout.deletion_vectors
        keys = {key.casefold() for key in self.spec.keys}
        found = []
        if pruned := [name for name in partitions if name.casefold() in keys]:
            found.append(f"looks only at the partitions ({', '.join(pruned)}) that the batch has keys in")
        elif partitions:
            found.append(f"looks at every partition: {', '.join(partitions)} is no key, so a row may move to another")
        if ranged := [name for name in clusters if name.casefold() in keys]:
            found.append(f"looks only at files whose {', '.join(ranged)} lies in the range of the batch")
        if marks:
            found.append("marks changed rows in deletion vectors and rewrites no file for them")
        else:
            found.append("rewrites each file with a changed row; with deletion_vectors=True it would mark the rows")
        return tuple(f"{self.target}: a merge {text}" for text in found)
