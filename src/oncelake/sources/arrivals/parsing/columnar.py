"""Parse Parquet, ORC and Avro files into Arrow tables. Columns are matched by name, and cast only where nothing is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.array_casts import Cast, cast_array
from oncelake.sources.arrivals.parsing.array_json import json_values
from oncelake.sources.arrivals.parsing.avro import MixedColumn, read_avro
from oncelake.sources.arrivals.parsing.columnar_files import read_orc, read_parquet, read_row_groups
from oncelake.sources.arrivals.parsing.decompress import BadFile
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, without_long_rows
from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.records import DRIFT, FileFormat, PackedFile, Parsed
from oncelake.sources.arrivals.parsing.rescue import join_entries, rescue_entries
from oncelake.sources.arrivals.parsing.rows import RowBuilder, bad_file, concat, rows_schema
from oncelake.sources.arrivals.schema_types import normalize

_ADDRESS = re.compile(r" from <[^<>]* object at 0x[0-9a-f]+>")
Column = Any  # an array of Arrow, or a `MixedColumn`


class RowGroups(NamedTuple):
    """A part of a Parquet file: its row groups from `first` on, the number of rows before them, and that of their own if it is known."""

    file: int
    first: int
    groups: int
    row: int
    rows: int | None


def parse_columnar(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the rows of Parquet, ORC or Avro files, and what could not be read. A file that is damaged gives no rows."""
    return concat([RowBuilder(schema).build(), *(_parse_file(each, fmt, schema) for each in files)])


def _parse_file(file: PackedFile, fmt: FileFormat, schema: pa.Schema) -> Parsed:
    try:
        columns, rows = _READERS[fmt.kind](file.content, fmt.max_expanded_bytes)
        return _to_parsed(file.index, columns, rows, schema)
    except Exception as error:  # noqa: BLE001 - no input may raise
        reason = str(error) if isinstance(error, BadFile) else f"not valid {fmt.kind}: {_message(error)}"
        return bad_file(schema, file.index, reason, file.content)


def parse_row_groups(source: Any, part: RowGroups, fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the rows of some row groups of a Parquet file. If they cannot be read, the file is bad."""
    try:
        columns, rows = read_row_groups(source, range(part.first, part.first + part.groups), fmt.max_expanded_bytes)
        if part.rows is not None and rows != part.rows:
            raise BadFile(f"the row groups have {rows} rows, and had {part.rows}")
        return without_long_rows(_to_parsed(part.file, columns, rows, schema, part.row), MAX_RECORD_BYTES)
    except Exception as error:  # noqa: BLE001 - no input may raise
        reason = str(error) if isinstance(error, BadFile) else f"not valid {fmt.kind}: {_message(error)}"
        return bad_file(schema, part.file, reason)


def _message(error: Exception) -> str:
    # The place of an object in memory says nothing, and is another one for each attempt.
    return _ADDRESS.sub("", str(error)) or type(error).__name__


def _to_parsed(file: int, columns: Mapping[str, Column], rows: int, schema: pa.Schema, before: int = 0) -> Parsed:
    builder, drift = RowBuilder(schema), Counter[tuple[str, str]]()
    builder.count(file, rows)
    matched, unmatched = FieldNames(schema.names).match(columns)
    values, entries = {}, []
    for name, reason in unmatched.items():
        lost = _is_present(columns[name])
        if pc.any(lost).as_py():
            entries.append(rescue_entries(name, _json(columns[name]), reason))
            drift.update(_types(name, columns[name], lost, None))
    for column, name in matched.items():
        type_ = schema.field(column).type
        values[column], reasons = _cast(columns[name], type_)
        if reasons is not None:
            lost = pc.is_valid(reasons)
            entries.append(rescue_entries(column, _json(columns[name], lost), reasons))
            drift.update(_types(column, columns[name], lost, type_))
    arrays = [values[each.name] if each.name in values else pa.nulls(rows, each.type) for each in schema]
    numbers = [
        pa.array(np.full(rows, file, np.int64)),
        pa.array(np.arange(before + 1, before + rows + 1, dtype=np.int64)),
    ]
    table = pa.table([*arrays, *numbers, join_entries(entries, rows)], schema=rows_schema(schema))
    return replace(builder.build(), rows=table, drift=_drift_table(drift))


def _cast(column: Column, type_: pa.DataType) -> Cast:
    return column.cast(type_) if isinstance(column, MixedColumn) else cast_array(column, type_)


def _is_present(column: Column) -> pa.Array:
    if isinstance(column, MixedColumn):
        return pa.array([value is not None for value in column.values], pa.bool_())
    return pc.is_valid(column)


def _json(column: Column, lost: pa.Array | None = None) -> pa.Array:
    """Return values as JSON: all of them, or those that are lost, in the place where they were."""
    if isinstance(column, MixedColumn):
        return column.json_values()
    if lost is None:
        return json_values(column)
    places = pc.if_else(lost, pc.subtract(pc.cumulative_sum(lost.cast(pa.int64())), 1), pa.scalar(None, pa.int64()))
    return json_values(column.filter(lost)).take(places)


def _types(name: str, column: Column, lost: pa.Array, current: pa.DataType | None) -> Counter[tuple[str, str]]:
    """Return the types that would hold what is lost. A type that the column has already is none."""
    if isinstance(column, MixedColumn):
        types = column.types(lost, current)
    else:
        types = Counter({str(normalize(column.type)): pc.sum(lost).as_py()})
    unfit = {str(current), "null"} | ({"string"} if _is_read_from_text(current) else set())
    return Counter({(name, type_): rows for type_, rows in types.items() if type_ not in unfit})


def _is_read_from_text(type_: pa.DataType | None) -> bool:
    """Say whether text is no other type, but spelled wrongly."""
    return type_ is not None and bool(
        pa.types.is_temporal(type_) or pa.types.is_decimal(type_) or pa.types.is_binary(type_)
    )


def _drift_table(drift: Counter[tuple[str, str]]) -> pa.Table:
    rows = [(column, type_, count) for (column, type_), count in drift.items()]
    return pa.table([pa.array([row[at] for row in rows], each.type) for at, each in enumerate(DRIFT)], schema=DRIFT)


_READERS: dict[str, Callable[[bytes, int], tuple[Mapping[str, Column], int]]] = {
    "parquet": read_parquet,
    "orc": read_orc,
    "avro": read_avro,
}
