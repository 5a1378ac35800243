"""`once.scd2`: every version of a row with the time it was valid, the same whatever order the rows come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from oncelake.caller import declared_at
from oncelake.contracts import Log, Writing
from oncelake.errors import BadDeclaration
from oncelake.identity import Marker, Slice, marker
from oncelake.intervals import Grid, Interval
from oncelake.keyed.spec import Spec, checked_choice, checked_keys, merge_notes
from oncelake.lake.layout import Columns, checked_columns, checked_layout, checked_target
from oncelake.lake.verbs import Layout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def scd2(  # noqa: PLR0913  every word of it is a choice of the user's
    target: str,
    keys: Columns,
    latest_by: Columns,
    track: Columns = None,
    delete_when: str | Column | None = None,
    *,
    cdc: str | None = None,
    leave_out: Columns = None,
    schema: str = "freeze",
    null_keys: str = "refuse",
    deletion_vectors: bool = False,
    compact: bool = True,
    partition_by: Columns = None,
    cluster_by: Columns = None,
) -> Scd2:
    """Keep the history of every key, in the columns `valid_from`, `valid_to` (null while it is current) and `is_current`.

    A version begins at the first column of `latest_by`, and opens when one of the columns in `track` changes (all but
    keys and order, if none are named); what is not tracked keeps the value it had when the version opened. A row that
    comes late is put into history at its place, a repeated one changes nothing, a delete closes. Of several rows of a
    key at one time the last by the other columns of `latest_by` counts; then a delete; then the content decides.
    """
    spec = Spec(
        checked_keys("scd2", target, keys),
        checked_columns("latest_by", latest_by),
        delete_when,
        checked_choice("cdc", cdc, (None, "debezium", "delta")),
        checked_columns("leave_out", leave_out),
        checked_choice("schema", schema, ("freeze", "evolve")) == "evolve",
        checked_choice("null_keys", null_keys, ("refuse", "quarantine")),
    )
    if not spec.by:
        raise BadDeclaration(where=declared_at(), problem=f"scd2 into {target} needs latest_by=")
    layout = checked_layout(partition_by, cluster_by, deletion_vectors, compact)
    return Scd2(checked_target(target), spec, layout, checked_columns("track", track))


@dataclass(frozen=True)
class Scd2:
    """The pattern, as it was declared."""

    target: str
    spec: Spec
    layout: Layout
    track: tuple[str, ...]
    kind = "scd2"
    replaces = False
    restates = True
    within: ClassVar[Mapping[str, Any]] = {}

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  it fits every pipeline
        """Nothing can be wrong with it."""
        return None

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """The slice is in the app id."""
        return marker(pipeline, self.target, slice_, generation)

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Interval]:  # noqa: ARG002  contract
        """Every interval has a marker of its own."""
        return log.done_intervals(pipeline, self.target)

    def notes(self, log: Log | None) -> tuple[str, ...]:
        """Which files a merge looks at, and which it rewrites."""
        return merge_notes(self.target, self.spec, self.layout, log)

    @property
    def compacts(self) -> bool:
        """Unless it was declared otherwise."""
        return self.layout.compact

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One merge of the versions that change."""
        from oncelake.keyed.history import History

        History.begun(frame, self.spec, self.track, self.layout, writing).write()
