"""Arrow values from Python values, by way of JSON.

Where pandas is installed, pyarrow imports it as soon as it converts a Python value, which takes longer than a whole `status`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

# A line of JSON must fit into one block.
_BLOCK = 16 * 1024 * 1024


def parse_lines(lines: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the fields of a schema from lines of JSON; ArrowInvalid if a line has other values or several lines."""
    if not lines:
        return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    try:
        text = "\n".join(lines).encode()
    except UnicodeEncodeError as error:
        raise pa.ArrowInvalid(str(error)) from error
    table = arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(block_size=max(_BLOCK, len(text)), use_threads=len(text) > _BLOCK),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid("a text has several lines")
    return table.select(schema.names)


def table_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table; a field that a row does not have is null."""
    return parse_lines([json.dumps(row) for row in rows], schema)


def array_of(values: Iterable[Any], type_: pa.DataType) -> pa.Array:
    """Return numbers or texts as an array."""
    table = table_of(({"value": value} for value in values), pa.schema([("value", type_)]))
    return pa.concat_arrays(table.column(0).chunks) if table.num_rows else pa.nulls(0, type_)


@lru_cache(maxsize=256)
def scalar_of(value: float | str | bool, type_: pa.DataType) -> pa.Scalar:
    """Return one value; the functions of pyarrow would convert it themselves."""
    return array_of([value], type_)[0]


def numbers(count: int) -> pa.Array:
    """Return the numbers from 0."""
    import pyarrow.compute as pc

    one = scalar_of(1, pa.int64())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count)), one)
