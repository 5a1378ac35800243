"""A corpus of bad and odd files, made here and not stored: each with what must be found of it. And mutations of any file, for fuzz."""

import bz2
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import zstandard

COLUMNS = (
    "id bigint, amount decimal(10,2), qty int, price double, name string, day date, at timestamp, ok boolean, "
    "tags array<string>, address struct<city:string,zip:int>"
)


@dataclass(frozen=True)
class Case:
    """One bad or odd file: how many rows are good and bad (None: not said), and the values that must not be lost.

    A value is found in a row, in what was rescued of it, or in the raw bytes of a bad row. A file that is bad as a whole has
    one bad row; `whole` says that it must be, or must not be, bad as a whole.
    """

    name: str
    format: str
    file_name: str
    content: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: str = COLUMNS
    good_rows: int | None = None
    bad_rows: int | None = None
    must_find: tuple[bytes | str, ...] = ()
    whole: bool | None = False
    rescues: tuple[str, ...] = ()  # columns whose value must be in `_rescued`, and not in a row
    reason: str = ""  # what the reason of the bad row, or of the rescued value, must say
    max_expanded_bytes: int = 1 << 26

    @property
    def id(self) -> str:
        """Return the name in the reports of tests."""
        return f"{self.format}: {self.name}"


def bad_file(name: str, format: str, file_name: str, content: bytes, reason: str = "", **more: Any) -> Case:  # noqa: A002
    """Return the case of a file that cannot be read at all."""
    return Case(name, format, file_name, content, good_rows=0, bad_rows=1, whole=True, reason=reason, **more)


def compress(content: bytes, suffix: str) -> bytes:
    """Return bytes as a file of that suffix contains them."""
    if suffix == ".gz":
        return gzip.compress(content, mtime=0)
    if suffix in (".zst", ".zstd"):
        return zstandard.ZstdCompressor(write_checksum=True).compress(content)
    return bz2.compress(content) if suffix == ".bz2" else content


def zstd_stream(content: bytes) -> bytes:
    """Return bytes as zstd writes them when it does not know how many there will be."""
    target = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as stream:
        stream.write(content)
    return target.getvalue()


def compressed_cases(format: str, suffix: str, content: bytes, rows: int, must_find: tuple[str, ...]) -> list[Case]:  # noqa: A002
    """Return one good file in every way of compressing, whole and damaged."""
    found = []
    for packed in (".gz", ".zst", ".zstd", ".bz2"):
        name, data = f"a{suffix}{packed}", compress(content, packed)
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 0x55
        found += [
            Case(f"compressed {packed}", format, name, data, good_rows=rows, bad_rows=0, must_find=must_find),
            bad_file(f"{packed} cut in half", format, name, data[: len(data) // 2]),
            bad_file(f"{packed} without its last 3 bytes", format, name, data[:-3]),
            bad_file(f"plain text named {packed}", format, name, content),
            bad_file(f"{packed} with a flipped byte", format, name, bytes(flipped)),
            bad_file(f"{packed} with rubbish at its end", format, name, data + b"rubbish"),
        ]
        twice = Case(f"two members of {packed}", format, name, data + data, good_rows=2 * rows, bad_rows=0)
        # The second member would start with a header of CSV once more.
        found += [twice] if format != "csv" else []
    bomb = compress(content + b" " * (1 << 22), ".gz")
    found.append(
        bad_file("expands beyond the limit", format, f"bomb{suffix}.gz", bomb, "expands", max_expanded_bytes=1 << 20)
    )
    found.append(
        Case("zstd without a size", format, f"s{suffix}.zst", zstd_stream(content), good_rows=rows, bad_rows=0)
    )
    found.append(
        Case(
            "suffix in capitals", format, f"A{suffix.upper()}.GZ", compress(content, ".gz"), good_rows=rows, bad_rows=0
        )
    )
    return found


def corpus() -> list[Case]:
    """Return all the files."""
    from support import bad_avro, bad_columnar, bad_lines

    lines = [*bad_lines.JSON, *bad_lines.CSV, *bad_lines.TEXT]
    return [
        *lines,
        *bad_columnar.PARQUET,
        *bad_columnar.ORC,
        *bad_avro.AVRO,
        *bad_columnar.BOMBS,
        *bad_columnar.BINARY,
    ]


# Values: each may be right, wrong or odd, depending on the column it is in.

_SPELLED = r"""1 -0 +1 01 1.0 1. .5 1e2 1E+2 1e-2 1.50 12.345 0.1 1e400 -1e400 1e-400 5e-324 3.4028236e38 0x1 1_0 127 128 32768 2147483648
2147483647 -2147483649 9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775809 99999999.99 100000000
123456789012345678901234567890 1e999999999 NaN Infinity -Infinity inf nan null Null NULL None true false TRUE True t yes 1,5 1.234,5
2024-03-15 2024-3-15 2024-02-30 20240315 0001-01-01 0000-01-01 9999-12-31 99999-01-01 -2024-01-01 1500-02-28 2024-03-15T10:00:00Z
2024-03-15T10:00 2024-03-15T10 2024-03-15T10:00:00.1 2024-03-15T10:00:00.123456 2024-03-15T10:00:00.1234567 2024-03-15T10:00:00,5
2024-03-15T10:00:00+02:00 2024-03-15T10:00:00+0200 2024-03-15T10:00:00+02 2024-03-15T24:00:00Z 2024-03-15T23:59:60Z
2024-03-15T10:00:00+25:00 2024-03-15T10:00:00-00:00 9999-12-31T23:59:59-12:00 0001-01-01T00:00:00+12:00 2024-03-15t10:00:00z 1710496800
2024-03-15T10:00:00.000000000Z 2024-03-15T10:00:00[Europe/Berlin] [] {} [1] [null] ["a"] ["a",1] {"city":"x"} {"city":"x","zip":1.5}
{"zip":99999999999} {"city":null} {"a":1} {"city":"x","CITY":"y"} [[]] "" "x" x é é ' '' \ \\ \n # ; ١٢ ½"""
VALUES = [
    *_SPELLED.split(),
    "2024-03-15 10:00:00",
    "2024-03-15 10:00:00+02:00",
    " 1",
    "1 ",
    " 2024-03-15",
    " ",
    "",
    "true ",
    "\u00a01",
    "a,b",
    'a"b',
    "a\nb",
]


# Mutations.

_BLOCK = 64


def _flip(content: bytearray, random: Random, _other: bytes) -> bytearray:
    for _ in range(random.choice((1, 1, 2, 8))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content


def _overwrite(content: bytearray, random: Random, _other: bytes) -> bytearray:
    at = random.randrange(len(content))
    content[at : at + 4] = random.randbytes(random.randrange(1, 9))
    return content


def _cut(content: bytearray, random: Random, _other: bytes) -> bytearray:
    at = random.randrange(len(content))
    return random.choice((content[:at], content[at:], content[:at] + content[at + random.randrange(1, _BLOCK) :]))


def _splice(content: bytearray, random: Random, other: bytes) -> bytearray:
    other = other or bytes(content)
    return content[: random.randrange(len(content))] + other[random.randrange(len(other)) :]


def _double(content: bytearray, random: Random, _other: bytes) -> bytearray:
    at, length = random.randrange(len(content)), random.randrange(1, _BLOCK)
    return content[: at + length] + content[at:]


def _insert(content: bytearray, random: Random, _other: bytes) -> bytearray:
    odd = (
        b"\0",
        b"\0\0\0",
        b'"',
        b"\\",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b"\r",
        b",",
        b"}",
        b"{",
        b"[",
        b" ",
        b"9" * 30,
    )
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(odd) + content[at:]


def _line_ends(content: bytearray, random: Random, _other: bytes) -> bytearray:
    ends = (b"\r\n", b"\r", b"\n\n", b"\n\r", b"\n \n", b"\x0b\n", b"\xe2\x80\xa8", b"\x85")
    count = random.choice((-1, 1))
    return content.replace(b"\n", random.choice(ends), count)


MUTATIONS = (_flip, _flip, _overwrite, _cut, _splice, _double, _insert, _insert, _line_ends)


def flip_bits(content: bytes, random: Random) -> bytes:
    """Return a file with some flipped bits: of the ways to damage one, the one that is the hardest to notice."""
    return bytes(_flip(bytearray(content), random, b""))


def mutate(content: bytes, random: Random, other: bytes = b"") -> bytes:
    """Return a file damaged in one to three ways; `other` is a file of which a part may be spliced into it."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if found:
            found = random.choice(MUTATIONS)(found, random, other)
    return bytes(found)
