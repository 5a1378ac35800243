"""Read whole Parquet and ORC files into Arrow columns. A file that is damaged anywhere is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.array_casts import plain_array
from oncelake.sources.arrivals.parsing.decompress import BadFile, check_size
from oncelake.sources.arrivals.parsing.orc_process import read_orc_table
from oncelake.sources.arrivals.parsing.temporal_arrays import raw_integers

Columns = dict[str, pa.Array]


def read_parquet(content: bytes, limit: int) -> tuple[Columns, int]:
    """Return the columns of a Parquet file, and the number of its rows."""
    if not content:
        raise BadFile("not valid parquet: the file is empty")
    return read_row_groups(pa.BufferReader(content), None, limit)


def read_row_groups(source: Any, chosen: Sequence[int] | None, limit: int) -> tuple[Columns, int]:
    """Return the columns of some row groups of a Parquet file, all of them if `chosen` is None, and the number of rows."""
    file = _open_parquet(source, "us")
    metadata = file.metadata
    numbers = range(metadata.num_row_groups) if chosen is None else chosen
    groups = [metadata.row_group(number) for number in numbers]
    rows = metadata.num_rows if chosen is None else sum(group.num_rows for group in groups)
    # Encodings make a million equal values a few bytes: a table needs at least a byte for each.
    check_size(max(sum(group.total_byte_size for group in groups), rows * metadata.num_columns), limit)
    columns = _columns(_read_groups(file, chosen), rows)
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    old = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"} & columns.keys()
    if old:
        nanoseconds = _columns(_read_groups(_open_parquet(source, "ns"), chosen), rows)
        columns |= {name: _exact_timestamps(columns[name], nanoseconds[name]) for name in old}
    return columns, rows


def _read_groups(file: Any, chosen: Sequence[int] | None) -> pa.Table:
    return file.read(use_threads=False) if chosen is None else file.read_row_groups(chosen, use_threads=False)


def read_orc(content: bytes, limit: int) -> tuple[Columns, int]:
    """Return the columns of an ORC file, and the number of its rows."""
    table = read_orc_table(content, limit)
    return _columns(table, table.num_rows), table.num_rows


def _open_parquet(source: Any, unit: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


def _columns(table: pa.Table, rows: int) -> Columns:
    if table.num_rows != rows:
        raise BadFile(f"the file has {table.num_rows} rows, and says that it has {rows}")
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise BadFile(f"the file has the column {twice[0]} more than once")
    return {
        name: _validated(plain_array(column)) for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _validated(array: pa.Array) -> pa.Array:
    """Check what Arrow's readers do not. Text that is not UTF-8 is returned as bytes, of which those that are no text are rescued."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if not pa.types.is_string(array.type):
            raise
        array = array.view(pa.binary())
        array.validate(full=True)
    return array


def _exact_timestamps(microseconds: pa.Array, nanoseconds: pa.Array) -> pa.Array:
    """Return timestamps of 96 bits in the unit that holds all of them: the one has fewer digits, the other fewer years."""
    try:
        microseconds.cast(nanoseconds.type)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(microseconds.type):
            raise BadFile("nested timestamps of 96 bits, out of range of nanoseconds") from None
    else:
        return nanoseconds
    numbers = raw_integers(microseconds)
    limit = (1 << 63) // 1000 - 1
    near = pc.and_(pc.greater_equal(numbers, -limit), pc.less_equal(numbers, limit))
    expected = pc.multiply(numbers.filter(near), 1000)
    if not pc.all(pc.equal(expected, raw_integers(nanoseconds).filter(near))).as_py():
        raise BadFile("timestamps of 96 bits, some of which need nanoseconds, and some more years than those have")
    return microseconds
