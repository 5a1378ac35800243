"""Find the header of a CSV file in the bytes at its beginning."""

from __future__ import annotations

from oncelake.sources.arrivals.parsing.charset import to_utf8
from oncelake.sources.arrivals.parsing.csv_dialect import Dialect
from oncelake.sources.arrivals.parsing.csv_records import Scanner
from oncelake.sources.arrivals.parsing.decompress import BadFile

# The last character of some bytes may be cut: it lacks no more than these.
_CUT = 4


def find_header(head: bytes, dialect: Dialect, whole: bool) -> str | None:
    """Return the header as it is written, from the beginning of a file or the `whole` of it; None if it is not there."""
    content = _text(head, dialect.encoding, 1 if whole else _CUT)
    if content is None:
        return None
    first = next(Scanner(content, dialect).records(len(content), None), None)
    if first is None or first.reason or (first.end == len(content) and not whole):
        return None
    return content[first.start : first.end].decode()


def _text(head: bytes, encoding: str | None, tries: int) -> bytes | None:
    for cut in range(tries):
        try:
            return to_utf8(head[: len(head) - cut], encoding)[0]
        except BadFile:
            continue
    return None
