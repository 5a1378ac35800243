"""The defaults of a pattern, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oncelake.model.contracts import Log
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, marker
from oncelake.model.slices import Slice


def spell_row_filter(row_filter: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return a row filter as facts record it: the values of every column as text, in a fixed order."""
    listed = {
        name: item if isinstance(item, list | tuple | set | frozenset) else [item] for name, item in row_filter.items()
    }
    return {name.casefold(): sorted(map(str, values)) for name, values in sorted(listed.items())}


class PatternDefaults:
    """A pattern that deletes no rows, can be restated, and has a marker for each slice."""

    target: str

    @property
    def within(self) -> Mapping[str, Any]:
        """The row filter: empty, which means all rows of the target."""
        return {}

    @property
    def replaces(self) -> bool:
        """Whether existing rows of the slice are deleted: they stay."""
        return False

    @property
    def restates(self) -> bool:
        """Whether a work may be restated: yes, with the next generation."""
        return True

    @property
    def ordered(self) -> bool:
        """Return whether the result depends on the order of slices; by default it does not."""
        return False

    @property
    def takes_batches(self) -> bool:
        """Whether it may write what arrived since the last time: no, it replaces rows that arrived before."""
        return False

    @property
    def needs_state(self) -> bool:
        """Whether a stream must keep state for it: no, it writes the rows of a batch."""
        return False

    @property
    def compacts(self) -> bool:
        """Whether small files are compacted: no."""
        return False

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Return the declared partition columns."""
        return tuple(getattr(getattr(self, "layout", None), "partition_by", ()))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return no key columns: rows are not written by key."""
        return ()

    @property
    def replaced_rows(self) -> Mapping[str, Any]:
        """Return nothing: what was declared decides the new rows only, not which existing rows a work replaces."""
        return {}

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  the contract; it fits every grid
        """Return None: the declaration is valid on every grid."""
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """Return a marker with the slice in its app id, so that a backfill of an older slice does not count as done."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  the contract
        """Return the time that the markers of the slices cover."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:  # noqa: ARG002  the contract
        """Return no notes: the name of the pattern says how it writes."""
        return ()
