"""`once.merge`: rows are put in by key, the latest wins whatever the order they come in, and deletes stay deleted."""

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


def merge(  # noqa: PLR0913  every word of it is a choice of the user's
    target: str,
    keys: ColumnNames,
    latest_by: ColumnNames = None,
    delete_when: str | Column | None = None,
    *,
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
    """Merge rows into a table by key.

    Of the rows of a key the one with the greatest `latest_by` wins, in the batch and against the table, so that batches
    may come in any order and any number of times; where it is equal a delete wins, then the content decides. Without
    `latest_by` the batch that comes last wins.

    `delete_when` says which rows are deletes; that they were deleted is remembered, for ever or as long as `tombstones`
    says ("90 days"), so that an older row that comes late does not bring the key back. Columns in `leave_out` may decide
    and are not written. `cdc` unwraps "debezium" or "delta" (a change feed). `update` is False, or the columns that
    change; `insert=False` leaves new keys out. `schema="evolve"` adds new columns, "freeze" refuses them.
    `null_keys="quarantine"` sets rows without a key aside.
    """
    columns = () if isinstance(update, bool) else parse_columns("update", update)
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
        update if isinstance(update, bool) else columns,
        insert,
        parse_age("tombstones", tombstones),
    )


@dataclass(frozen=True)
class Merge(KeyedPattern):
    """The pattern, as it was declared."""

    update: bool | tuple[str, ...]
    insert: bool
    remembers: timedelta | None
    kind = "merge"

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """One merge of the rows that change something; where none does, of none, which carries the marker."""
        from oncelake.keyed.merge import KeyedMerge

        KeyedMerge.begin(frame, self.spec, self.layout, writing).upsert(self.update, self.insert, self.remembers)
