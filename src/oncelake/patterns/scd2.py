"""`once.scd2`: every version of a row with the time it was valid, the same in whatever order the rows arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta.layout import ColumnNames, parse_columns, parse_layout, parse_target
from oncelake.errors import BadDeclaration
from oncelake.keyed.pattern import KeyedPattern
from oncelake.keyed.spec import parse_spec
from oncelake.model.contracts import Writing
from oncelake.model.source_location import declared_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def scd2(  # noqa: PLR0913  every option of the pattern
    target: str,
    keys: ColumnNames,
    latest_by: ColumnNames,
    track: ColumnNames = None,
    delete_when: str | Column | None = None,
    *,
    cdc: str | None = None,
    exclude: ColumnNames = None,
    schema: str = "freeze",
    null_keys: str = "refuse",
    deletion_vectors: bool = False,
    compact: bool = True,
    partition_by: ColumnNames = None,
    cluster_by: ColumnNames = None,
) -> Scd2:
    """Keep the history of each key, in the columns `valid_from`, `valid_to` (null while it is current) and `is_current`.

    A version opens when one of the `track` columns changes (by default all columns but the keys and `latest_by`), and its
    `valid_from` is the first column of `latest_by`. Columns that are not tracked keep the value they had when the version
    opened. Late rows are inserted into the history at their place, repeated rows change nothing, a delete closes the
    version. If a key has several rows at one time, the last by the other columns of `latest_by` wins, then a delete, then
    the content decides.
    """
    spec = parse_spec(
        f"scd2 into {target}",
        keys,
        latest_by,
        delete_when=delete_when,
        cdc=cdc,
        exclude=exclude,
        schema=schema,
        nulls=null_keys,
    )
    if not spec.by:
        raise BadDeclaration(where=declared_at(), problem=f"scd2 into {target} needs latest_by=")
    layout = parse_layout(partition_by, cluster_by, deletion_vectors, compact)
    return Scd2(parse_target(target), spec, layout, parse_columns("track", track))


@dataclass(frozen=True)
class Scd2(KeyedPattern):
    """A declared `scd2`."""

    track: tuple[str, ...]
    kind = "scd2"

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one MERGE that contains the versions that change."""
        from oncelake.keyed.scd2 import Scd2Merge

        scd2 = Scd2Merge.begin(frame, self.spec, self.track, self.layout, writing)
        scd2.merge.merge(*scd2.changes(), from_read=True)
