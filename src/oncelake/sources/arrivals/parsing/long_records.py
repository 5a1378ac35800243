"""Records that are too long for a row: they go to quarantine with the beginning of their text, and never to Spark as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from oncelake.sources.arrivals.parsing.records import BAD, FILE, LINE, Parsed

# The length of the longest record that becomes a row, and how much is kept of the text of a longer one.
MAX_RECORD_BYTES, KEPT_BYTES = 16 << 20, 64 << 10
# What a record of text may come to as a row: numbers of one digit are eight bytes each.
MAX_ROW_BYTES = 4 * MAX_RECORD_BYTES
_TOO_LONG = "too long: "


class Lines(NamedTuple):
    """Where some whole lines begin and end, or a single line that is too long."""

    start: int
    end: int
    is_long: bool


def is_too_long(reason: str) -> bool:
    """Return whether a row is in quarantine without its whole text, because of its length."""
    return reason.startswith(_TOO_LONG)


def cut_raw(raw: bytes | None, reason: str) -> tuple[bytes | None, str]:
    """Return the raw text of a bad record and the reason; of a record that is too long the beginning, and its length."""
    if raw is None or len(raw) <= MAX_RECORD_BYTES:
        return raw, reason
    kept = f"the first {KEPT_BYTES:,} bytes of it are kept"
    return raw[:KEPT_BYTES], "; ".join([why_too_long(len(raw)), *([reason] if reason else []), kept])


def why_too_long(length: int) -> str:
    """Return the reason for a record of this length."""
    return f"{_TOO_LONG}{length:,} bytes, and the limit of a row is {MAX_RECORD_BYTES:,}"


def runs_of_lines(content: bytes) -> Iterator[Lines]:
    """Yield runs of lines, about as long as the limit, and each line that is longer by itself. Lines end with LF, CR LF or CR."""
    position = 0
    while position < len(content):
        end = position + MAX_RECORD_BYTES
        if end >= len(content):
            yield Lines(position, len(content), is_long=False)
            return
        last = max(content.rfind(b"\n", position, end), content.rfind(b"\r", position, end)) + 1
        is_long = not last
        last = last or _end_of_line(content, end)
        # The LF of a CR LF belongs to the line before it.
        last += content[last - 1 : last + 1] == b"\r\n"
        yield Lines(position, last, is_long and len(content[position:last].rstrip(b"\r\n")) > MAX_RECORD_BYTES)
        position = last


def without_long_rows(parsed: Parsed, limit: int = MAX_ROW_BYTES) -> Parsed:
    """Return what was parsed, with the rows whose values have more bytes than a limit as bad ones."""
    if parsed.rows.nbytes <= limit:
        return parsed
    long = list(_long_rows(parsed.rows, 0, limit))
    if not long:
        return parsed
    kept = [parsed.rows.slice(start, end - start) for start, end in _between(long, parsed.rows.num_rows)]
    bad = [_bad_row(parsed.rows.slice(at, 1)) for at in long]
    return replace(
        parsed,
        rows=pa.concat_tables(kept),
        bad=pa.concat_tables([parsed.bad, pa.Table.from_pylist(bad, schema=BAD)]),
    )


def _long_rows(rows: pa.Table, before: int, limit: int) -> Iterator[int]:
    """Yield the numbers of rows beyond the limit. Most tables are small enough as a whole, or by halves."""
    if rows.nbytes <= limit:
        return
    if rows.num_rows == 1:
        yield before
        return
    middle = rows.num_rows // 2
    yield from _long_rows(rows.slice(0, middle), before, limit)
    yield from _long_rows(rows.slice(middle), before + middle, limit)


def _between(long: list[int], rows: int) -> Iterator[tuple[int, int]]:
    yield from zip([0, *(at + 1 for at in long)], [*long, rows], strict=True)


def _bad_row(row: pa.Table) -> dict[str, object]:
    reason = f"{why_too_long(row.nbytes)}; its text is not kept"
    return {FILE: row[FILE][0].as_py(), LINE: row[LINE][0].as_py(), "offset": None, "raw": None, "reason": reason}


def _end_of_line(content: bytes, position: int) -> int:
    """Return where the next line begins."""
    found = [at for at in (content.find(b"\n", position), content.find(b"\r", position)) if at >= 0]
    return min(found) + 1 if found else len(content)
