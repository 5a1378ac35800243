"""Split the bytes of clean CSV into columns of text by Arrow's reader, where it certainly gives what the strict reader gives.

Arrow accepts text after a closing quote and does not say in which line a record starts. Therefore the positions of quotes and line
ends are looked at first. Whatever is not certain is left to the strict reader: bad rows, comments, lone carriage returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from oncelake.sources.arrivals.parsing.csv_dialect import Dialect

_NEWLINE, _RETURN = 10, 13
Positions = Any  # an array of numpy


class Piece(NamedTuple):
    """Some whole lines of a file: its index in the manifest, the bytes, and the number of the first line."""

    file: int
    content: bytes
    line: int


class Cells(NamedTuple):
    """Records as columns of text, and for each record the index of its file and its first line."""

    columns: list[pa.Array]
    files: Positions
    lines: Positions


def read_clean(pieces: Sequence[Piece], dialect: Dialect, width: int) -> Cells | None:
    """Return the records of some pieces, or None if the strict reader has to read any of them."""
    if not _is_simple(dialect) or not all(_is_clean(piece.content, dialect) for piece in pieces):
        return None
    content = b"".join(each.content if each.content.endswith(b"\n") else each.content + b"\n" for each in pieces)
    data = np.frombuffer(content, np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    ends = _ends_of_records(data, newlines, dialect)
    if ends is None:
        return None
    sizes = [len(each.content) + (not each.content.endswith(b"\n")) for each in pieces]
    piece_ends = np.cumsum(sizes)
    # A quote that is open at the end of a piece would close in the next one.
    if not len(ends) or (ends[np.searchsorted(ends, piece_ends - 1) % len(ends)] != piece_ends - 1).any():
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    starts = starts[~((ends == starts) | ((ends == starts + 1) & (data[starts] == _RETURN)))]
    columns = _read_texts(content, dialect, width, len(starts))
    if columns is None:
        return None
    return Cells(columns, *_places(pieces, piece_ends, newlines, starts))


def ends_with_record(content: bytes, dialect: Dialect) -> bool:
    """Say whether lines that begin with a record certainly end with one, as the strict reader would read them.

    A file is read in parts on the assumption that each part begins with a record. The first one does. If each ends with one,
    so does the next, and all of them are read as the file as a whole would be. In doubt the answer is no.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not dialect.quote or not dialect.multi_line or dialect.quote not in content:
        return True
    comment = dialect.comment and (content.startswith(dialect.comment) or b"\n" + dialect.comment in content)
    if not _is_simple(dialect) or comment or (dialect.escape and dialect.escape in content) or not _is_text(content):
        return False
    data = np.frombuffer(content if content.endswith(b"\n") else content + b"\n", np.uint8)
    return _in_order(data, np.flatnonzero(data == dialect.quote[0]), dialect)


def _is_text(content: bytes) -> bool:
    """Say whether bytes are UTF-8. The strict reader ends a record that is not at its first line, wherever its quotes close."""
    try:
        return content.isascii() or bool(content.decode())
    except UnicodeDecodeError:
        return False


def _is_simple(dialect: Dialect) -> bool:
    return len(dialect.sep) == 1


def _is_clean(content: bytes, dialect: Dialect) -> bool:
    """Say whether nothing but the quotes could be read otherwise by Arrow."""
    trimmed = dialect.trim_left or dialect.trim_right
    comment = dialect.comment
    return not (
        b"\0" in content
        or not content
        or content.startswith(b"\xef\xbb\xbf")  # which Arrow would skip
        or (b"\r" in content and content.count(b"\r") != content.count(b"\r\n"))
        or (dialect.escape and dialect.escape in content)
        or (comment and (content.startswith(comment) or b"\n" + comment in content))
        or (trimmed and dialect.quote and dialect.quote in content)
    )


def _ends_of_records(data: Positions, newlines: Positions, dialect: Dialect) -> Positions | None:
    """Return the positions of the newlines that are not inside quotes, or None if the quotes are not in order."""
    quotes = np.flatnonzero(data == dialect.quote[0]) if dialect.quote else np.empty(0, np.int64)
    if not len(quotes):
        return newlines
    if not _in_order(data, quotes, dialect):
        return None
    inside = np.searchsorted(quotes, newlines) & 1 == 1
    if not dialect.multi_line and inside.any():
        return None
    return newlines[~inside]


def _in_order(data: Positions, quotes: Positions, dialect: Dialect) -> bool:
    """Say whether quotes open where a field starts, and close where it ends. A doubled quote closes and opens at once."""
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    sep = dialect.sep[0]
    # The bytes end with a newline, so that there is one after the last quote.
    before = np.where(opening > 0, data[opening - 1], _NEWLINE)
    after = data[closing + 1]
    doubled = np.zeros(len(opening), bool)
    doubled[1:] = closing[:-1] + 1 == opening[1:]
    opens = doubled | (before == sep) | (before == _NEWLINE)
    closes = (after == sep) | (after == _NEWLINE) | (after == _RETURN)
    closes[:-1] |= doubled[1:]
    return bool(opens.all() and closes.all())


def _read_texts(content: bytes, dialect: Dialect, width: int, rows: int) -> list[pa.Array] | None:
    """Return the columns as text, without those that are null; or None if they are not so many, or not UTF-8."""
    if not rows:
        return [pa.array([], pa.string())] * width
    trimmed = dialect.trim_left or dialect.trim_right
    names = [str(number) for number in range(width)]
    try:
        table = csv.read_csv(
            pa.py_buffer(content),
            csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=dialect.sep.decode(),
                quote_char=dialect.quote.decode() or False,
                newlines_in_values=bool(dialect.quote) and dialect.multi_line,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[] if trimmed else list(dialect.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != rows:
        return None
    columns = [column.combine_chunks() for column in table.columns]
    return [_trim(column, dialect) for column in columns] if trimmed else columns


def _trim(texts: pa.Array, dialect: Dialect) -> pa.Array:
    if dialect.blanks and dialect.trim_left:
        texts = pc.utf8_ltrim(texts, characters=dialect.blanks)
    if dialect.blanks and dialect.trim_right:
        texts = pc.utf8_rtrim(texts, characters=dialect.blanks)
    return without(texts, dialect.nulls)


def without(texts: pa.Array, nulls: Sequence[str]) -> pa.Array:
    """Return texts with nulls instead of those that mean null."""
    return pc.if_else(pc.is_in(texts, value_set=pa.array(nulls, pa.string())), pa.scalar(None, pa.string()), texts)


def _places(
    pieces: Sequence[Piece], piece_ends: Positions, newlines: Positions, starts: Positions
) -> tuple[Positions, Positions]:
    """Return for each record the index of its file and its first line."""
    piece = np.searchsorted(piece_ends, starts, side="right")
    files = np.array([each.file for each in pieces], np.int64)
    first_lines = np.array([each.line for each in pieces], np.int64)
    before_piece = np.searchsorted(newlines, np.concatenate(([0], piece_ends[:-1])))
    return files[piece], first_lines[piece] + np.searchsorted(newlines, starts) - before_piece[piece]
