"""One value in an Arrow type: what fits without loss, the reason for everything else, and the type that would hold it."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelake.sources.arrivals.parsing.json_text import MAX_DEPTH, BadJson, dump, load
from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.rows import RowBuilder, concat
from oncelake.sources.arrivals.parsing.values import convert, convert_text, type_of, type_of_text

INSTANT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MONEY = pa.decimal128(5, 2)
POINT = pa.struct({"x": pa.int32(), "y": pa.float64()})

FITS = [
    ("5", pa.string(), "5"),
    ("1.50e0", pa.string(), "1.50e0"),
    ("true", pa.string(), "true"),
    ('{"a": [1.0, "\\u00e9"]}', pa.string(), '{"a": [1.0, "é"]}'),
    ("1", pa.int8(), 1),
    ("-0", pa.int32(), 0),
    ("-9223372036854775808", pa.int64(), -(2**63)),
    ("1", pa.float64(), 1.0),
    ("0.1", pa.float64(), 0.1),
    ("5e-324", pa.float64(), 5e-324),
    ("1180591620717411300000", pa.float64(), 2.0**70),
    ("16777216", pa.float32(), 2.0**24),
    ("1.50", MONEY, Decimal("1.5")),
    ('"999.990"', MONEY, Decimal("999.99")),
    ("1e2", MONEY, Decimal(100)),
    ("0e999999999999", MONEY, Decimal(0)),
    ('"a\\u0000b"', pa.string(), "a\0b"),
    ("true", pa.bool_(), True),
    ("null", pa.int32(), None),
    ('"aGk="', pa.binary(), b"hi"),
    ('"2024-02-29"', pa.date32(), date(2024, 2, 29)),
    ('"2024-01-01"', INSTANT, datetime(2024, 1, 1, tzinfo=UTC)),
    ('"2024-01-01 02:03"', INSTANT, datetime(2024, 1, 1, 2, 3, tzinfo=UTC)),
    ('"2024-01-01T05:30:00.5+05:30"', INSTANT, datetime(2024, 1, 1, microsecond=500000, tzinfo=UTC)),
    ('"2024-01-01T00:00:00.1234560Z"', INSTANT, datetime(2024, 1, 1, microsecond=123456, tzinfo=UTC)),
    ('"2024-01-01T02:03:04"', LOCAL, datetime(2024, 1, 1, 2, 3, 4)),
    ("[1, null]", pa.list_(pa.int32()), [1, None]),
    ('{"X": 1}', POINT, {"x": 1}),
    ('{"k": 1}', pa.map_(pa.string(), pa.int8()), [("k", 1)]),
]

DOES_NOT_FIT = [
    ("1.0", pa.int32(), "not an integer"),
    ("1e2", pa.int32(), "not an integer"),
    ('"1"', pa.int32(), "not an integer"),
    ("true", pa.int32(), "not an integer"),
    ("128", pa.int8(), "out of range of int8"),
    ("99999999999", pa.int32(), "out of range of int32"),
    ("9" * 5000, pa.int64(), "out of range of int64"),
    ("1e400", pa.float64(), "out of range of double"),
    ("1e39", pa.float32(), "out of range of float"),
    ("1e-400", pa.float64(), "too small for double"),
    ("1e-50", pa.float32(), "too small for float"),
    ("9007199254740993", pa.float64(), "integer with more digits than double holds"),
    ("16777217", pa.float32(), "integer with more digits than float holds"),
    ("NaN", pa.float64(), "not finite"),
    ("-Infinity", pa.int64(), "not finite"),
    ("NaN", MONEY, "not finite"),
    ('"1"', pa.float64(), "not a number"),
    ("1.239", MONEY, "decimal with more than 2 fractional digits"),
    ("1e-99999999999", MONEY, "decimal with more than 2 fractional digits"),
    ("1000", MONEY, "out of range of decimal(5, 2)"),
    ("1e999999999", MONEY, "out of range of decimal(5, 2)"),
    ('"\\ud800"', pa.string(), "half of a surrogate pair"),
    ("1", pa.bool_(), "not a boolean"),
    ('"a"', pa.binary(), "not base64"),
    ('"2024-02-30"', pa.date32(), "no such date"),
    ('"2024-01-01T00:00:00"', pa.date32(), "not a date"),
    ("1", pa.date32(), "not a date"),
    ("1704067200", INSTANT, "not a timestamp"),
    ('"99999-01-01T00:00:00Z"', INSTANT, "not a timestamp"),
    ('"0000-01-01"', INSTANT, "no such date or time"),
    ('"2024-01-01T00:00:60Z"', INSTANT, "no such date or time"),
    ('"2024-01-01T00:00:00+05:60"', INSTANT, "no such date or time"),
    ('"0001-01-01T00:00:00+14:00"', INSTANT, "out of range of timestamp"),
    ('"2024-01-01T00:00:00.1234567Z"', INSTANT, "timestamp with more than 6 fractional digits"),
    ('"2024-01-01T00:00:00Z"', LOCAL, "timestamp with a time zone"),
    ("[1, 2.5]", pa.list_(pa.int32()), "item 2: not an integer"),
    ('{"x": 1, "z": 2}', POINT, "field z: no such column"),
    ('{"x": 1, "X": 2}', POINT, "field X: another field matches column x"),
    ('{"k": "v"}', pa.map_(pa.string(), pa.int8()), "entry 1: not an integer"),
    ("1", pa.uint8(), "type uint8 is not supported"),
]


@pytest.mark.parametrize(("text", "type_", "expected"), FITS)
def test_values_that_fit(text, type_, expected):
    value, reason = convert(load(text), type_)
    assert (value, reason) == (expected, None)
    pa.array([value], type_).validate(full=True)


@pytest.mark.parametrize(("text", "type_", "reason"), DOES_NOT_FIT)
def test_values_that_do_not_fit_are_null_with_a_reason(text, type_, reason):
    assert convert(load(text), type_) == (None, reason)


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        (" +7 ", pa.int32(), 7),
        ("TRUE", pa.bool_(), True),
        (".5", pa.float64(), 0.5),
        ("12.5", MONEY, Decimal("12.5")),
        (" 2024-01-01 ", pa.date32(), date(2024, 1, 1)),
        (" kept ", pa.string(), " kept "),
        ("[1]", pa.list_(pa.int32()), [1]),
    ],
)
def test_texts_that_fit(text, type_, expected):
    assert convert_text(text, type_) == (expected, None)


@pytest.mark.parametrize(
    ("text", "type_", "reason"),
    [
        ("", pa.int32(), "not an integer"),
        ("08001", pa.int64(), "a leading zero, which a number does not keep"),
        ("08001", pa.float64(), "a leading zero, which a number does not keep"),
        ("-007.5", pa.decimal128(5, 2), "a leading zero, which a number does not keep"),
        ("1,234", pa.float64(), "not a number"),
        ("١", pa.int32(), "not an integer"),
        ("inf", pa.float64(), "not finite"),
        ("yes", pa.bool_(), "not a boolean"),
        ("[1", pa.list_(pa.int32()), "not JSON: Expecting ',' delimiter at character 3"),
    ],
)
def test_texts_that_do_not_fit(text, type_, reason):
    assert convert_text(text, type_) == (None, reason)


def test_values_of_python_as_columnar_files_have_them():
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert convert(2**40, pa.int32()) == (None, "out of range of int32")
    assert convert(2.5, pa.int64()) == (None, "not an integer")
    assert convert(Decimal("1.25"), MONEY) == (Decimal("1.25"), None)
    assert convert(float("inf"), pa.float64()) == (float("inf"), None)
    assert convert(moment, INSTANT) == (moment, None)
    assert convert(b"x", pa.string()) == (None, "bytes, not text")


@given(st.integers(-(10**20), 10**20))
def test_integers_are_exact_or_out_of_range(number):
    for type_, limit in ((pa.int8(), 2**7), (pa.int64(), 2**63)):
        expected = (number, None) if -limit <= number < limit else (None, f"out of range of {type_}")
        assert convert_text(str(number), type_) == expected


@given(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
)
def test_decimals_are_exact_or_refused(number, kind):
    type_ = pa.decimal128(*kind)
    value, reason = convert_text(str(number), type_)
    fits = -min(number.normalize().as_tuple().exponent, 0) <= kind[1] if len(number.as_tuple().digits) <= 28 else None
    if reason is None:
        assert value == number
        assert pa.array([value], type_)[0].as_py() == number
    elif fits:
        assert abs(number) >= Decimal(10) ** (kind[0] - kind[1])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_doubles_come_back(number):
    assert convert_text(repr(number), pa.float64()) == (number, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_json_is_dumped_as_it_was_loaded(value):
    assert json.loads(dump(load(json.dumps(value)))) == value
    dump(load(json.dumps(value))).encode()


def test_json_keeps_what_no_number_can_hold():
    assert dump(load('{"a": [1e400, 1.50, NaN, -0, "\\ud800"]}')) == '{"a": [1e400, 1.50, "NaN", -0, "\\ud800"]}'


def test_json_has_no_key_twice_and_is_not_too_deep():
    with pytest.raises(BadJson, match='duplicate key "a"'):
        load('{"b": {"a": 1, "\\u0061": 2}}')
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert load(json.dumps("[" * 5000)) == "[" * 5000
    for text in ("[" * (MAX_DEPTH + 1), '{"a":' * 100_000, "[" * 2000 + "]" * 2000):
        with pytest.raises(BadJson, match="nested more than"):
            load(text)


@pytest.mark.parametrize(
    ("text", "current", "expected"),
    [
        ("1", None, "int64"),
        ("99999999999", pa.int32(), "int64"),
        ("99999999999999999999", None, "decimal128(38, 0)"),
        ("1.5", pa.int64(), "double"),
        ("1.239", MONEY, "decimal128(6, 3)"),
        ("1e40", pa.float32(), "double"),
        ('"x"', None, "string"),
        ("true", pa.int32(), "bool"),
        ("null", None, "null"),
        ("[1, 2.5, null]", None, "list<item: double>"),
        ('[{"a": 1}, {"b": "x"}]', None, "list<item: struct<a: int64, b: string>>"),
        ('{"X": 2.5, "new": "2024-01-01"}', POINT, "struct<x: double, y: double, new: string>"),
        ('{"d": "2024-01-01", "n": 1}', pa.struct({"d": pa.date32()}), "struct<d: date32[day], n: int64>"),
        ('{"k": 300}', pa.map_(pa.string(), pa.int8()), "map<string, int64>"),
    ],
)
def test_type_that_would_hold_a_value(text, current, expected):
    assert str(type_of(load(text), current)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", "int64"),
        ("007", "string"),
        ("1.5", "double"),
        ("true", "bool"),
        ("2024-01-01", "date32[day]"),
        ("2024-01-01T00:00:00Z", "timestamp[us, tz=UTC]"),
        ("x", "string"),
    ],
)
def test_type_that_a_text_is_spelled_like(text, expected):
    assert str(type_of_text(text)) == expected


def test_fields_match_columns_exactly_or_by_the_only_name_in_another_case():
    names = FieldNames(["id", "Qty", "qtY"])
    assert names.match(["ID", "Qty"]) == ({"Qty": "Qty", "id": "ID"}, {})
    assert names.match(["id", "ID"]) == ({"id": "id"}, {"ID": "another field matches column id"})
    assert names.match(["iD", "ID"])[1] == dict.fromkeys(["iD", "ID"], "another field matches column id")
    assert names.match(["QTY"]) == ({}, {"QTY": "no such column"})


def test_rows_of_a_bad_file_are_dropped_whenever_they_were_added():
    builder = RowBuilder(pa.schema({"a": pa.int32()}))
    builder.add(1, 1, {"a": 1}, {"new": (load("1"), "no such column")})
    builder.add_bad(1, 2, 10, b"x", "not JSON")
    builder.add(2, 1, {"a": 2}, {"new": (load("1"), "no such column"), "a": ("x", "not an integer")})
    builder.add_bad_file(1, "damaged", b"x" * 500)
    builder.add(1, 3, {"a": 3})
    builder.count(3)
    parsed = builder.build()
    assert parsed.rows["a"].to_pylist() == [2]
    assert parsed.bad.to_pylist() == [
        {"_once_file_index": 1, "_once_line": None, "offset": None, "raw": b"x" * 200, "reason": "damaged"}
    ]
    assert dict(zip(*parsed.counts.to_pydict().values(), strict=True)) == {1: 1, 2: 1, 3: 0}
    assert parsed.drift.to_pylist() == [{"column": "new", "type": "int64", "rows": 1}]
    both = concat([parsed, parsed])
    assert dict(zip(*both.counts.to_pydict().values(), strict=True)) == {1: 2, 2: 2, 3: 0}
    assert both.drift["rows"].to_pylist() == [2]
