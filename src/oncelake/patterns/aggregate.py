"""`once.aggregate`: one row per group. Recomputed groups are set or, with the marker in the same commit, added to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_target
from oncelake.keyed.pattern import KeyedPattern
from oncelake.keyed.spec import parse_spec
from oncelake.model.contracts import Writing
from oncelake.model.intervals import Grid
from oncelake.model.slices import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregate(  # noqa: PLR0913  every option of the pattern
    target: str,
    keys: ColumnNames,
    add: ColumnNames = None,
    *,
    any_order: bool = False,
    schema: str = "freeze",
    deletion_vectors: bool = False,
    compact: bool = True,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> Aggregate:
    """Upsert the groups of the result; other groups stay. Each group has one row, and null is a group like any other.

    With `add` the named columns are added to the values in the table: integers and decimals, whose sum does not depend on
    the order. A work that adds cannot be restated.

    Without `add` a group that occurs in two slices has the value of the later one, so slices run in the order of time.
    `any_order=True` says that no group occurs in two slices: then they may run in any order.
    """
    spec = parse_spec(f"aggregate into {target}", keys, schema=schema, nulls="key")
    layout = parse_layout(partition_by, cluster_by, deletion_vectors, compact)
    return Aggregate(parse_target(target), spec, layout, parse_columns("add", add), any_order)


@dataclass(frozen=True)
class Aggregate(KeyedPattern):
    """A declared `aggregate`."""

    add: tuple[str, ...]
    any_order: bool = False
    kind = "aggregate"

    @property
    def ordered(self) -> bool:
        """Return whether a later slice replaces groups of an earlier one, so that the order matters."""
        return not self.add and not self.any_order

    @property
    def needs_state(self) -> bool:
        """Return whether values are set: then they must be those of all batches so far. What is added is of one batch."""
        return not self.add

    @property
    def restates(self) -> bool:
        """Whether a work may be restated: not if it adds, because the values that it added are not recorded."""
        return not self.add

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse `add` without intervals: each change of an input would add all values again."""
        if self.add and grid is None:
            return f"aggregate into {self.target} with add= needs every=: without intervals each new version of an input would be added again"
        return None

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one MERGE that contains the groups that change."""
        from oncelake.keyed.merge import KeyedMerge

        merge = KeyedMerge.begin(frame, self.spec, self.layout, writing)
        if self.add:
            merge.add(self.add)
        else:
            # A batch has groups that it changed.
            changed = isinstance(writing.work.slice, Batch)
            merge.upsert(update=True, insert=True, tombstone_retention=None, all_change=changed)
