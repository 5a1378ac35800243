"""Conform a batch to its keyed table: flag deletes, cast columns to the table's types, refuse or quarantine null keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.delta import writes
from oncelake.delta.log import TableLog
from oncelake.delta.targets import error_for, frame_origin, table_schema
from oncelake.errors import NullKeys, RepeatedKeys, WrongColumns
from oncelake.keyed.latest import column, require_sortable
from oncelake.keyed.spec import Spec
from oncelake.model.contracts import Writing
from oncelake.spark.columns import find_column
from oncelake.spark.materialize import materialize
from oncelake.spark.row_encoding import type_text
from oncelake.spark.sql import equal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED = "__once_deleted"
_EXAMPLES = 3
_WIDTHS = ("byte", "short", "integer", "long")


@dataclass(frozen=True)
class TableColumns:
    """The key columns, the order columns and the schema of a keyed table, in the table's spelling."""

    keys: tuple[str, ...]
    by: tuple[str, ...]
    schema: T.StructType

    @property
    def names(self) -> list[str]:
        """Return the names of all columns."""
        return [field.name for field in self.schema.fields]


def flag_deletes(frame: DataFrame, spec: Spec, writing: Writing) -> DataFrame:
    """Add a boolean column that flags deletes, and drop the excluded columns. A null condition is not a delete.

    A row of a change feed is a delete if the feed or the declared condition says so.
    """
    condition = F.expr(spec.delete_when) if isinstance(spec.delete_when, str) else spec.delete_when
    deleted = column(DELETED) if DELETED in frame.columns else F.lit(False)
    if condition is not None:
        deleted = deleted | F.coalesce(condition.cast("boolean"), F.lit(False))
    frame = frame.withColumn(DELETED, deleted)
    return frame.drop(*(find_column(frame, name, frame_origin(writing))[0] for name in spec.exclude))


def require_key_columns(frame: DataFrame, spec: Spec, writing: Writing) -> None:
    """Raise if the frame lacks a declared key or order column. This runs before the table is created."""
    origin = frame_origin(writing)
    names = [find_column(frame, name, origin)[0] for name in (*spec.keys, *spec.by)]
    require_sortable(frame.schema, names, writing.where)


def resolve_columns(
    frame: DataFrame, log: TableLog, spec: Spec, generated: Collection[str], writing: Writing
) -> TableColumns:
    """Return the table's columns except the `generated` ones, followed by the frame's new columns.

    Raise if the table lacks a declared key or order column.
    """
    existing = [field for field in table_schema(log).fields if field.name not in generated]
    known = {field.name.casefold(): field.name for field in existing}
    lacking = [name for name in (*spec.keys, *spec.by) if name.casefold() not in known]
    if lacking:
        # Existing rows would get a null key, and no batch row would ever match them.
        raise wrong_columns(writing, f"the table has no column {', '.join(lacking)}, which is declared as key or order")
    new = [f for f in frame.schema.fields if f.name.casefold() not in known and f.name != DELETED]
    keys, by = (tuple(known[name.casefold()] for name in names) for names in (spec.keys, spec.by))
    return TableColumns(keys, by, T.StructType([*existing, *new]))


def fit_to_table(frame: DataFrame, columns: TableColumns, writing: Writing) -> DataFrame:
    """Return the frame with the table's columns, spelling and types. Only casts that lose nothing are allowed."""
    frame_fields = {field.name.casefold(): field for field in frame.schema.fields}
    selected = []
    for field in columns.schema.fields:
        frame_field = frame_fields.get(field.name.casefold())
        if frame_field is None:
            selected.append(F.lit(None).cast(field.dataType).alias(field.name))
            continue
        if not can_widen(frame_field.dataType, field.dataType):
            types = f"{frame_field.dataType.simpleString()}, but {field.dataType.simpleString()} in the table"
            raise wrong_columns(writing, f"column {frame_field.name} is {types}")
        selected.append(column(frame_field.name).cast(field.dataType).alias(field.name))
    return frame.select(*selected, DELETED)


def can_widen(source: T.DataType, target: T.DataType) -> bool:
    """Return whether every value of `source` is also a value of `target`, so that the cast loses nothing."""
    # The type texts omit nullability, because a table does not keep it.
    if type_text(source) == type_text(target) or isinstance(source, T.NullType):
        return True
    if source.typeName() in _WIDTHS and target.typeName() in _WIDTHS:
        return _WIDTHS.index(source.typeName()) <= _WIDTHS.index(target.typeName())
    if isinstance(source, T.DecimalType) and isinstance(target, T.DecimalType):
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    return isinstance(source, T.FloatType) and isinstance(target, T.DoubleType)


def has_null_key(columns: TableColumns) -> Column:
    """Return the condition for rows in which a key column is null."""
    condition = F.lit(False)
    for key in columns.keys:
        condition = condition | column(key).isNull()
    return condition


def refuse(error: type[NullKeys | RepeatedKeys], rows: DataFrame, columns: TableColumns, writing: Writing) -> NoReturn:
    """Raise `error` for a batch, with examples of the wrong rows."""
    examples = "; ".join(format_row(row.asDict()) for row in rows.limit(_EXAMPLES).collect())
    raise error_for(error, writing, keys=", ".join(columns.keys), examples=examples)


def format_row(row: Mapping[str, Any]) -> str:
    """Format the first columns of a row for a message."""
    texts = [f"{name}={'null' if value is None else value}" for name, value in list(row.items())[:6]]
    return "(" + ", ".join(texts) + (", …)" if len(row) > len(texts) else ")")


def quarantine(frame: DataFrame, reason: str, writing: Writing) -> Writing:
    """Write rows to the quarantine table, and replace the rows that an earlier attempt at the same work wrote there.

    Quarantine is written before the target's commit, so that no row is lost if the process dies between the two.
    """
    work = writing.work
    row = F.to_json(F.struct(*(column(n) for n in frame.columns if n != DELETED)), {"ignoreNullFields": "false"})
    facts = {"work": work.marker.app_id, "reason": reason, "pipeline": work.pipeline, "slice": work.slice.text}
    tagged = frame.select(*(F.lit(value).alias(name) for name, value in facts.items()), row.alias("row"))
    tagged = materialize(tagged)
    path = f"{writing.internal}/quarantine/{work.target}"
    writes.create(tagged, path, writes.Layout())
    tagged.write.format("delta").mode("overwrite").option("replaceWhere", equal("work", work.marker.app_id)).save(path)
    return writing.with_facts(quarantined=tagged.count())


def wrong_columns(writing: Writing, difference: str) -> WrongColumns:
    """Return the error for a frame whose columns do not fit the table."""
    return error_for(WrongColumns, writing, difference=difference)
