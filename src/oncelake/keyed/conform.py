"""A batch for a table with keys: deletes told apart, columns fitted to the table's, null keys refused or set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta import writes
from oncelake.delta.log import TableLog
from oncelake.delta.targets import error_for, look_at, table_schema
from oncelake.errors import NullKeys, RepeatedKeys, WrongColumns
from oncelake.keyed.latest import column, refuse_unordered
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.spark.columns import find_column
from oncelake.spark.row_encoding import type_text
from oncelake.spark.sql import equal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED = "__once_deleted"
_EXAMPLES = 3
_WIDTHS = ("byte", "short", "integer", "long")


@dataclass(frozen=True)
class TableColumns:
    """What the columns of a keyed table are to it, in the table's own spelling."""

    keys: tuple[str, ...]
    by: tuple[str, ...]
    schema: T.StructType

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [field.name for field in self.schema.fields]


def flagged(frame: DataFrame, spec: Spec, writing: Writing) -> DataFrame:
    """The frame with a flag on the rows that are deletes, without the columns to be left out; null is no delete."""
    condition = F.expr(spec.delete_when) if isinstance(spec.delete_when, str) else spec.delete_when
    if condition is not None:
        frame = frame.withColumn(DELETED, F.coalesce(condition.cast("boolean"), F.lit(False)))
    elif DELETED not in frame.columns:
        frame = frame.withColumn(DELETED, F.lit(False))
    return frame.drop(*(find_column(frame, name, look_at(writing))[0] for name in spec.exclude))


def refuse_keyless(frame: DataFrame, spec: Spec, writing: Writing) -> None:
    """Refuse a frame without the declared keys and order, before a table is made for it."""
    look = look_at(writing)
    names = [find_column(frame, name, look)[0] for name in (*spec.keys, *spec.by)]
    refuse_unordered(frame.schema, names, writing.where)


def table_columns(frame: DataFrame, log: TableLog, spec: Spec, own: Collection[str], writing: Writing) -> TableColumns:
    """The columns of the table without its `own`, and those of the frame that it has not got yet; keys are in both."""
    there = [field for field in table_schema(log).fields if field.name not in own]
    known = {field.name.casefold(): field.name for field in there}
    lacking = [name for name in (*spec.keys, *spec.by) if name.casefold() not in known]
    if lacking:
        # Rows that are there would get a null key, and no row would ever match them.
        raise misfit(writing, f"the table has no column {', '.join(lacking)}, which is declared as key or order")
    new = [f for f in frame.schema.fields if f.name.casefold() not in known and f.name != DELETED]
    keys, by = (tuple(known[name.casefold()] for name in names) for names in (spec.keys, spec.by))
    return TableColumns(keys, by, T.StructType([*there, *new]))


def fitted(frame: DataFrame, columns: TableColumns, writing: Writing) -> DataFrame:
    """The frame with the table's columns, spelling and types. Only what loses nothing is cast."""
    ours = {field.name.casefold(): field for field in frame.schema.fields}
    chosen = []
    for field in columns.schema.fields:
        mine = ours.get(field.name.casefold())
        if mine is None:
            chosen.append(F.lit(None).cast(field.dataType).alias(field.name))
            continue
        if not widens(mine.dataType, field.dataType):
            kinds = f"{mine.dataType.simpleString()}, the table's is {field.dataType.simpleString()}"
            raise misfit(writing, f"column {mine.name} is {kinds}")
        chosen.append(column(mine.name).cast(field.dataType).alias(field.name))
    return frame.select(*chosen, DELETED)


def widens(source: T.DataType, target: T.DataType) -> bool:
    """Whether every value of one type is a value of the other, so that a cast loses and confuses nothing."""
    # Nullability is left out of the texts: a table does not keep it.
    if type_text(source) == type_text(target) or isinstance(source, T.NullType):
        return True
    if source.typeName() in _WIDTHS and target.typeName() in _WIDTHS:
        return _WIDTHS.index(source.typeName()) <= _WIDTHS.index(target.typeName())
    if isinstance(source, T.DecimalType) and isinstance(target, T.DecimalType):
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    return isinstance(source, T.FloatType) and isinstance(target, T.DoubleType)


def null_keys(columns: TableColumns) -> Column:
    """The condition for rows without a whole key."""
    condition = F.lit(False)
    for key in columns.keys:
        condition = condition | column(key).isNull()
    return condition


def refuse(error: type[NullKeys | RepeatedKeys], rows: DataFrame, columns: TableColumns, writing: Writing) -> NoReturn:
    """Refuse a batch, with examples of the rows that are wrong."""
    examples = "; ".join(shown(row.asDict()) for row in rows.limit(_EXAMPLES).collect())
    raise error_for(error, writing, keys=", ".join(columns.keys), examples=examples)


def shown(row: Mapping[str, Any]) -> str:
    """A row for people, the first columns of it."""
    texts = [f"{name}={'null' if value is None else value}" for name, value in list(row.items())[:6]]
    return "(" + ", ".join(texts) + (", …)" if len(row) > len(texts) else ")")


def set_aside(frame: DataFrame, reason: str, writing: Writing) -> Writing:
    """Put rows into quarantine, in the place of those an earlier attempt at the same work put there.

    This comes before the target's commit, so that no row is lost when the work is killed between the two.
    """
    work = writing.work
    row = F.to_json(F.struct(*(column(n) for n in frame.columns if n != DELETED)), {"ignoreNullFields": "false"})
    facts = {"work": work.marker.app_id, "reason": reason, "pipeline": work.pipeline, "slice": work.slice.text}
    tagged = frame.select(*(F.lit(value).alias(name) for name, value in facts.items()), row.alias("row"))
    tagged = tagged.localCheckpoint()
    path = f"{writing.own}/quarantine/{work.target}"
    writes.create(tagged, path, writes.Layout())
    tagged.write.format("delta").mode("overwrite").option("replaceWhere", equal("work", work.marker.app_id)).save(path)
    return replace(writing, stamp=writing.stamp.noting(quarantined=tagged.count()))


def misfit(writing: Writing, difference: str) -> WrongColumns:
    """The error of a frame that does not fit the table."""
    return error_for(WrongColumns, writing, difference=difference)
