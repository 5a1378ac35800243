"""Parse CSV files into Arrow tables. Columns are matched by the names in each file's header, never by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.charset import to_utf8
from oncelake.sources.arrivals.parsing.csv_dialect import Dialect, dialect_of
from oncelake.sources.arrivals.parsing.csv_fast import Cells, Piece, read_clean
from oncelake.sources.arrivals.parsing.csv_records import Record, Scanner
from oncelake.sources.arrivals.parsing.decompress import BadFile
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, why_too_long
from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.records import DRIFT, FileFormat, PackedFile, Parsed
from oncelake.sources.arrivals.parsing.rescue import join_entries, json_strings, rescue_entries
from oncelake.sources.arrivals.parsing.rows import RowBuilder, bad_file, concat, rows_schema
from oncelake.sources.arrivals.parsing.text_columns import convert_texts, types_of_texts

# How much is read together: of many files, and of one file, where it is how much is read strictly because of one bad line.
PACK, SEGMENT = 8 << 20, 1 << 20
# Below this it is quicker to read files strictly than to find out which of them is not clean.
_SMALL = 32 << 10
_TRUNCATED = "; the file looks truncated"


class _Header(NamedTuple):
    """The names of a file's columns, and for each the column of the schema, or the reason why there is none."""

    names: tuple[str, ...]
    columns: tuple[str | None, ...]
    reasons: tuple[str, ...]


class _File(NamedTuple):
    """A file whose header is read: its index, its bytes and how many were left out before them, where its records start."""

    number: int
    content: bytes
    skipped: int
    header: _Header
    position: int
    line: int


@dataclass
class _Records:
    """The records of some files that have one header: clean ones as columns, the others one by one."""

    clean: list[Cells] = field(default_factory=list)
    rows: list[list[str | None]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bad: list[tuple[int, int, int, bytes, str]] = field(default_factory=list)

    def cells(self) -> list[Cells]:
        """Return all records as columns."""
        if not self.rows:
            return self.clean
        columns = [pa.array(column, pa.string()) for column in zip(*self.rows, strict=True)]
        return [*self.clean, Cells(columns, np.array(self.files, np.int64), np.array(self.lines, np.int64))]


def parse_csv(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the rows of CSV files, and what could not be read. The options are Spark's, by their names."""
    try:
        dialect = dialect_of(fmt.options)
    except ValueError as error:
        return concat([RowBuilder(schema).build(), *(bad_file(schema, each.index, str(error)) for each in files)])
    return _Reader(dialect, schema).parse(files)


class _Reader:
    """Reads the files of one pack."""

    def __init__(self, dialect: Dialect, schema: pa.Schema) -> None:
        self._dialect, self._schema = dialect, schema
        self._names = FieldNames(schema.names)
        self._headers: dict[tuple[str, ...], _Header] = {}

    def parse(self, files: Sequence[PackedFile]) -> Parsed:
        """Return what the files came to."""
        builder = RowBuilder(self._schema)
        groups: dict[_Header, list[_File]] = {}
        for each in files:
            try:
                opened = self._open(each)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about this file
                builder.add_bad_file(each.index, _reason(error), each.content)
                continue
            builder.count(each.index)
            if opened is not None and opened.position < len(opened.content):
                groups.setdefault(opened.header, []).append(opened)
        packs = (pack for group in groups.values() for pack in _packs(group))
        return concat([builder.build(), *(self._parse_pack(pack) for pack in packs)])

    def _open(self, file: PackedFile) -> _File | None:
        """Read the header of a file. A file without any record has none."""
        content, skipped = to_utf8(file.content, self._dialect.encoding)
        scanner = Scanner(content, self._dialect)
        first = next(scanner.records(len(content), None), None)
        if first is None:
            return None
        if not self._dialect.header:
            names = self._schema.names or [f"_c{number}" for number in range(len(first.fields))]
            return _File(file.index, content, skipped, self._header(tuple(names)), 0, 1)
        if first.reason is not None:
            raise BadFile(f"header: {first.reason or why_too_long(first.end - first.start)}")
        names = [name if name is not None else f"_c{number}" for number, name in enumerate(first.fields)]
        return _File(file.index, content, skipped, self._header(tuple(names)), scanner.position, scanner.line)

    def _header(self, names: tuple[str, ...]) -> _Header:
        if names not in self._headers:
            self._headers[names] = self._match(names)
        return self._headers[names]

    def _match(self, names: tuple[str, ...]) -> _Header:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise BadFile(f"the header has the column {twice[0]} more than once")
        matched, unmatched = self._names.match(names)
        if not matched and len(self._schema):
            raise BadFile(f"no header: the first line names no column of the schema: {', '.join(names)[:200]}")
        columns = {name: column for column, name in matched.items()}
        return _Header(names, tuple(map(columns.get, names)), tuple(unmatched.get(name, "") for name in names))

    def _parse_pack(self, files: list[_File]) -> Parsed:
        """Return what files with the same header came to. What goes wrong with one of them does not touch the others."""
        try:
            records = _Records()
            self._read(files, records)
            return self._convert(files, records)
        except Exception as error:  # noqa: BLE001 - no input may raise
            if len(files) > 1:
                return concat([self._parse_pack([each]) for each in files])
            return bad_file(self._schema, files[0].number, _reason(error), files[0].content)

    def _read(self, files: list[_File], records: _Records) -> None:
        """Read files together as far as they are clean: half of them at a time, down to the files that are not."""
        pieces = [Piece(each.number, each.content[each.position :], each.line) for each in files]
        small = sum(len(piece.content) for piece in pieces) < _SMALL
        if len(files) > 1 or small:
            cells = read_clean(pieces, self._dialect, len(files[0].header.names))
            if cells is not None:
                records.clean.append(cells)
                return
        if len(files) > 1 and not small:
            self._read(files[: len(files) // 2], records)
            self._read(files[len(files) // 2 :], records)
            return
        for each in files:
            self._read_file(each, records, strictly=small)

    def _read_file(self, file: _File, records: _Records, *, strictly: bool) -> None:
        """Read a file segment by segment. A segment that is not clean is read strictly."""
        content, width = file.content, len(file.header.names)
        scanner = Scanner(content, self._dialect, file.position, file.line)
        while scanner.position < len(content):
            start = scanner.position
            end = _end_of_segment(content, start, self._dialect.quote)
            piece = Piece(file.number, content[start:end], scanner.line)
            is_strict = strictly or len(piece.content) > MAX_RECORD_BYTES
            cells = None if is_strict else read_clean([piece], self._dialect, width)
            if cells is None:
                for record in scanner.records(end, width):
                    _add(record, file, records)
            else:
                records.clean.append(cells)
                scanner.position, scanner.line = end, scanner.line + content.count(b"\n", start, end)

    def _convert(self, files: Sequence[_File], records: _Records) -> Parsed:
        builder = RowBuilder(self._schema)
        for bad in records.bad:
            builder.add_bad(*bad)
        header, drift = files[0].header, Counter[tuple[str, str]]()
        tables = [rows_schema(self._schema).empty_table()]
        for cells in records.cells():
            tables.append(self._to_rows(cells, header, drift))
            for index, rows in zip(*np.unique(cells.files, return_counts=True), strict=True):
                builder.count(int(index), int(rows))
        return replace(builder.build(), rows=pa.concat_tables(tables), drift=_drift_table(drift))

    def _to_rows(self, cells: Cells, header: _Header, drift: Counter[tuple[str, str]]) -> pa.Table:
        """Return the rows of records, and add the types of what is rescued to `drift`."""
        rows = len(cells.lines)
        values, entries = {}, []
        for name, column, reason, texts in zip(*header, cells.columns, strict=True):
            if column is None:
                if texts.null_count < rows:
                    entries.append(rescue_entries(name, json_strings(texts), reason))
                    _count_types(name, texts, None, self._dialect.nulls, drift)
                continue
            type_ = self._schema.field(column).type
            values[column], reasons = convert_texts(texts, type_, self._dialect.nulls)
            if reasons is not None:
                unread = pc.if_else(pc.is_valid(reasons), texts, pa.scalar(None, pa.string()))
                entries.append(rescue_entries(column, json_strings(unread), reasons))
                _count_types(column, unread, type_, self._dialect.nulls, drift)
        arrays = [values[each.name] if each.name in values else pa.nulls(rows, each.type) for each in self._schema]
        return pa.table(
            [*arrays, cells.files, cells.lines, join_entries(entries, rows)], schema=rows_schema(self._schema)
        )


def _packs(files: Sequence[_File]) -> Iterator[list[_File]]:
    """Yield files in packs that are read together."""
    pack: list[_File] = []
    size = 0
    for each in files:
        if pack and size + len(each.content) > PACK:
            yield pack
            pack, size = [], 0
        pack.append(each)
        size += len(each.content)
    yield pack


def _end_of_segment(content: bytes, start: int, quote: bytes) -> int:
    """Return the end of a line about a segment further on, outside of quotes if such an end is near."""
    end = start + SEGMENT
    if end >= len(content):
        return len(content)
    is_open = bool(quote) and content.count(quote, start, end) % 2 == 1
    for _ in range(1000):
        following = content.find(b"\n", end) + 1 or len(content)
        is_open ^= bool(quote) and content.count(quote, end, following) % 2 == 1
        end = following
        if not is_open or end == len(content):
            break
    return end


def _add(record: Record, file: _File, records: _Records) -> None:
    if record.reason is None:
        records.rows.append(record.fields)
        records.files.append(file.number)
        records.lines.append(record.line)
        return
    cut = record.end == len(file.content) and record.reason.startswith(("too few", "unbalanced"))
    offset, raw = file.skipped + record.start, file.content[record.start : record.end]
    records.bad.append((file.number, record.line, offset, raw, record.reason + (_TRUNCATED if cut else "")))


def _count_types(
    column: str, texts: pa.Array, current: pa.DataType | None, nulls: Sequence[str], drift: Counter[tuple[str, str]]
) -> None:
    """Count the types that would hold the texts. What is rubbish in a known column is no reason to make it a string."""
    texts = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array([*nulls, None], pa.string()))))
    for type_, rows in types_of_texts(texts, current).items():
        if current is None or type_ not in ("string", str(current)):
            drift[column, type_] += rows


def _drift_table(drift: Counter[tuple[str, str]]) -> pa.Table:
    rows = [(column, type_, count) for (column, type_), count in drift.items()]
    return pa.table([pa.array([row[at] for row in rows], each.type) for at, each in enumerate(DRIFT)], schema=DRIFT)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, BadFile) else f"cannot be parsed: {type(error).__name__}: {error}"
