"""Read the row groups of large Parquet files on an executor and pass on their rows, which are kept nowhere.

Their number is known from the footers before anything is read, and so is that every column has the type of the schema. A
task that finds anything else fails, and with it the write that the rows are for. Then nothing is committed, and the batch is
read again by way of `packs`, which can say what is wrong with a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.packs import BATCH_ROWS, INDEX, LINE_OF, read_part
from oncelake.sources.arrivals.parsing.records import FILE, LINE, RESCUED, FileFormat, Parsed

# What the error of a task contains, by which the driver knows it.
NOT_AS_EXPECTED = "oncelake: a file is not as its footer says"


class NotAsExpected(Exception):
    """A file has changed, is damaged, or has a value that must be rescued."""


@dataclass(frozen=True)
class RowGroupReader:
    """Yields the columns of the schema, and with `numbered` the index of the file and the number of the row in it."""

    format: FileFormat
    schema: pa.Schema
    numbered: bool

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows."""
        numbers = [(INDEX, pa.int64()), (LINE_OF, pa.int64())] if self.numbered else []
        return pa.schema([*numbers, *self.schema])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the entries in some batches."""
        for batch in batches:
            for entry in batch.to_pylist():
                yield from self._rows(entry)

    def _rows(self, entry: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        # One row group at a time: that is how much is in memory.
        row = entry["row"]
        for number in range(entry["first"], entry["first"] + entry["groups"]):
            rows = self._read({**entry, "first": number, "groups": 1, "row": row, "rows": None})
            row += rows.num_rows
            names = [*((FILE, LINE) if self.numbered else ()), *self.schema.names]
            chosen = rows.select(names).rename_columns(self.columns.names)
            yield from chosen.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        if row - entry["row"] != entry["rows"]:
            raise _not_as_expected(entry, f"{row - entry['row']} rows instead of {entry['rows']}")
        _verify(entry)

    def _read(self, entry: dict[str, Any]) -> pa.Table:
        parsed: Parsed = read_part(entry, self.format, self.schema, None)
        if parsed.bad.num_rows:
            raise _not_as_expected(entry, parsed.bad["reason"][0].as_py())
        if parsed.rows[RESCUED].null_count < parsed.rows.num_rows or parsed.drift.num_rows:
            raise _not_as_expected(entry, "a value that must be rescued")
        return parsed.rows


def _verify(entry: dict[str, Any]) -> None:
    """Fail if the file is not as it was frozen, now that it was read."""
    found = os.stat(entry["path"].removeprefix("file://"))
    if (found.st_size, found.st_mtime_ns) != (entry["size"], entry["modified"]):
        raise _not_as_expected(entry, "it has changed")


def _not_as_expected(entry: dict[str, Any], problem: str) -> NotAsExpected:
    return NotAsExpected(f"{NOT_AS_EXPECTED}: {entry['path']}: {problem}")
