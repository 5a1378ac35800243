"""JSON lines by Arrow's reader: used only where it certainly gives what the strict parser would give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from oncelake.sources.arrivals.parsing.records import BAD, COUNTS, DRIFT, FILE, Parsed
from oncelake.sources.arrivals.parsing.rows import rows_schema

_BLANK = b" \t\r\n"
# A number that is too small for a floating type, and would become zero, has a large negative power of ten, or many zeros.
_TINY = {
    pa.float32(): re.compile(rb"[:,\[ \t]-?[0-9.]+[eE]-[0-9]{2}"),
    pa.float64(): re.compile(rb"[:,\[ \t]-?[0-9.]+[eE]-[0-9]{3}"),
}
# A text like "08001", which Arrow reads as a decimal, without its zero; and what may be such a text in other letters.
_PADDED = re.compile(rb'"[+-]?0[0-9][0-9.eE+-]*"|\\u00[23]')
# Integers up to here are exact in the type; numbers beyond may be infinite, or integers that were rounded.
_EXACT_BELOW = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
_SAME = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()}
# From the first day of year 1 to the last of year 9999, the days and microseconds since 1970.
_DAYS = (-719162, 2932896)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


class _Lines(Protocol):
    @property
    def file(self) -> int: ...
    @property
    def line(self) -> int: ...
    @property
    def content(self) -> bytes: ...


@dataclass(frozen=True)
class ArrowReader:
    """Reads lines by Arrow for one schema: `read_types` are what Arrow reads, the types of `rows` are what they become."""

    read_types: pa.Schema
    rows: pa.Schema

    @staticmethod
    def of(schema: pa.Schema) -> ArrowReader | None:
        """Return the reader for a schema, or None if it has a type that Arrow reads otherwise than the strict parser."""
        types = {field.name: _read_type(field.type) for field in schema}
        if not types or None in types.values() or len(types) < len(schema):
            return None
        return ArrowReader(pa.schema(types), rows_schema(schema))

    def read(self, pieces: Sequence[_Lines]) -> Parsed | None:
        """Return the rows of all pieces, or None if a single one of their lines is doubtful."""
        texts = [piece.content.rstrip(_BLANK) for piece in pieces]
        data = b"\n".join(texts)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        lines = [text.count(b"\n") + 1 for text in texts]
        if not _is_plain(data, sum(lines)) or (self._has_decimals and _PADDED.search(data)):
            return None
        try:
            table = self._read(data)
            if table.num_rows != sum(lines) or not _is_certain(table, data):
                return None
            columns = [_become(table[name], self.rows.field(name).type) for name in table.column_names]
        except (pa.ArrowException, ValueError):  # Arrow's own errors are a mixture of both
            return None
        return self._parsed(columns, pieces, lines) if None not in columns else None

    @cached_property
    def _has_decimals(self) -> bool:
        return any(pa.types.is_decimal(type_) for type_ in self.read_types.types)

    def _read(self, data: bytes) -> pa.Table:
        return pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self.read_types, newlines_in_values=False, unexpected_field_behavior="error"
            ),
        )

    def _parsed(self, columns: list[pa.ChunkedArray], pieces: Sequence[_Lines], lines: list[int]) -> Parsed:
        files: list[int] = []
        numbers: list[int] = []
        for piece, count in zip(pieces, lines, strict=True):
            files.extend([piece.file] * count)
            numbers.extend(range(piece.line, piece.line + count))
        extra = [pa.array(files, pa.int64()), pa.array(numbers, pa.int64()), pa.nulls(len(files), pa.string())]
        counts = pa.table({FILE: [piece.file for piece in pieces], "read": lines}, schema=COUNTS)
        rows = pa.table([*columns, *extra], schema=self.rows)
        return Parsed(rows, BAD.empty_table(), counts, DRIFT.empty_table())


def _read_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the type to read a column as, so that what is read can be checked; None if there is no such type."""
    if pa.types.is_decimal128(type_):
        # Arrow does not check whether a decimal has too many digits, and may overflow 128 bits, but not 256.
        return pa.decimal256(type_.precision, type_.scale) if type_.scale >= 0 else None
    if type_ == pa.date32() or type_ == pa.timestamp("us"):
        return pa.string()  # Arrow reads numbers as dates, and ignores the time zone of a text
    if type_ == pa.timestamp("us", tz="UTC") or _has_same_leaves(type_):
        return type_
    return None


def _has_same_leaves(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_):
        return _has_same_leaves(type_.value_type)
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_has_same_leaves(field.type) for field in type_)
    return type_ in _SAME


def _is_plain(data: bytes, lines: int) -> bool:
    """Say whether the lines look like one object each, without anything on which parsers differ.

    If each line starts with { and ends with }, then no object goes over two lines, because } is never followed by {
    inside of one. So each line has at least one object, and exactly one if there are as many objects as lines. Arrow crashes
    the process if the first value is null; here it is not.
    """
    if not (data.startswith(b"{") and data.endswith(b"}") and data.count(b"}\n{") == lines - 1 == data.count(b"\n")):
        return False
    if b"\0" in data or b"\r" in data:
        return False
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _is_certain(table: pa.Table, data: bytes) -> bool:
    """Say whether no number has been rounded to infinity, to zero, or to another integer."""
    for leaf in _leaves(table.columns):
        limit = _EXACT_BELOW.get(leaf.type)
        if limit is None:
            continue
        if not pc.all(pc.less(pc.abs(leaf), limit), min_count=0).as_py():
            return False
        if pc.any(pc.equal(leaf, 0), min_count=0).as_py() and _may_be_tiny(data, leaf.type):
            return False
    return True


def _may_be_tiny(data: bytes, type_: pa.DataType) -> bool:
    if b"0" * 20 in data:
        return True
    return (b"e-" in data or b"E-" in data) and _TINY[type_].search(data) is not None


def _leaves(columns: Sequence[pa.ChunkedArray]) -> Iterator[pa.Array]:
    for column in columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if pa.types.is_nested(chunk.type):
                yield from _leaves(chunk.flatten() if pa.types.is_struct(chunk.type) else [chunk.flatten()])
            else:
                yield chunk


def _become(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return a column in the type of the schema. A cast fails on anything that does not fit."""
    column = column if column.type == type_ else column.cast(type_)
    if not pa.types.is_timestamp(type_) and not pa.types.is_date(type_):
        return column
    numbers = column.cast(pa.int64() if pa.types.is_timestamp(type_) else pa.int32())
    first, last = _MICROSECONDS if pa.types.is_timestamp(type_) else _DAYS
    found = pc.min_max(numbers).as_py()
    return column if found["min"] is None or (first <= found["min"] and found["max"] <= last) else None
