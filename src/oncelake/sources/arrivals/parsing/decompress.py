"""Expand compressed files within a limit. A file that is cut short, or has anything else in it, is bad as a whole."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

_CHUNK = 1 << 15
# Of a gzip file, for zlib.
_MEMBER = 16 + zlib.MAX_WBITS


class BadFile(Exception):
    """A file that cannot be read at all. The message is the reason."""


def expand(name: str, content: bytes, limit: int) -> tuple[str, bytes]:
    """Return the name of a file without the suffix of its compression, and the bytes that it expands to.

    Raise `BadFile` if the file is damaged, or expands to more than `limit` bytes; hardly more than those are expanded.
    """
    stem, dot, suffix = name.rpartition(".")
    chunks = _SUFFIXES.get(suffix.lower()) if dot else None
    if chunks is None or not content:
        return (stem if chunks else name), content
    try:
        return stem, _join(chunks(content), limit)
    except EOFError:
        raise BadFile(f"{suffix} ends too early: looks truncated") from None
    except (OSError, zlib.error, ValueError) as error:
        raise BadFile(_reason(suffix, error)) from None


def check_size(size: int, limit: int) -> None:
    """Raise `BadFile` if a file expands to more bytes than the limit."""
    if size > limit:
        raise BadFile(f"expands to more than {limit:,} bytes (max_expanded=)")


def _reason(suffix: str, error: Exception) -> str:
    return f"not valid {suffix}: {error}{': looks truncated' if 'Truncated' in str(error) else ''}"


def _join(chunks: Iterator[bytes], limit: int) -> bytes:
    kept, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        check_size(size, limit)
        kept.append(chunk)
    return b"".join(kept)


def _gzip(content: bytes) -> Iterator[bytes]:
    # Not by Python's GzipFile, which ignores flags that it does not know. Zeros may follow a member.
    stream, position, given = zlib.decompressobj(_MEMBER), 0, b""
    while given or position < len(content):
        if not given:
            given = content[position : position + _CHUNK]
            position += len(given)
        if stream.eof:
            given = given.lstrip(b"\0")
            stream = zlib.decompressobj(_MEMBER) if given else stream
        if given:
            yield stream.decompress(given, _CHUNK)
            given = stream.unused_data if stream.eof else stream.unconsumed_tail
    if not stream.eof:
        raise EOFError


def _zstd(content: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        yield from iter(lambda: stream.read(_CHUNK), b"")


def _bz2(content: bytes) -> Iterator[bytes]:
    # Not by Python's BZ2File, which ignores whatever follows the first stream.
    stream, position = bz2.BZ2Decompressor(), 0
    while position < len(content) or not stream.eof:
        if stream.eof:
            stream = bz2.BZ2Decompressor()
        given = content[position : position + _CHUNK] if stream.needs_input else b""
        if stream.needs_input and not given:
            raise EOFError
        yield stream.decompress(given, _CHUNK)
        position += len(given) - (len(stream.unused_data) if stream.eof else 0)


_SUFFIXES: dict[str, Callable[[bytes], Iterator[bytes]]] = {"gz": _gzip, "zst": _zstd, "zstd": _zstd, "bz2": _bz2}
