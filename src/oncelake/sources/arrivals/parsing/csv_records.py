"""Split the bytes of a CSV file into records, strictly: a record has its fields, or the reason why it has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from oncelake.sources.arrivals.parsing.csv_dialect import Dialect
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES

_NEWLINE = re.compile(rb"\r\n|\n|\r")
# How often a file may be scanned in vain for closing quotes before the remainder is given up.
_SCANS = 2


class Record(NamedTuple):
    """A record: its first line (from 1), its bytes `[start, end)` without the line's end, its fields, or why it has none."""

    line: int
    start: int
    end: int
    fields: list[str | None]
    reason: str | None = None


class _Malformed(Exception):
    """Quotes that do not match, and the position up to which the file was scanned."""

    def __init__(self, reason: str, reached: int) -> None:
        super().__init__(reason)
        self.reached = reached


class Scanner:
    """Reads a file record by record. `position` and `line` are where the next record starts.

    A line whose quotes do not match is bad by itself, and reading goes on with the next line. Only where that would take
    quadratic time is the whole remainder of the file one bad record.
    """

    def __init__(self, content: bytes, dialect: Dialect, position: int = 0, line: int = 1) -> None:
        self.content, self.dialect, self.position, self.line = content, dialect, position, line
        self._sep = dialect.sep.decode()
        self._nulls = frozenset(dialect.nulls)
        self._stop = re.compile(re.escape(dialect.sep) + rb"|\r|\n")
        self._quoted, self._escaped = _quoted_text_patterns(dialect)
        self._scans_left = _SCANS * len(content) + (1 << 20)

    def records(self, until: int, width: int | None) -> Iterator[Record]:
        """Yield the records that start before the position `until`. A record that has not `width` fields is bad."""
        while self.position < until:
            start, line = self.position, self.line
            end, following = self._end_of_line(start)
            if start == end or (self.dialect.comment and self.content.startswith(self.dialect.comment, start)):
                self.position, self.line = following, line + 1
                continue
            record = self._read(start, end)
            if record.end != end:
                following = self._end_of_line(record.end)[1]
            self.position = following
            self.line = line + 1 + (self._newlines(start, record.end) if record.end > end else 0)
            yield _check_size(_check_width(record, width))

    def _read(self, start: int, end: int) -> Record:
        """Return the record that starts in a line, whose end is at `end`."""
        quoted = self.dialect.quote and self.content.find(self.dialect.quote, start, end) >= 0
        try:
            if quoted:
                fields, end = self._quoted_fields(start, len(self.content) if self.dialect.multi_line else end)
            else:
                fields = [self._plain(text) for text in self.content[start:end].decode().split(self._sep)]
        except _Malformed as error:
            return self._malformed(error, start, end)
        except UnicodeDecodeError:
            return Record(self.line, start, end, [], "invalid UTF-8")
        reason = "raw NUL byte" if self.content.find(b"\0", start, end) >= 0 else None
        return Record(self.line, start, end, fields, reason)

    def _malformed(self, error: _Malformed, start: int, end: int) -> Record:
        self._scans_left -= error.reached - start
        if self._scans_left >= 0:
            return Record(self.line, start, end, [], str(error))
        lines = self._newlines(start, len(self.content.rstrip(b"\r\n"))) + 1
        reason = f"{error}; like many before it, so the remaining {lines} lines of the file are not read"
        return Record(self.line, start, len(self.content), [], reason)

    def _quoted_fields(self, position: int, limit: int) -> tuple[list[str | None], int]:
        """Return the fields of a record that has quotes, and where it ends."""
        fields: list[str | None] = []
        while True:
            text, end = self._field(position, limit)
            fields.append(text)
            if end == limit or self.content[end] in b"\r\n":
                return fields, end
            if not self.content.startswith(self.dialect.sep, end, limit):
                raise _Malformed("text after a closing quote", end)
            position = end + len(self.dialect.sep)

    def _field(self, position: int, limit: int) -> tuple[str | None, int]:
        opening = self._skip_blanks(position, limit) if self.dialect.trim_left else position
        if self.content.startswith(self.dialect.quote, opening, limit):
            found = self._quoted.match(self.content, opening, limit)
            if found is None:
                raise _Malformed("unbalanced quote, opened and never closed", limit)
            end = self._skip_blanks(found.end(), limit) if self.dialect.trim_right else found.end()
            return self._escaped.sub(lambda pair: pair[0][1:], found[1]).decode(), end
        stop = self._stop.search(self.content, position, limit)
        end = stop.start() if stop else limit
        return self._plain(self.content[position:end].decode()), end

    def _plain(self, text: str) -> str | None:
        """Return the value of a field without quotes."""
        text = text.lstrip(self.dialect.blanks) if self.dialect.trim_left else text
        text = text.rstrip(self.dialect.blanks) if self.dialect.trim_right else text
        return None if text in self._nulls else text

    def _skip_blanks(self, position: int, limit: int) -> int:
        while position < limit and self.content[position] in self.dialect.blanks.encode():
            position += 1
        return position

    def _end_of_line(self, position: int) -> tuple[int, int]:
        found = _NEWLINE.search(self.content, position)
        return found.span() if found else (len(self.content), len(self.content))

    def _newlines(self, start: int, end: int) -> int:
        return len(_NEWLINE.findall(self.content, start, end))


def _check_width(record: Record, width: int | None) -> Record:
    if record.reason or width is None or len(record.fields) == width:
        return record
    few = "few" if len(record.fields) < width else "many"
    return record._replace(reason=f"too {few} fields: {len(record.fields)} instead of {width}")


def _check_size(record: Record) -> Record:
    # What is kept of its bytes says how long it is.
    return record._replace(reason=record.reason or "") if record.end - record.start > MAX_RECORD_BYTES else record


def _quoted_text_patterns(dialect: Dialect) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what matches a quoted text, and what in it stands for its own second byte."""
    quote, escape = re.escape(dialect.quote or b'"'), re.escape(dialect.escape)
    if not escape:
        return re.compile(b"%b((?:[^%b]++|%b%b)*+)%b" % (quote, quote, quote, quote, quote)), re.compile(quote * 2)
    inner = b"[^%b%b]++|%b%b|%b." % (quote, escape, quote, quote, escape)
    escaped = b"%b%b|%b[%b%b]" % (quote, quote, escape, quote, escape)
    return re.compile(b"%b((?:%b)*+)%b" % (quote, inner, quote), re.DOTALL), re.compile(escaped)
