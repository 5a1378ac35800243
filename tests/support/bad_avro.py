"""Bad and odd Avro files."""

import io
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro

from support.bad_columnar import GOOD_TABLE, damaged_cases
from support.bad_files import Case, bad_file

_AVRO_FIELDS: dict[str, Any] = {
    "id": "long",
    "amount": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
    "qty": "int",
    "price": ["null", "double"],
    "name": ["null", "string"],
    "day": ["null", {"type": "int", "logicalType": "date"}],
    "at": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
    "ok": ["null", "boolean"],
    "tags": ["null", {"type": "array", "items": "string"}],
    "address": [
        "null",
        {
            "type": "record",
            "name": "Address",
            "fields": [{"name": "city", "type": ["null", "string"]}, {"name": "zip", "type": ["null", "int"]}],
        },
    ],
}
_AVRO_ROWS = GOOD_TABLE.to_pylist()


def avro(rows: Iterable[Mapping[str, Any]], fields: Mapping[str, Any], codec: str = "null") -> bytes:
    target = io.BytesIO()
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    fastavro.writer(target, fastavro.parse_schema(schema), list(rows), codec=codec, sync_marker=b"0123456789abcdef")
    return target.getvalue()


def good_avro(codec: str = "null") -> bytes:
    """Return the rows of the good table."""
    return avro(_AVRO_ROWS, _AVRO_FIELDS, codec)


def _avro_cases() -> list[Case]:
    def case(
        name: str,
        kind: Any,
        values: list[Any],
        *find: str,
        column: str = "new",
        rescues: bool = True,
        codec: str = "null",
    ) -> Case:
        rows = [row | {column: value} for row, value in zip(_AVRO_ROWS, values, strict=True)]
        data = avro(rows, _AVRO_FIELDS | {column: kind}, codec)
        return Case(
            name, "avro", "a.avro", data, good_rows=3, bad_rows=0, must_find=find, rescues=(column,) if rescues else ()
        )

    good = good_avro()
    block = good.index(b"0123456789abcdef") + 16
    nested = {"type": "record", "name": "N", "fields": [{"name": "er", "type": "string"}]}
    json_schema = avro([], _AVRO_FIELDS).replace(b'"long"', b'"lonk"')
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    return [
        case("an unknown column", ["null", "string"], ["vermilion", None, "x"], "vermilion"),
        case("an unknown record", nested, [{"er": "treasure"}] * 3, "treasure"),
        case("an enum", {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, ["RED", "BLUE", "RED"], "BLUE"),
        case("fixed bytes", {"type": "fixed", "name": "F", "size": 4}, [b"abcd"] * 3),
        case("bytes", "bytes", [b"\x00\xff", b"", b"x"]),
        case("a map", {"type": "map", "values": "string"}, [{"k": "mapped"}, {}, {}], "mapped"),
        case("a union of kinds", ["null", "string", "long"], ["some text", 4711, None], "some text", "4711"),
        case("a long out of range of int", "long", [99999999999, 6, 7], "99999999999", column="qty"),
        case("text for an integer", "string", ["hello", "2", "3"], "hello", column="id"),
        case("not finite", "double", [float("nan"), float("inf"), 1.0], column="price", rescues=False),
        case("a long as a timestamp", "long", [1710496801, 1, 2], "1710496801", column="at"),
        case(
            "a timestamp in milliseconds",
            {"type": "long", "logicalType": "timestamp-millis"},
            [datetime(2024, 3, 15, 10, tzinfo=UTC)] * 3,
            "2024-03-15",
            column="at",
            rescues=False,
        ),
        case(
            "a local timestamp",
            {"type": "long", "logicalType": "local-timestamp-micros"},
            [datetime(2024, 3, 15, 10)] * 3,
            "2024-03-15",
            column="at",
            rescues=False,
        ),
        case(
            "a uuid",
            {"type": "string", "logicalType": "uuid"},
            ["12345678-1234-5678-1234-567812345678"] * 3,
            "12345678-1234-5678-1234-567812345678",
        ),
        case(
            "a decimal with more digits",
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            [Decimal("1.239")] * 3,
            "1.239",
            column="amount",
        ),
        case("deflate", "string", ["Köln"] * 3, "Köln", codec="deflate"),
        case("bzip2", "string", ["Köln"] * 3, "Köln", codec="bzip2"),
        Case("no rows", "avro", "a.avro", avro([], _AVRO_FIELDS), good_rows=0, bad_rows=0),
        Case(
            "a record that refers to itself",
            "avro",
            "a.avro",
            _linked(),
            good_rows=1,
            bad_rows=0,
            must_find=("inner",),
            whole=None,
        ),
        Case(
            "year 99999",
            "avro",
            "a.avro",
            avro([{"at": 3093527980800000000}], {"at": "long"}).replace(json.dumps("long").encode(), b'"long"'),
            good_rows=1,
            bad_rows=0,
            must_find=("3093527980800000000",),
        ),
        Case("a timestamp beyond Python's years", "avro", "a.avro", _raw_timestamp(micros), whole=None),
        bad_file("a wrong sync marker", "avro", "a.avro", good[:-16] + b"fedcba9876543210"),
        bad_file("cut in a block", "avro", "a.avro", good[: block + 10]),
        bad_file("cut in the header", "avro", "a.avro", good[: block // 2]),
        bad_file("an unknown codec", "avro", "a.avro", good.replace(b"avro.codec\x08null", b"avro.codec\x08what")),
        bad_file("a schema that is none", "avro", "a.avro", json_schema),
        bad_file(
            "a block that says it is huge",
            "avro",
            "a.avro",
            good[:block] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 2 + good[block:],
        ),
        bad_file("rubbish behind the last block", "avro", "a.avro", good + b"rubbish"),
        *[each for each in damaged_cases("avro", good, 3) if each.name != "a block of zeros at its end"],
    ]


def _linked() -> bytes:
    schema = {
        "type": "record",
        "name": "Link",
        "fields": [{"name": "name", "type": "string"}, {"name": "next", "type": ["null", "Link"]}],
    }
    target = io.BytesIO()
    fastavro.writer(target, fastavro.parse_schema(schema), [{"name": "outer", "next": {"name": "inner", "next": None}}])
    return target.getvalue()


def _raw_timestamp(kind: Any) -> bytes:
    """Return a file with a number where a timestamp is meant, as a writer of another language may leave it."""
    plain = avro([{"at": 3093527980800000000}], {"at": "long"})
    with_kind = avro([], {"at": kind})
    sync = b"0123456789abcdef"
    return with_kind[: with_kind.index(sync) + 16] + plain[plain.index(sync) + 16 :]


def _bomb() -> Case:
    data = avro([{"name": "x" * (1 << 22)}], {"name": "string"}, "deflate")
    return bad_file("expands beyond the limit", "avro", "a.avro", data, "expands", max_expanded_bytes=1 << 20)


AVRO = [*_avro_cases(), _bomb()]
