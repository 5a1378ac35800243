"""Bad and odd files that are not made of lines: Parquet, ORC and binary files."""

import io
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from support.bad_files import Case, bad_file, compress

_GOOD: dict[str, Any] = {
    "id": pa.array([1, 2, 3]),
    "amount": pa.array([Decimal("12.34"), None, Decimal("0.01")], pa.decimal128(10, 2)),
    "qty": pa.array([5, 6, 7], pa.int32()),
    "price": pa.array([2.5, None, -1.0]),
    "name": pa.array(["Ann", "Köln", None]),
    "day": pa.array([date(2024, 3, 15), None, date(1969, 1, 1)]),
    "at": pa.array([datetime(2024, 3, 15, 10, tzinfo=UTC), None, None], pa.timestamp("us", tz="UTC")),
    "ok": pa.array([True, False, None]),
    "tags": pa.array([["a"], [], None]),
    "address": pa.array(
        [{"city": "Bonn", "zip": 53111}, None, {"city": None, "zip": None}],
        pa.struct({"city": pa.string(), "zip": pa.int32()}),
    ),
}
GOOD_TABLE = pa.table(_GOOD)
Write = Callable[..., bytes]


def parquet(table: pa.Table, **options: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


def orc_file(table: pa.Table, **options: Any) -> bytes:
    target = io.BytesIO()
    orc.write_table(table, target, **options)
    return target.getvalue()


def _with(**columns: Any) -> pa.Table:
    return pa.table(_GOOD | columns)


def _invalid_utf8() -> pa.Array:
    data = b"okJ\xfcrgenok"
    offsets = struct.pack("<4i", 0, 2, 8, 10)
    return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def damaged_cases(kind: str, data: bytes, rows: int) -> list[Case]:
    """Return one file damaged in the ways that every format with a magic number has in common."""
    name, half = f"a.{kind}", len(data) // 2
    flipped = bytearray(data)
    flipped[half] ^= 0xFF
    return [
        Case("empty", kind, name, b"", good_rows=0, whole=None),
        bad_file("text", kind, name, b"id,name\n1,a\n" * 20),
        bad_file("only the magic number", kind, name, data[:4]),
        bad_file("cut in half", kind, name, data[:half]),
        bad_file("without its last byte", kind, name, data[:-1]),
        bad_file("without its first byte", kind, name, data[1:]),
        bad_file("a block of zeros at its end", kind, name, data[:-40] + bytes(40)),
        bad_file("zeros", kind, name, bytes(500)),
        Case("a flipped byte", kind, name, bytes(flipped), whole=None),
        bad_file("compressed as a whole", kind, f"{name}.gz", compress(data, ".gz")),
        Case("good", kind, name, data, good_rows=rows, bad_rows=0, must_find=("Köln", "Bonn", "12.34")),
    ]


def _typed(kind: str, write: Write) -> list[Case]:
    """Return files whose columns differ from the schema, in ways that both Parquet and ORC can express."""

    def case(name: str, table: pa.Table, *find: str, rescues: str = "", reason: str = "") -> Case:
        rescued = tuple(rescues.split())
        return Case(
            name,
            kind,
            f"a.{kind}",
            write(table),
            good_rows=table.num_rows,
            bad_rows=0,
            must_find=find,
            rescues=rescued,
            reason=reason,
        )

    instants = pa.array([datetime(2024, 3, 15, 10, 0, 0, 123456), None, datetime(1700, 1, 1)], pa.timestamp("us"))
    nanos = pa.array([1_710_496_800_123_456_789, None, 1_710_496_800_000_000_000], pa.timestamp("ns", tz="UTC"))
    return [
        case("no rows", GOOD_TABLE.slice(0, 0)),
        case("other order of columns", GOOD_TABLE.select(GOOD_TABLE.column_names[::-1]), "Köln"),
        case(
            "another case",
            GOOD_TABLE.rename_columns([name.upper() for name in GOOD_TABLE.column_names]),
            "Köln",
            "Bonn",
        ),
        case("missing columns", GOOD_TABLE.select(["id", "name"]), "Köln"),
        case("no known column", pa.table({"x": ["treasure"]}), "treasure", rescues="x", reason="no such column"),
        case("an unknown column", _with(colour=["red", "vermilion", None]), "vermilion", rescues="colour"),
        case(
            "an unknown nested column",
            _with(more=[{"deep": [{"er": "treasure"}]}, None, None]),
            "treasure",
            rescues="more",
        ),
        case("names that differ by case", _with(NAME=["HIGH", None, "x"]), "HIGH", "Köln", rescues="NAME"),
        case("a narrower integer", _with(id=pa.array([1, 2, 3], pa.int8())), "Köln"),
        case("a wider integer that fits", _with(qty=pa.array([5, 6, 7], pa.int64())), "Köln"),
        case(
            "an integer out of range",
            _with(qty=pa.array([5, 99999999999, 7], pa.int64())),
            "99999999999",
            rescues="qty",
            reason="range",
        ),
        case("fractions for an integer", _with(qty=[1.5, 2.25, None]), "1.5", "2.25", rescues="qty"),
        case("text for an integer", _with(id=["hello", "2", None]), "hello"),
        case("text for a decimal", _with(amount=["1.239", "1.5", None]), "1.239"),
        case(
            "too many fractional digits",
            _with(amount=pa.array([Decimal("1.239"), None, None], pa.decimal128(12, 3))),
            "1.239",
            rescues="amount",
        ),
        case(
            "a decimal out of range",
            _with(amount=pa.array([Decimal(123456789012), None, None], pa.decimal128(38, 0))),
            "123456789012",
            rescues="amount",
        ),
        case("not finite", _with(price=[float("nan"), float("inf"), -0.0])),
        case("float for double", _with(price=pa.array([0.1, None, 1.5], pa.float32()))),
        case("timestamps without a zone", _with(at=instants), "1700", "123456"),
        case("nanoseconds", _with(at=nanos)),
        case("an integer as a timestamp", _with(at=[1710496801, None, None]), "1710496801", rescues="at"),
        case("a date as text", _with(day=["2024-03-15", "2024-02-30", None]), "2024-02-30"),
        case("bytes for a text", _with(name=pa.array([b"Ann", b"J\xfcrgen", None]))),
        case(
            "a text for bytes in an unknown column", _with(blob=pa.array([b"\x00\xff\x10", None, b""])), rescues="blob"
        ),
        case("other items of a list", _with(tags=[[4711], [], None]), "4711"),
        case(
            "other fields of a struct",
            _with(address=[{"city": "Bonn", "street": "Weg 7"}, None, None]),
            "Bonn",
            "Weg 7",
        ),
        case("a struct for a text", _with(name=[{"first": "Xaver"}, None, None]), "Xaver", rescues="name"),
        case("a column of ours", _with(_rescued=["mine", None, None], _once_line=[77123, 1, 2]), "mine", "77123"),
        case("odd names", _with(**{"a b.c,d": ["oddly named", None, None]}), "oddly named"),
        case("a map", _with(m=pa.array([[("k", "mapped")], None, []], pa.map_(pa.string(), pa.string()))), "mapped"),
    ]


def _parquet_cases() -> list[Case]:
    def case(name: str, table: pa.Table, *find: str, rows: int = 3, rescues: str = "", **options: Any) -> Case:
        data, rescued = parquet(table, **options), tuple(rescues.split())
        return Case(name, "parquet", "a.parquet", data, good_rows=rows, bad_rows=0, must_find=find, rescues=rescued)

    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["low"]), pa.array(["twice"])], ["id", "name", "name"])
    plain = parquet(GOOD_TABLE)
    huge_footer = plain[:-8] + struct.pack("<I", 0x7FFFFFFF) + plain[-4:]
    flipped_page = bytearray(parquet(GOOD_TABLE, compression="none", write_page_checksum=True))
    flipped_page[30] ^= 0xFF
    return [
        *[
            case(f"compressed by {codec}", GOOD_TABLE, "Köln", compression=codec)
            for codec in ("snappy", "gzip", "zstd", "brotli", "lz4", "none")
        ],
        case("many row groups", GOOD_TABLE, "Köln", row_group_size=1),
        case("version 1.0", GOOD_TABLE, "Köln", version="1.0"),
        case("data pages of version 2", GOOD_TABLE, "Köln", data_page_version="2.0"),
        case("int96 timestamps", GOOD_TABLE, "2024-03-15", use_deprecated_int96_timestamps=True),
        case(
            "unsigned integers",
            _with(id=pa.array([1, 18446744073709551615, 3], pa.uint64())),
            "18446744073709551615",
            rescues="id",
        ),
        case("dictionaries", _with(name=pa.array(["Ann", "Köln", None]).dictionary_encode()), "Köln"),
        case("a column of nulls without a type", _with(name=pa.nulls(3))),
        case("large types", _with(name=pa.array(["Ann", "Köln", None], pa.large_string())), "Köln"),
        case(
            "times and durations",
            _with(t=pa.array([1, 2, None], pa.time64("us")), d=pa.array([1, 2, None], pa.duration("us"))),
            rescues="t d",
        ),
        case("year 99999", _with(at=pa.array([3093527980800000000 // 10, None, None], pa.timestamp("us", tz="UTC")))),
        case("milliseconds far away", _with(at=pa.array([2**60, None, None], pa.timestamp("ms", tz="UTC")))),
        case("fixed size bytes", _with(f=pa.array([b"abcd", None, b"efgh"], pa.binary(4))), rescues="f"),
        Case("invalid UTF-8 in a text", "parquet", "a.parquet", parquet(_with(name=_invalid_utf8())), whole=None),
        Case("duplicate column names", "parquet", "a.parquet", parquet(twice), must_find=("low", "twice"), whole=None),
        bad_file("a footer of 2 GB", "parquet", "a.parquet", huge_footer),
        bad_file("a damaged page", "parquet", "a.parquet", bytes(flipped_page)),
        Case("bytes behind the magic number", "parquet", "a.parquet", plain + b"\n", whole=None),
        Case("bytes before the footer", "parquet", "a.parquet", plain[:4] + b"x" + plain[4:], whole=None),
        bad_file("encrypted", "parquet", "a.parquet", b"PARE" + plain[4:-4] + b"PARE"),
        *_typed("parquet", parquet),
        *damaged_cases("parquet", plain, 3),
    ]


def _binary_cases() -> list[Case]:
    contents = {"empty": b"", "any bytes": bytes(range(256)), "a gz stays as it is": compress(b"x" * 100, ".gz")}
    return [
        Case(
            name,
            "binary",
            "a.gz",
            data,
            schema="content binary",
            good_rows=1,
            bad_rows=0,
            must_find=(data,) if data else (),
        )
        for name, data in contents.items()
    ]


def _bombs() -> list[Case]:
    """Return small files that expand beyond the limit."""
    table = pa.table({"name": ["x" * (1 << 22), "y"]})
    made = {
        "parquet": parquet(table, compression="zstd", use_dictionary=False),
        "orc": orc_file(table, compression="zlib"),
    }
    return [
        bad_file("expands beyond the limit", kind, f"a.{kind}", data, "expands", max_expanded_bytes=1 << 20)
        for kind, data in made.items()
    ]


def _with_precision(precision: int) -> bytes:
    """Return a file whose decimals have so many digits, by its footer."""
    data = orc_file(pa.table({"amount": pa.array([Decimal(1)], pa.decimal128(38, 17))}), compression="uncompressed")
    number, spelled = precision, bytearray()
    while number > 0x7F:
        spelled.append(number & 0x7F | 0x80)
        number >>= 7
    spelled.append(number)
    kind = b"\x08\x08\x0e\x20\x00\x28\x26\x30\x11"  # 8 bytes: kind 14, no maximum length, precision 38, scale 17
    longer = len(spelled) - 1
    footer = data.replace(kind, bytes([8 + longer]) + kind[1:6] + bytes(spelled) + kind[7:])
    assert footer != data
    start = len(footer) - 1 - footer[-1]
    return footer[:start] + b"\x08" + bytes([footer[start + 1] + longer]) + footer[start + 2 :]


PARQUET = _parquet_cases()
ORC = [
    *_typed("orc", orc_file),
    *damaged_cases("orc", orc_file(GOOD_TABLE), 3),
    *[
        Case(f"compressed by {codec}", "orc", "a.orc", orc_file(GOOD_TABLE, compression=codec), good_rows=3, bad_rows=0)
        for codec in ("zlib", "snappy", "lz4", "zstd")
    ],
    # Arrow aborts the process on such a type.
    bad_file("a decimal with 74 digits", "orc", "a.orc", _with_precision(74), "crashed"),
    bad_file("a decimal with 4 billion digits", "orc", "a.orc", _with_precision(0xFFFFFFFF), "crashed"),
    # Arrow reads nanoseconds only, which end in 1677: the file is refused as a whole.
    Case("year 1600", "orc", "a.orc", orc_file(_with(at=pa.array([datetime(1600, 1, 1)] * 3))), whole=None),
]
BINARY = _binary_cases()
BOMBS = _bombs()
