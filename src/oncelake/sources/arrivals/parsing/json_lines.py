"""JSON lines: by Arrow where that is certain to give the same rows as the strict parser, and by the strict parser elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from oncelake.sources.arrivals.parsing.charset import to_utf8
from oncelake.sources.arrivals.parsing.decompress import BadFile
from oncelake.sources.arrivals.parsing.json_fast import ArrowReader
from oncelake.sources.arrivals.parsing.json_records import RecordRows
from oncelake.sources.arrivals.parsing.json_text import BadJson, load
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, runs_of_lines
from oncelake.sources.arrivals.parsing.options import option
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile, Parsed
from oncelake.sources.arrivals.parsing.rows import RowBuilder, concat

BLANK = b" \t\r\n"
# Arrow reads at most so many bytes at once.
_BLOCK = 1 << 28
# Few bytes are quicker parsed strictly than tried with Arrow.
_LEAF = 1 << 14
# Where Arrow mostly fails on ranges up to this size, it is no longer tried on them.
_SMALL = 1 << 16


class Piece(NamedTuple):
    """Some whole lines of a file: the line and the offset at which they start."""

    file: int
    line: int
    offset: int
    content: bytes


def parse_json_lines(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the rows of files that have one JSON object on each line. Blank lines are skipped."""
    builder = RowBuilder(schema)
    pieces: list[Piece] = []
    encoding = option(fmt, "encoding")
    for file in files:
        builder.count(file.index)
        try:
            content, offset = to_utf8(file.content, encoding)
        except BadFile as error:
            builder.add_bad_file(file.index, str(error), file.content)
        else:
            pieces.extend(_pieces(file.index, offset, content, builder))
    filled = [piece for piece in pieces if piece.content.strip(BLANK)]
    return concat([builder.build(), *_Bisection(schema).parse(filled)])


def _pieces(file: int, offset: int, content: bytes, builder: RowBuilder) -> Iterator[Piece]:
    """Yield the lines of a file; those that are too long are added as bad rows instead."""
    if len(content) <= MAX_RECORD_BYTES:
        yield Piece(file, 1, offset, content)
        return
    line = 1
    for start, end, is_long in runs_of_lines(content):
        run = content[start:end]
        if is_long:
            builder.add_bad(file, line, offset + start, run.rstrip(b"\r\n"), "")
        else:
            yield Piece(file, line, offset + start, run)
        line += _line_ends(run)


def parse_strictly(pieces: Sequence[Piece], schema: pa.Schema) -> Parsed:
    """Return the rows of pieces by the strict parser."""
    rows = RecordRows(schema)
    for piece in pieces:
        offset = piece.offset
        for number, line in enumerate(piece.content.splitlines(keepends=True), piece.line):
            if line.strip(BLANK):
                _add_line(rows, piece.file, number, offset, line)
            offset += len(line)
    return rows.builder.build()


class _Bisection:
    """Parses by Arrow, and cuts in half what Arrow fails on, down to the lines that have to be parsed strictly."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._reader = ArrowReader.of(schema)
        self._tried = self._read = self._skipped = 0

    def parse(self, pieces: Sequence[Piece]) -> Iterator[Parsed]:
        if not pieces:
            return
        size = sum(len(piece.content) for piece in pieces)
        if self._reader is None or not self._is_worth_trying(size):
            yield parse_strictly(pieces, self._schema)
            return
        parsed = self._reader.read(pieces) if size <= _BLOCK else None
        self._read += parsed is not None and size <= _SMALL
        halves = [] if parsed is not None or size <= _LEAF else _halve(pieces)
        if halves:
            for half in halves:
                yield from self.parse(half)
        else:
            yield parsed or parse_strictly(pieces, self._schema)

    def _is_worth_trying(self, size: int) -> bool:
        """Say whether Arrow reads enough of such ranges. Once it does not, it is tried again on some of them."""
        if size > _SMALL:
            return True
        if self._tried >= 32 and self._read * 4 < self._tried and self._skipped % 16 < 15:
            self._skipped += 1
            return False
        self._skipped = 0
        self._tried += 1
        return True


def _halve(pieces: Sequence[Piece]) -> list[Sequence[Piece]]:
    """Return the first and the second half of some pieces; of a single one the lines; nothing if there is only one line."""
    if len(pieces) > 1:
        middle = len(pieces) // 2
        return [pieces[:middle], pieces[middle:]]
    whole = pieces[0]
    middle = len(whole.content) // 2
    cut = whole.content.find(b"\n", middle, -1) + 1 or whole.content.rfind(b"\n", 0, middle) + 1
    if not cut:
        return []
    first, second = whole.content[:cut], whole.content[cut:]
    rest = Piece(whole.file, whole.line + _line_ends(first), whole.offset + cut, second)
    return [[whole._replace(content=first)], [rest]]


def _add_line(rows: RecordRows, file: int, number: int, offset: int, line: bytes) -> None:
    try:
        record = load(_decode(line.strip(BLANK)))
        if not isinstance(record, dict):
            raise BadJson("not a JSON object")
    except BadJson as error:
        # Only the last line of a file can have no end.
        is_cut = not line.endswith((b"\n", b"\r"))
        reason = f"{error}; the last line has no line end: looks truncated" if is_cut else str(error)
        rows.builder.add_bad(file, number, offset, line.rstrip(b"\r\n"), reason)
    else:
        rows.add(file, number, record)


def _decode(line: bytes) -> str:
    if b"\0" in line:
        raise BadJson("a NUL byte")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadJson(f"not valid UTF-8 at byte {error.start + 1}: {error.reason}") from None


def _line_ends(content: bytes) -> int:
    # As bytes.splitlines, and Spark, take them: LF, CR LF, CR.
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")
