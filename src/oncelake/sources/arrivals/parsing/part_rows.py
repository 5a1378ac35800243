"""Read parts of large files on an executor and pass on their rows, which are kept nowhere.

How many rows a part has is known before: from the footer of a Parquet file, or because the lines were counted. So is that every
value fits the schema. A task that finds anything else fails, and with it the write that the rows are for. Then nothing is
committed, and the batch is read again by way of `packs`, which can say what is wrong with a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.packs import INDEX, LINE_OF, bounded_batches, read_part
from oncelake.sources.arrivals.parsing.records import FILE, LINE, RESCUED, FileFormat, Parsed

# What the error of a task contains, by which the driver knows it.
NOT_AS_EXPECTED = "oncelake: a file is not as it was found"
# A part of a file of lines: where it begins, and its rows, null if any of them does not fit the schema.
COUNTED_PARTS = pa.schema({"file": pa.int64(), "offset": pa.int64(), "rows": pa.int64()})


class NotAsExpected(Exception):
    """A file has changed, is damaged, or has a value that must be rescued."""


@dataclass(frozen=True)
class PartCounter:
    """Counts the rows of parts of files of lines."""

    format: FileFormat
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the counts of the entries in some batches."""
        for batch in batches:
            for entry in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([self._count(entry)], schema=COUNTED_PARTS)

    def _count(self, entry: dict[str, Any]) -> dict[str, Any]:
        parsed = read_part(entry, self.format, self.schema, None)
        rows = parsed.rows.num_rows if _problem(parsed) is None else None
        return {"file": entry["file"], "offset": entry["offset"], "rows": rows}


@dataclass(frozen=True)
class PartReader:
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
        found = 0
        for group in _row_groups(entry):
            rows = self._read({**entry, **group, "row": (entry["row"] or 0) + found, "rows": None})
            found += rows.num_rows
            names = [*((FILE, LINE) if self.numbered else ()), *self.schema.names]
            chosen = rows.select(names).rename_columns(self.columns.names)
            yield from bounded_batches(chosen.combine_chunks())
        if found != entry["rows"]:
            raise _not_as_expected(entry, f"{found} rows instead of {entry['rows']}")
        _verify(entry)

    def _read(self, entry: dict[str, Any]) -> pa.Table:
        parsed = read_part(entry, self.format, self.schema, None)
        if problem := _problem(parsed):
            raise _not_as_expected(entry, problem)
        return parsed.rows


def _row_groups(entry: dict[str, Any]) -> Iterator[dict[str, int]]:
    """Yield the row groups of an entry, of which one at a time is in memory; lines are read together."""
    if entry["groups"] is None:
        yield {}
        return
    for number in range(entry["first"], entry["first"] + entry["groups"]):
        yield {"first": number, "groups": 1}


def _problem(parsed: Parsed) -> str | None:
    """Return why rows cannot be passed on as they are."""
    if parsed.bad.num_rows:
        return str(parsed.bad["reason"][0].as_py())
    if parsed.rows[RESCUED].null_count < parsed.rows.num_rows or parsed.drift.num_rows:
        return "a value that must be rescued"
    return None


def _verify(entry: dict[str, Any]) -> None:
    """Fail if the file is not as it was frozen, now that it was read."""
    found = os.stat(entry["path"].removeprefix("file://"))
    if (found.st_size, found.st_mtime_ns) != (entry["size"], entry["modified"]):
        raise _not_as_expected(entry, "it has changed")


def _not_as_expected(entry: dict[str, Any], problem: str) -> NotAsExpected:
    return NotAsExpected(f"{NOT_AS_EXPECTED}: {entry['path']}: {problem}")
