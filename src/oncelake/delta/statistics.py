"""Statistics of data files: JSON texts, parsed as one column for all files at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.delta.arrays import array_of, parse_lines, scalar_of

_INTEGERS = ("byte", "short", "integer", "long")
_TEXTS = ("date", "string", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Statistics:
    """What the statistics say of a column, by file: the number of rows and of nulls, the least and the greatest value.

    Null stands for what they do not say. Values are texts or integers; those of other types are not read.
    """

    rows: pa.ChunkedArray
    nulls: pa.ChunkedArray
    least: pa.ChunkedArray
    most: pa.ChunkedArray

    @classmethod
    def concat(cls, parts: Sequence[Statistics]) -> Statistics:
        """Return the statistics of several groups of files. Nothing is copied."""
        columns = zip(*(part._columns() for part in parts), strict=True)  # noqa: SLF001  of its own class
        return cls(*(pa.chunked_array([c for one in each for c in one.chunks], each[0].type) for each in columns))

    def take(self, numbers: pa.ChunkedArray) -> Statistics:
        """Return the statistics of the files with these numbers, which are in order."""
        if len(numbers) == len(self.rows):
            return self
        return Statistics(*(each.take(numbers) for each in self._columns()))

    def _columns(self) -> tuple[pa.ChunkedArray, ...]:
        return self.rows, self.nulls, self.least, self.most

    def only_nulls(self) -> pa.ChunkedArray:
        """Return for each file whether every row is known to be null in the column."""
        return pc.fill_null(pc.equal(self.nulls, self.rows), scalar_of(value=False, type_=pa.bool_()))


def value_type(kind: str) -> pa.DataType:
    """Return how values of a column's type are spelled in statistics; the null type if they are not read."""
    if kind in _INTEGERS:
        return pa.int64()
    return pa.string() if kind in _TEXTS else pa.null()


def parse_statistics(texts: pa.Array | pa.ChunkedArray, name: str | None, value: pa.DataType) -> Statistics:
    """Return the statistics of a column, or without a name only the number of rows, from their texts."""
    lines = [text or "{}" for text in texts.to_pylist()]
    if not lines:
        return _of_lists([], [], [], [], value)
    try:
        return _parse_at_once(lines, name, value)
    except pa.ArrowInvalid:
        # Some value is not what its type promises, or not JSON: that file has no such statistics, the others have.
        return _parse_one_by_one(lines, name, value)


def _parse_at_once(lines: list[str], name: str | None, value: pa.DataType) -> Statistics:
    fields = [pa.field("numRecords", pa.int64())]
    if name is not None:
        fields.append(pa.field("nullCount", pa.struct([(name, pa.int64())])))
        if value != pa.null():
            fields += [pa.field(edge, pa.struct([(name, value)])) for edge in ("minValues", "maxValues")]
    table = parse_lines(lines, pa.schema(fields))

    def column(field: str, type_: pa.DataType) -> pa.ChunkedArray:
        if field not in table.column_names:
            return pa.chunked_array([pa.nulls(len(lines), type_)])
        found = table.column(field)
        return pc.struct_field(found, [0]) if pa.types.is_struct(found.type) else found

    return Statistics(
        column("numRecords", pa.int64()),
        column("nullCount", pa.int64()),
        column("minValues", value),
        column("maxValues", value),
    )


def _parse_one_by_one(lines: list[str], name: str | None, value: pa.DataType) -> Statistics:
    found = [_parse(line) for line in lines]
    wanted = int if value == pa.int64() else str

    def values(field: str, kind: type) -> list[Any]:
        inner = [each.get(field) for each in found]
        return [_checked(each.get(name), kind) if isinstance(each, dict) else None for each in inner]

    rows = [_checked(each.get("numRecords"), int) for each in found]
    return _of_lists(rows, values("nullCount", int), values("minValues", wanted), values("maxValues", wanted), value)


def _parse(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _checked(value: Any, kind: type) -> Any:
    """Return a value of that type that Arrow can hold, else None."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value if value.isascii() or value.encode(errors="ignore").decode() == value else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _of_lists(rows: list[Any], nulls: list[Any], least: list[Any], most: list[Any], value: pa.DataType) -> Statistics:
    edges = (pa.nulls(len(rows)) if value == pa.null() else array_of(edge, value) for edge in (least, most))
    columns = (array_of(rows, pa.int64()), array_of(nulls, pa.int64()), *edges)
    return Statistics(*(pa.chunked_array([column]) for column in columns))
