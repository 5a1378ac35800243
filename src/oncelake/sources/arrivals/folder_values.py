"""The values in the names of folders like `region=EU`: for their columns, or else rescued. No value is lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from oncelake.sources.arrivals.discovery import folder_pairs, partition_values
from oncelake.sources.arrivals.parsing.names import NO_SUCH_COLUMN
from oncelake.sources.arrivals.parsing.packs import RESCUED_AS
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

# The value of the innermost folder of a name, and those of the folders around it of the same name. By the number of the name:
# names may differ by case alone.
_FOLDER, _OUTER = "__once_folder ", "__once_outer_folder "
_NESTED = ("struct", "array", "map", "variant")
NO_FIT = "the name of the folder does not fit the column"
OTHER_VALUE = "the name of a folder; the column has another value, of the file or of a folder inside"


def folder_columns(paths: Sequence[str], names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the values that the folders of files have for each name, as columns of a table of the files."""
    innermost = [partition_values(path) if names else {} for path in paths]
    outer = [outer_values(path) if names else {} for path in paths]
    return {
        f"{kind}{number}": pa.array([each.get(name) for each in values], pa.string())
        for kind, values in ((_FOLDER, innermost), (_OUTER, outer))
        for number, name in enumerate(names)
    }


def outer_values(path: str) -> dict[str, str]:
    """Return the values that other folders inside replace, as in `region=EU/region=US`; several as a path."""
    inner = partition_values(path)
    found: dict[str, list[str]] = {}
    for name, value in folder_pairs(path):
        if value is not None and value != inner[name]:
            found.setdefault(name, []).append(value)
    return {name: "/".join(values) for name, values in found.items()}


@dataclass(frozen=True)
class FolderValues:
    """The column of a name in folders, and what is rescued then. A value in the file wins over the folder."""

    column: Column
    rescued: Column

    @classmethod
    def of(cls, number: int, name: str, column: Column | None, kind: DataType | None) -> FolderValues:
        """Return the values of a name, by its number; `column` is what the file has, None if there is no such column."""
        named, outer = (F.col(identifier(f"{each}{number}")) for each in (_FOLDER, _OUTER))
        if column is None or kind is None:
            return cls(F.lit(None), _rescue(name, F.concat_ws("/", outer, named), _when(named, NO_SUCH_COLUMN)))
        cast = F.lit(None).cast(kind) if kind.typeName() in _NESTED else named.try_cast(kind)
        fits = F.lit(False) if kind.typeName() in _NESTED else F.coalesce(column, cast).eqNullSafe(cast)
        misfit = named.isNotNull() & cast.isNull()
        lost = named.isNotNull() & (cast.isNull() | ~fits)
        value = F.concat_ws("/", outer, F.when(lost, named))
        reason = F.when(misfit & column.isNull(), NO_FIT).when(lost | outer.isNotNull(), OTHER_VALUE)
        return cls(F.coalesce(column, cast), _rescue(name, value, reason))


def _when(value: Column, reason: str) -> Column:
    return F.when(value.isNotNull(), reason)


def _rescue(name: str, value: Column, reason: Column) -> Column:
    """Return what is rescued of a row, with a value of its folders where there is a reason."""
    entry = F.struct(value.alias("value"), reason.alias("reason"))
    added, before = F.to_json(F.create_map(F.lit(name), entry)), F.col(RESCUED_AS)
    both = F.concat(F.expr(f"left({identifier(RESCUED_AS)}, length({identifier(RESCUED_AS)}) - 1)"), F.lit(", "))
    joined: Any = F.when(before.isNull(), added).otherwise(F.concat(both, F.substring(added, 2, 1 << 30)))
    return F.when(reason.isNull(), before).otherwise(joined)
