"""Text of any encoding as UTF-8 without a byte order mark."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from oncelake.sources.arrivals.parsing.decompress import BadFile

# The mark of UTF-32 starts with that of UTF-16, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UTF_8 = ("utf-8", "utf-8-sig")


def to_utf8(content: bytes, encoding: str | None = None) -> tuple[bytes, int]:
    """Return the text of a file as UTF-8, and how many bytes of a mark were left out before it.

    UTF-8 is passed on unchecked: a line that is not valid is bad by itself. Other encodings are named by a mark or by
    `encoding`; a file that is not valid in them raises `BadFile`, and places in it are places in the UTF-8 text.
    """
    if content.startswith(codecs.BOM_UTF8) and is_utf8(encoding):
        return content[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
    marked = marked_encoding(content)
    if encoding is None and marked is None:
        return content, 0
    name = encoding if encoding is not None and not (marked and is_utf8(encoding)) else marked
    if name is None or is_utf8(name):
        return content, 0
    try:
        return content.decode(name).removeprefix("\ufeff").encode(), 0
    except LookupError:
        raise BadFile(f"unknown encoding {name}") from None
    except UnicodeError as error:
        raise BadFile(f"not valid {name}: {error}") from None


def in_encoding(lines: Sequence[bytes], encoding: str | None) -> bytes:
    """Return lines as a file of an encoding. A line that is UTF-8 was read from it; any other is as it is in its file."""
    if encoding is None or is_utf8(encoding) or not _is_known(encoding):
        return b"".join(line + b"\n" for line in lines)
    return "".join(f"{_decode(line, encoding)}\n" for line in lines).encode(encoding, "surrogateescape")


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def _decode(line: bytes, encoding: str) -> str:
    try:
        text = line.decode()
        text.encode(encoding)
    except UnicodeError:
        return line.decode(encoding, "surrogateescape")
    return text


_FIRST = {mark[:1] for mark, _ in _MARKS}


def marked_encoding(content: bytes) -> str | None:
    """Return the encoding that a mark at the beginning names, unless it is UTF-8."""
    if content[:1] not in _FIRST:
        return None
    return next((name for mark, name in _MARKS if content.startswith(mark)), None)


def has_mark(content: bytes) -> bool:
    """Return whether bytes begin with the mark of an encoding."""
    return content.startswith(codecs.BOM_UTF8) or marked_encoding(content) is not None


def is_utf8(encoding: str | None) -> bool:
    """Return whether an encoding, if one is named, is UTF-8."""
    try:
        return encoding is None or codecs.lookup(encoding).name in _UTF_8
    except LookupError:
        return False
