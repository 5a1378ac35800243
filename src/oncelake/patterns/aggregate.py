"""`once.aggregate`: a row per group; what is recomputed is set, or, with the marker in the same commit, added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_target
from oncelake.keyed.pattern import KeyedPattern
from oncelake.keyed.spec import parse_spec
from oncelake.model.contracts import Writing
from oncelake.model.intervals import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregate(  # noqa: PLR0913  every word of it is a choice of the user's
    target: str,
    keys: ColumnNames,
    add: ColumnNames = None,
    *,
    schema: str = "freeze",
    deletion_vectors: bool = False,
    compact: bool = True,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> Aggregate:
    """Set the groups that were recomputed; the others stay. A group is there once, and null is a group like any other.

    With `add` the named columns are added to what is there instead: whole numbers and decimals, whose sum does not depend
    on the order. A work that adds cannot be restated.
    """
    spec = parse_spec(f"aggregate into {target}", keys, schema=schema, nulls="key")
    layout = parse_layout(partition_by, cluster_by, deletion_vectors, compact)
    return Aggregate(parse_target(target), spec, layout, parse_columns("add", add))


@dataclass(frozen=True)
class Aggregate(KeyedPattern):
    """The pattern, as it was declared."""

    add: tuple[str, ...]
    kind = "aggregate"

    @property
    def restates(self) -> bool:
        """Not if it adds: what it added the first time is not known any more."""
        return not self.add

    def problem(self, grid: Grid | None) -> str | None:
        """Without intervals every change of an input would add everything again."""
        if self.add and grid is None:
            return f"aggregate into {self.target} with add= needs every=: without intervals each new version of an input would be added again"
        return None

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One merge of the groups that change."""
        from oncelake.keyed.merge import KeyedMerge

        merging = KeyedMerge.begin(frame, self.spec, self.layout, writing)
        if self.add:
            merging.add(self.add)
        else:
            merging.upsert(update=True, insert=True, tombstone_retention=None)
