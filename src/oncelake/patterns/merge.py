"""`once.merge`: upsert by key. The latest row wins in whatever order batches arrive, and deleted keys stay deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_target
from oncelake.keyed.pattern import KeyedPattern
from oncelake.keyed.spec import parse_age, parse_spec
from oncelake.model.contracts import Writing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def merge(  # noqa: PLR0913  every option of the pattern
    target: str,
    keys: ColumnNames,
    latest_by: ColumnNames = None,
    delete_when: str | Column | None = None,
    *,
    any_order: bool = False,
    update: bool | ColumnNames = True,
    insert: bool = True,
    cdc: str | None = None,
    exclude: ColumnNames = None,
    schema: str = "freeze",
    null_keys: str = "refuse",
    tombstones: str | None = None,
    deletion_vectors: bool = False,
    compact: bool = True,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> Merge:
    """Upsert rows into a table by key.

    The row of a key with the greatest `latest_by` wins, within the batch and against the table, so batches may arrive in
    any order and any number of times. On a tie a delete wins, then the content decides. Without `latest_by` the batch
    that is written last wins, so slices run in order, as they do where parts of rows are written (see `Merge.ordered`),
    unless `any_order=True` says that no key occurs in two of them.

    `delete_when` selects deletes. A deleted key leaves a tombstone, kept forever or as long as `tombstones` says ("90
    days"), so that an older row that arrives late does not insert the key again. `exclude` names columns for `delete_when`
    that are not written. `cdc` unwraps "debezium" or "delta" (a change data feed). `update` is False, or the columns to
    update; `insert=False` skips new keys. `schema="evolve"` adds new columns. `null_keys="quarantine"` keeps null keys aside.
    """
    spec = parse_spec(
        f"merge into {target}",
        keys,
        latest_by,
        delete_when=delete_when,
        cdc=cdc,
        exclude=exclude,
        schema=schema,
        nulls=null_keys,
    )
    return Merge(
        parse_target(target),
        spec,
        parse_layout(partition_by, cluster_by, deletion_vectors, compact),
        update if isinstance(update, bool) else parse_columns("update", update),
        insert,
        parse_age("tombstones", tombstones),
        any_order,
    )


@dataclass(frozen=True)
class Merge(KeyedPattern):
    """A declared `merge`."""

    update: bool | tuple[str, ...]
    insert: bool
    tombstone_retention: timedelta | None
    any_order: bool = False
    kind = "merge"

    @property
    def ordered(self) -> bool:
        """Return whether the order of slices matters.

        Without `latest_by` the batch that comes last wins. With it, the columns that `update` leaves out keep the values
        of the first row that was inserted. And where rows are updated but not inserted, a newer row is lost if an older
        delete of its key comes first.
        """
        if self.any_order:
            return False
        keeps_first = self.insert and self.update is not True
        loses_to_delete = not self.insert and self.update is not False and self.spec.deletes
        return not self.spec.by or keeps_first or loses_to_delete

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one MERGE that contains only rows that change; if none do, the commit carries the marker alone."""
        from oncelake.keyed.merge import KeyedMerge

        merge = KeyedMerge.begin(frame, self.spec, self.layout, writing)
        merge.upsert(self.update, self.insert, self.tombstone_retention)
