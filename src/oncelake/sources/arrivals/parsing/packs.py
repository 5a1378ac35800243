"""Read and parse packs of small files on an executor: manifest entries go in, rows and what could not be read come out."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.charset import has_mark
from oncelake.sources.arrivals.parsing.csv_dialect import dialect_of
from oncelake.sources.arrivals.parsing.csv_fast import ends_with_record
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, why_too_long
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import (
    FILE,
    LINE,
    MAX_READ_BYTES,
    RESCUED,
    FileFormat,
    PackedFile,
    Parsed,
)
from oncelake.sources.arrivals.parsing.rows import bad_file
from oncelake.storage.options import StoreOptions, open_input
from oncelake.storage.paths import is_local

# What an executor parses at a time.
PACK_BYTES, PACK_FILES = 8 << 20, 4_000
# What it gives to Spark at a time.
BATCH_ROWS, BATCH_BYTES = 10_000, 8 << 20
# The kinds of the records that it gives: a row, a row or file that could not be read, the rows of a file, drift of the schema,
# the hash of a file that was read as a whole.
ROW, BAD_ROW, COUNT, DRIFT, HASH = range(5)
_HALVES = struct.Struct(">qq")
# A file as it was frozen. Of a part of one: its bytes, those before the first record of the file, or its row groups and rows.
_NUMBERS = ("size", "modified", "offset", "length", "first", "groups", "row", "rows")
ENTRIES = pa.schema(
    [("file", pa.int64()), ("path", pa.string()), ("header", pa.binary()), *((name, pa.int64()) for name in _NUMBERS)]
)
# The columns of the records. No column of a user has such a name.
KIND, INDEX, LINE_OF, NUMBER, RAW, REASON, RESCUED_AS, DATA = (
    f"__once_{name}" for name in ("kind", "file", "line", "number", "raw", "reason", "rescued", "data")
)


@dataclass(frozen=True)
class PackReader:
    """How the files of a batch are read: their format, the pinned schema, and how their store is reached."""

    format: FileFormat
    schema: pa.Schema
    store: StoreOptions | None = None

    @property
    def records(self) -> pa.Schema:
        """The columns of the records."""
        fields = [
            (KIND, pa.int8()),
            (INDEX, pa.int64()),
            (LINE_OF, pa.int64()),
            (NUMBER, pa.int64()),
            (RAW, pa.binary()),
            (REASON, pa.string()),
            (RESCUED_AS, pa.string()),
        ]
        # Spark knows no struct without fields.
        data = [(DATA, pa.struct(list(self.schema)))] if len(self.schema) else []
        return pa.schema([*fields, *data])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the files in batches of manifest entries."""
        for batch in batches:
            for pack in _packs(batch.to_pylist()):
                yield from self._records(pack)

    def _records(self, pack: Sequence[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        for entry in (entry for entry in pack if entry["groups"] is not None):
            parsed = read_part(entry, self.format, self.schema, self.store)
            yield from self._rows(parsed, {})
            yield from self._others(parsed, {}, [])
        read = [_read(entry, self.format, self.store) for entry in pack if entry["groups"] is None]
        files = [PackedFile(each.file, each.path, each.content) for each in read if each.content is not None]
        unreadable = [each for each in read if each.content is None]
        parsed = parse(files, self.format, self.schema)
        starts = {each.file: each.start for each in read if each.start}
        yield from self._rows(parsed, starts)
        yield from self._others(parsed, starts, unreadable)
        yield from self._hashes([each for each in read if each.is_whole and each.content])

    def _hashes(self, read: list[_Read]) -> Iterator[pa.RecordBatch]:
        """Yield the first 16 bytes of the SHA-256 of files, as two integers."""
        if not read:
            return
        files = pa.array([each.file for each in read], pa.int64())
        halves = [_HALVES.unpack_from(hashlib.sha256(each.content or b"").digest()) for each in read]
        high, low = (pa.array(half, pa.int64()) for half in zip(*halves, strict=True))
        yield from self._batches(HASH, {INDEX: files, LINE_OF: high, NUMBER: low}, len(read))

    def _rows(self, parsed: Parsed, starts: dict[int, int]) -> Iterator[pa.RecordBatch]:
        rows = parsed.rows.combine_chunks()
        if rows.num_rows == 0:
            return
        lines = _without_lines(rows[FILE], rows[LINE], starts)
        columns: dict[str, Any] = {INDEX: rows[FILE], LINE_OF: lines, RESCUED_AS: rows[RESCUED]}
        if len(self.schema):
            columns[DATA] = _struct(rows.select(self.schema.names), self.schema)
        yield from self._batches(ROW, columns, rows.num_rows)

    def _others(self, parsed: Parsed, starts: dict[int, int], unreadable: list[_Read]) -> Iterator[pa.RecordBatch]:
        bad, counts, drift = parsed.bad.combine_chunks(), parsed.counts.combine_chunks(), parsed.drift
        if bad.num_rows:
            lines, offsets = _without_lines(bad[FILE], bad[LINE], starts), _offsets(bad, starts)
            columns = {INDEX: bad[FILE], LINE_OF: lines, NUMBER: offsets, RAW: bad["raw"], REASON: bad["reason"]}
            yield from self._batches(BAD_ROW, columns, bad.num_rows)
        if unreadable:
            files = pa.array([each.file for each in unreadable], pa.int64())
            problems = pa.array([each.problem for each in unreadable], pa.string())
            yield from self._batches(BAD_ROW, {INDEX: files, REASON: problems}, len(unreadable))
            yield from self._batches(COUNT, {INDEX: files, NUMBER: pa.array([1] * len(unreadable))}, len(unreadable))
        if counts.num_rows:
            yield from self._batches(COUNT, {INDEX: counts[FILE], NUMBER: counts["read"]}, counts.num_rows)
        if drift.num_rows:
            columns = {REASON: drift["column"], RAW: drift["type"].cast(pa.binary()), NUMBER: drift["rows"]}
            yield from self._batches(DRIFT, columns, drift.num_rows)

    def _batches(self, kind: int, columns: dict[str, Any], count: int) -> Iterator[pa.RecordBatch]:
        columns[KIND] = pa.repeat(pa.scalar(kind, pa.int8()), count)
        arrays = [_column(columns.get(each.name), each.type, count) for each in self.records]
        yield from bounded_batches(pa.table(arrays, schema=self.records))


def bounded_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in batches of a bounded number of rows and bytes: Spark holds a batch as a whole."""
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield from _halved(batch)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BATCH_BYTES or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halved(batch.slice(0, middle))
    yield from _halved(batch.slice(middle))


class _Read(NamedTuple):
    """A file, or a part of one: where the part starts, and its content; or why it cannot be read."""

    file: int
    path: str
    content: bytes | None
    start: int = 0
    problem: str = ""
    is_whole: bool = False


def _packs(entries: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    pack: list[dict[str, Any]] = []
    size = 0
    for entry in entries:
        if entry["length"] is not None:
            yield [entry]  # two parts of a file begin at different places of it
            continue
        length = entry["size"]
        if pack and (size + length > PACK_BYTES or len(pack) == PACK_FILES):
            yield pack
            pack, size = [], 0
        pack.append(entry)
        size += length
    if pack:
        yield pack


def read_part(entry: dict[str, Any], fmt: FileFormat, schema: pa.Schema, store: StoreOptions | None) -> Parsed:
    """Return the rows of a part of a file: of its row groups, or of the lines that begin in it."""
    if entry["groups"] is None:
        return _parse_lines(entry, fmt, schema, store)
    from oncelake.sources.arrivals.parsing.columnar import RowGroups, parse_row_groups

    part = RowGroups(*(entry[name] for name in ("file", "first", "groups", "row", "rows")))
    try:
        with _open_part(entry["path"], store) as source:
            return parse_row_groups(source, part, fmt, schema)
    except OSError as error:
        return bad_file(schema, part.file, _problem(error))


def _parse_lines(entry: dict[str, Any], fmt: FileFormat, schema: pa.Schema, store: StoreOptions | None) -> Parsed:
    read = _read(entry, fmt, store)
    if read.content is None:
        return bad_file(schema, read.file, read.problem)
    parsed = parse([PackedFile(read.file, read.path, read.content)], fmt, schema)
    lines = _without_lines(parsed.rows[FILE], parsed.rows[LINE], {read.file: read.start} if read.start else {})
    return replace(parsed, rows=parsed.rows.set_column(parsed.rows.schema.get_field_index(LINE), LINE, lines))


def _open_part(path: str, store: StoreOptions | None) -> Any:
    return pa.OSFile(path.removeprefix("file://")) if is_local(path) else open_input(path, store)


def _read(entry: dict[str, Any], fmt: FileFormat, store: StoreOptions | None) -> _Read:
    file, path = entry["file"], entry["path"]
    try:
        if entry["offset"] is None:
            if problem := _too_large(entry["size"], fmt):
                return _Read(file, path, None, problem=problem)
            return _Read(file, path, _read_whole(path, store, entry["size"]), is_whole=True)
        with open_input(path, store) as stream:
            content, start = _read_lines(stream, entry["offset"], entry["length"])
    except OSError as error:
        return _Read(file, path, None, problem=_problem(error))
    return _part(entry, content, start, fmt)


def _part(entry: dict[str, Any], content: bytes, start: int, fmt: FileFormat) -> _Read:
    """Return a part of a file of lines, as a file of its own: with the header, if it has one."""
    file, path, header = entry["file"], entry["path"], entry["header"] or b""
    if fmt.kind == "csv" and not ends_with_record(content, dialect_of(fmt.options)):
        # The driver asks for the whole file instead.
        return _Read(file, path, None, problem="a quoted text may go beyond this part of the file")
    if start and not header and has_mark(content):
        return _Read(file, path, None, problem="this part of the file begins as files of another encoding do")
    if not start or not header:
        return _Read(file, path, content, start)
    return _Read(file, path, header + content if content else b"", start - len(header))


def _problem(error: OSError) -> str:
    return f"the file cannot be read: {error.strerror or error}"


def _too_large(size: int, fmt: FileFormat) -> str | None:
    """Return why a file cannot be read as a whole, by its size: it would be in memory several times."""
    if fmt.kind == "binary" and size > MAX_RECORD_BYTES:
        return why_too_long(size)
    limit = max(fmt.max_expanded_bytes, MAX_READ_BYTES)
    return f"{size:,} bytes, and one task reads at most {limit:,} bytes (max_expanded=)" if size > limit else None


def _read_whole(path: str, store: StoreOptions | None, size: int) -> bytes:
    """Return the content of a file; a local one is read without a buffer, which costs as much as a small file itself."""
    if not is_local(path):
        with open_input(path, store) as stream:
            content: bytes = stream.read()
            return content
    handle = os.open(path.removeprefix("file://"), os.O_RDONLY)
    try:
        blocks = [os.read(handle, size + 1)]
        while block := os.read(handle, 1 << 20):
            blocks.append(block)
    finally:
        os.close(handle)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _read_lines(stream: Any, offset: int, length: int) -> tuple[bytes, int]:
    """Return the lines that begin in a part of a file, and where the first of them begins."""
    start, end = offset, offset + length
    if offset:
        stream.seek(offset - 1)
        start = offset - 1 + len(_until_newline(stream, length + 1))
    if start >= end:
        return b"", start
    stream.seek(start)
    content = stream.read(end - start)
    if not content.endswith(b"\n"):
        content += _until_newline(stream, MAX_READ_BYTES)
        if len(content) > MAX_READ_BYTES:
            raise OSError(f"a line of more than {MAX_READ_BYTES:,} bytes")
    return content, start


def _until_newline(stream: Any, most: int) -> bytes:
    """Return the bytes up to the end of a line, hardly more than `most`."""
    found = bytearray()
    while len(found) < most and (block := stream.read(64 << 10)):
        position = block.find(b"\n")
        if position >= 0:
            return bytes(found + block[: position + 1])
        found += block
    return bytes(found)


def _without_lines(files: Any, lines: Any, starts: dict[int, int]) -> Any:
    """Return the lines, without those of later parts of a file: how many lines came before is not known there."""
    if not starts:
        return lines
    later = pc.is_in(files, value_set=pa.array(list(starts), pa.int64()))
    return pc.if_else(later, pa.scalar(None, pa.int64()), lines)


def _offsets(bad: pa.Table, starts: dict[int, int]) -> Any:
    """Return where bad rows begin in their files, also those of later parts."""
    found = zip(bad[FILE].to_pylist(), bad["offset"].to_pylist(), strict=True)
    return pa.array([None if offset is None else offset + starts.get(file, 0) for file, offset in found], pa.int64())


def _struct(rows: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
    """Return the columns as one, in chunks: texts of more than 2 GB do not fit into one array."""
    batches = rows.to_batches()
    return pa.chunked_array(
        [pa.StructArray.from_arrays(batch.columns, fields=list(schema)) for batch in batches],
        pa.struct(list(schema)),
    )


def _column(array: Any, kind: pa.DataType, count: int) -> Any:
    if array is None:
        return pa.nulls(count, kind)
    return array if array.type == kind else array.cast(kind)
