"""Collect rows, rescued values, bad rows and drift one by one, and build the tables of a `Parsed` from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.json_text import dump, quote
from oncelake.sources.arrivals.parsing.long_records import cut_raw
from oncelake.sources.arrivals.parsing.records import BAD, COUNTS, DRIFT, FILE, LINE, RESCUED, Parsed
from oncelake.sources.arrivals.parsing.value_types import type_of

# The raw value that is in no column, and the reason.
Rescued = tuple[Any, str]
# How much of a file that is bad as a whole is shown.
HEAD = 200


def rows_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `Parsed.rows` for files whose columns are those of `schema`."""
    columns = [pa.field(field.name, field.type) for field in schema]
    return pa.schema([*columns, (FILE, pa.int64()), (LINE, pa.int64()), (RESCUED, pa.string())])


class RowBuilder:
    """Collects what becomes of the rows of some files.

    `type_of` says what type would hold a rescued value: by default for values of JSON, and `values.type_of_text` for text.
    """

    def __init__(self, schema: pa.Schema, type_of: Callable[[Any, pa.DataType | None], pa.DataType] = type_of) -> None:
        self._schema = rows_schema(schema)
        self._names = schema.names
        self._types = {field.name: field.type for field in schema}
        self._type_of = type_of
        self._columns: list[list[Any]] = [[] for _ in self._schema]
        self._bad: list[tuple[int, int | None, int | None, bytes | None, str]] = []
        self._counts: dict[int, int] = {}
        self._drift: Counter[tuple[int, str, str]] = Counter()
        self._bad_files: set[int] = set()

    def add(
        self, file: int, line: int, values: Mapping[str, Any], rescued: Mapping[str, Rescued] | None = None
    ) -> None:
        """Add a row: the converted values by column (absent ones are null), and the raw values that are in none, with reasons."""
        for name, column in zip(self._names, self._columns, strict=False):
            column.append(values.get(name))
        self._columns[-3].append(file)
        self._columns[-2].append(line)
        self._columns[-1].append(self._rescue(file, rescued) if rescued else None)
        self.count(file, 1)

    def add_bad(self, file: int, line: int, offset: int | None, raw: bytes | None, reason: str) -> None:
        """Add a row that could not be read, with its bytes, or the first of them if it is too long."""
        self._bad.append((file, line, offset, *cut_raw(raw, reason)))
        self.count(file, 1)

    def add_bad_file(self, file: int, reason: str, raw: bytes | None = None) -> None:
        """Give up a file: none of its rows is kept, whether added before or after."""
        self._bad_files.add(file)
        self._bad.append((file, None, None, raw[:HEAD] if raw else None, reason))
        self.count(file, 0)

    def count(self, file: int, rows: int = 0) -> None:
        """Add to the number of rows read of a file. With 0 a file without rows is counted as one that has none."""
        self._counts[file] = self._counts.get(file, 0) + rows

    def build(self) -> Parsed:
        """Return the tables of all that was added."""
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        rows = pa.table(arrays, schema=self._schema)
        bad, counts = self._bad, self._counts
        if self._bad_files:
            kept = [file not in self._bad_files for file in self._columns[-3]]
            rows = rows.filter(pa.array(kept, pa.bool_()))
            bad = [row for row in bad if row[1] is None or row[0] not in self._bad_files]
            counts = {file: 1 if file in self._bad_files else count for file, count in counts.items()}
        return Parsed(rows, _table(bad, BAD), _table(list(counts.items()), COUNTS), self._drift_table())

    def _rescue(self, file: int, rescued: Mapping[str, Rescued]) -> str:
        for name, (value, _) in rescued.items():
            known = name in self._types
            type_ = str(self._type_of(value, self._types.get(name)))
            # Text in a column of another type is taken for rubbish: it is no reason to make a string of the column.
            if type_ != "null" and not (known and type_ in ("string", str(self._types[name]))):
                self._drift[file, _valid(name), _valid(type_)] += 1
        return "{" + ", ".join(f"{quote(name)}: {_entry(*value)}" for name, value in rescued.items()) + "}"

    def _drift_table(self) -> pa.Table:
        rows: Counter[tuple[str, str]] = Counter()
        for (file, column, type_), count in self._drift.items():
            if file not in self._bad_files:
                rows[column, type_] += count
        return _table([(column, type_, count) for (column, type_), count in rows.items()], DRIFT)


def bad_file(schema: pa.Schema, file: int, reason: str, raw: bytes | None = None) -> Parsed:
    """Return the `Parsed` of one file that could not be read at all."""
    builder = RowBuilder(schema)
    builder.add_bad_file(file, reason, raw)
    return builder.build()


def concat(parts: Sequence[Parsed]) -> Parsed:
    """Return several parts as one. A file whose rows are in more than one part is counted once, with all of them."""
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_tables([part.rows for part in parts])
    bad = pa.concat_tables([part.bad for part in parts])
    counts = _sum(pa.concat_tables([part.counts for part in parts]), [FILE], "read", COUNTS)
    drift = _sum(pa.concat_tables([part.drift for part in parts]), ["column", "type"], "rows", DRIFT)
    return Parsed(rows, bad, counts, drift)


def _sum(table: pa.Table, keys: list[str], column: str, schema: pa.Schema) -> pa.Table:
    summed = table.group_by(keys, use_threads=False).aggregate([(column, "sum")])
    return summed.rename_columns([*keys, column]).select(schema.names).cast(schema)


def _entry(value: Any, reason: str) -> str:
    return f'{{"value": {dump(value)}, "reason": {quote(reason)}}}'


def _valid(name: str) -> str:
    """Return a name as UTF-8 can hold it."""
    return name.encode(errors="backslashreplace").decode()


def _table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    rows = list(rows)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
