"""What every pattern is unless it says otherwise: the defaults, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oncelake.model.contracts import Log
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, marker
from oncelake.model.slices import Slice


class PatternDefaults:
    """A pattern that leaves other rows alone, may be restated, and marks every slice by itself."""

    target: str

    @property
    def within(self) -> Mapping[str, Any]:
        """All rows of the target."""
        return {}

    @property
    def replaces(self) -> bool:
        """Rows that are there stay."""
        return False

    @property
    def restates(self) -> bool:
        """The same work may be done again with the next generation."""
        return True

    @property
    def compacts(self) -> bool:
        """Its files are left as they are."""
        return False

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  the contract; it fits every grid
        """Nothing can be wrong with the declaration."""
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """Put the slice into the app id, so that a backfill of an older slice is not taken for done."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:  # noqa: ARG002  the contract
        """Return the time that markers of their own cover."""
        return log.coverage(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:  # noqa: ARG002  the contract
        """Return nothing: the pattern's name says it all."""
        return ()
