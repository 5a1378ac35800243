"""Parquet, ORC and Avro: columns by name, cast where nothing is lost, and a damaged file gives no rows at all."""

import base64
import io
import json
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from oncelake.sources.arrivals.parsing.array_casts import cast_array
from oncelake.sources.arrivals.parsing.columnar import parse_columnar
from oncelake.sources.arrivals.parsing.records import FILE, LINE, RESCUED, FileFormat, PackedFile

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.string()})
UTC_TIME = pa.timestamp("us", tz="UTC")
LIMIT = 1 << 26


def parquet(table, **options):
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


def orc_file(table):
    target = io.BytesIO()
    orc.write_table(table, target)
    return target.getvalue()


def avro(rows, codec="null", **fields):
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    target = io.BytesIO()
    fastavro.writer(target, schema, rows, codec=codec)
    return target.getvalue()


WRITERS = {"parquet": parquet, "orc": orc_file}


def parse(kind, *contents, schema=SCHEMA, limit=LIMIT):
    files = [PackedFile(number, f"{number}.{kind}", each) for number, each in enumerate(contents)]
    parsed = parse_columnar(files, FileFormat(kind, {}, limit), schema)
    parsed.rows.validate(full=True)
    rows, bad = parsed.rows[FILE].to_pylist(), parsed.bad[FILE].to_pylist()
    counts = dict(zip(parsed.counts[FILE].to_pylist(), parsed.counts["read"].to_pylist(), strict=True))
    assert counts == {each.index: rows.count(each.index) + bad.count(each.index) for each in files}
    return parsed


def values(parsed, column="x"):
    return parsed.rows[column].to_pylist()


def rescued(parsed, column="x"):
    found = [json.loads(each or "{}").get(column) for each in parsed.rows[RESCUED].to_pylist()]
    return [each and (each["value"], each["reason"]) for each in found]


def drift(parsed):
    return {(row["column"], row["type"]): row["rows"] for row in parsed.drift.to_pylist()}


def reason(parsed):
    assert parsed.rows.num_rows == 0
    [row] = parsed.bad.to_pylist()
    assert (row[LINE], row["offset"]) == (None, None)
    return row["reason"]


def cast(array, type_):
    """Parse a Parquet file with a column x of one type, for a schema in which it is of another."""
    table = pa.table({"id": pa.array(range(len(array))), "x": array})
    return parse("parquet", parquet(table), schema=pa.schema({"id": pa.int64(), "x": type_}))


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_are_matched_by_name(kind):
    write = WRITERS[kind]
    one, other = pa.table({"x": ["a", None], "id": [1, 2]}), pa.table({"ID": [3]})
    parsed = parse(kind, write(one), write(other))
    assert [(row["id"], row["x"], row[FILE], row[LINE]) for row in parsed.rows.to_pylist()] == [
        (1, "a", 0, 1),
        (2, None, 0, 2),
        (3, None, 1, 1),
    ]
    assert parsed.rows[RESCUED].null_count == 3


@pytest.mark.parametrize("kind", WRITERS)
def test_no_rows_are_fine(kind):
    parsed = parse(kind, WRITERS[kind](pa.table({"id": pa.array([], pa.int64())})))
    assert (parsed.rows.num_rows, parsed.bad.num_rows) == (0, 0)
    assert parsed.counts.to_pylist() == [{FILE: 0, "read": 0}]


def test_unknown_columns_are_rescued_with_their_own_types():
    table = pa.table(
        {
            "id": [1, 2],
            "text": ['say "hi"', None],
            "number": pa.array([1.5, float("nan")]),
            "money": pa.array([Decimal("12.30"), None]),
            "at": pa.array([datetime(2024, 3, 15, 10, 0, 0, 5), None], pa.timestamp("ns")),
            "raw": pa.array([b"\x00\xff", None]),
            "deep": pa.array([{"a": [1, None]}, None]),
            "small": pa.array([7, None], pa.uint8()),
            "nothing": pa.nulls(2),
        }
    )
    parsed = parse("parquet", parquet(table))
    first, second = (json.loads(each) for each in parsed.rows[RESCUED].to_pylist())
    assert {name: each["value"] for name, each in first.items()} == {
        "text": 'say "hi"',
        "number": 1.5,
        "money": 12.3,
        "at": "2024-03-15 10:00:00.000005000",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "deep": {"a": [1, None]},
        "small": 7,
    }
    assert {each["reason"] for each in first.values()} == {"no such column"}
    assert {name: each["value"] for name, each in second.items()} == {"number": "nan"}
    assert drift(parsed) == {
        ("text", "string"): 1,
        ("number", "double"): 2,
        ("money", "decimal128(4, 2)"): 1,
        ("at", "timestamp[us]"): 1,
        ("raw", "binary"): 1,
        ("deep", "struct<a: list<item: int64>>"): 1,
        ("small", "int16"): 1,
    }


@pytest.mark.parametrize(
    ("array", "type_", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1, 2], pa.int64()), pa.int8(), [1, 2]),
        (pa.array([0.1], pa.float32()), pa.float64(), [0.10000000149011612]),
        (pa.array([float("inf"), 0.5]), pa.float32(), [float("inf"), 0.5]),
        (pa.array([3.0, None]), pa.int64(), [3, None]),
        (pa.array([12, -3]), pa.decimal128(4, 2), [Decimal("12.00"), Decimal("-3.00")]),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 3)), pa.decimal128(4, 2), [Decimal("1.50")]),
        (pa.array([Decimal(3)], pa.decimal128(9, 0)), pa.int32(), [3]),
        (pa.array([1 << 53]), pa.float64(), [float(1 << 53)]),
        (pa.array(["a", None]).dictionary_encode(), pa.string(), ["a", None]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array([b"a"]), pa.string(), ["a"]),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("ms")), UTC_TIME, [datetime(2024, 1, 1, tzinfo=UTC)]),
        (pa.array(["2024-03-15"]), pa.date32(), [date(2024, 3, 15)]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.int64()), [[1], None, []]),
        (
            pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)], None],
        ),
        (pa.array([{"A": 1}, None]), pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": None}, None]),
        (pa.nulls(2), pa.int64(), [None, None]),
    ],
)
def test_what_fits_is_cast(array, type_, expected):
    parsed = cast(array, type_)
    assert values(parsed) == expected
    assert parsed.rows[RESCUED].null_count == len(array)
    assert drift(parsed) == {}


@pytest.mark.parametrize(
    ("array", "type_", "kept", "lost", "why", "needed"),
    [
        (pa.array([1, 300]), pa.int8(), [1, None], 300, "out of range of int8", "int64"),
        (pa.array([1, 2**64 - 1], pa.uint64()), pa.int64(), [1, None], 2**64 - 1, "out of range", "decimal128(20, 0)"),
        (pa.array([1.0, 1.5]), pa.int64(), [1, None], 1.5, "not an integer", "double"),
        (pa.array([1.0, 1e300]), pa.int64(), [1, None], 1e300, "out of range", "double"),
        (pa.array([0.5, 0.1]), pa.float32(), [0.5, None], 0.1, "more digits", "double"),
        (pa.array([1, 2**53 + 1]), pa.float64(), [1.0, None], 2**53 + 1, "more digits", "int64"),
        (pa.array([1, 100]), pa.decimal128(4, 2), [Decimal(1), None], 100, "out of range of decimal(4, 2)", "int64"),
        (
            pa.array([Decimal("1.500"), Decimal("1.239")]),
            pa.decimal128(4, 2),
            [Decimal("1.50"), None],
            1.239,
            "more than 2 fractional digits",
            "decimal128(4, 3)",
        ),
        (pa.array([None, "a"]), pa.int64(), [None, None], "a", "not an integer", "string"),
        (pa.array([None, 1]), pa.string(), [None, None], 1, "int64, not string", "int64"),
        (pa.array([None, date(2024, 1, 1)]), UTC_TIME, [None, None], "2024-01-01", "not a timestamp", "date32[day]"),
        (pa.array([None, 1]), UTC_TIME, [None, None], 1, "int64, not a timestamp", "int64"),
        (
            pa.array([0, 10**18], UTC_TIME),
            UTC_TIME,
            [datetime(1970, 1, 1, tzinfo=UTC), None],
            10**18,
            "out of range",
            None,
        ),
        (pa.array([0, 2**30], pa.date32()), pa.date32(), [date(1970, 1, 1), None], 2**30, "out of range of date", None),
        (
            pa.array([1000, 1001], pa.timestamp("ns")),
            pa.timestamp("us"),
            [datetime(1970, 1, 1, 0, 0, 0, 1), None],
            "1970-01-01 00:00:00.000001001",
            "more than 6 fractional digits",
            None,
        ),
        (pa.array(["2024-01-01", "2024-02-30"]), pa.date32(), [date(2024, 1, 1), None], "2024-02-30", "no such", None),
        (pa.array([b"a", b"\xff"]), pa.string(), ["a", None], "/w==", "invalid UTF-8", "binary"),
        (
            pa.array([[1], [2, 300]]),
            pa.list_(pa.int8()),
            [[1], None],
            [2, 300],
            "item: out of range",
            "list<item: int64>",
        ),
        (
            pa.array([{"a": 1}, {"a": 300}]),
            pa.struct({"a": pa.int8()}),
            [{"a": 1}, None],
            {"a": 300},
            "field a: out of range",
            "struct<a: int64>",
        ),
        (
            pa.array([{"a": 1, "b": None}, {"a": 1, "b": "new"}]),
            pa.struct({"a": pa.int64()}),
            [{"a": 1}, None],
            {"a": 1, "b": "new"},
            "field b: no such column",
            "struct<a: int64, b: string>",
        ),
        (
            pa.array([[("k", 1)], [("l", 300)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.int8()),
            [[("k", 1)], None],
            [["l", 300]],
            "entry: out of range",
            "map<string, int64>",
        ),
        (pa.array([{"a": 1}, {"a": 2}]), pa.string(), [None, None], {"a": 2}, "not string", "struct<a: int64>"),
    ],
)
def test_what_does_not_fit_is_rescued_and_the_rows_are_kept(array, type_, kept, lost, why, needed):
    parsed = cast(array, type_)
    assert values(parsed) == kept
    value, said = rescued(parsed)[1]
    assert value == lost
    assert why in said
    assert drift(parsed).keys() == ({("x", needed)} if needed else set())


def test_nan_and_infinity_stay():
    found = values(cast(pa.array([float("nan"), float("inf"), -0.0]), pa.float64()))
    assert [str(each) for each in found] == ["nan", "inf", "-0.0"]


def test_an_instant_is_no_local_time():
    parsed = cast(pa.array([datetime(2024, 1, 1, tzinfo=UTC)], UTC_TIME), pa.timestamp("us"))
    assert values(parsed) == [None]
    assert rescued(parsed)[0][1] == "timestamp with a time zone"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=12),
    st.sampled_from([pa.int8(), pa.int32(), pa.float32(), pa.float64(), pa.decimal128(3, 1), pa.decimal128(38, 2)]),
)
def test_integers_are_kept_exactly_or_have_a_reason(integers, type_):
    found, reasons = cast_array(pa.array(integers, pa.int64()), type_)
    told = [None] * len(integers) if reasons is None else reasons.to_pylist()
    for given_, value, why in zip(integers, found.to_pylist(), told, strict=True):
        assert (value is None) == (given_ is None or why is not None)
        assert value is None or value == given_


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_old_timestamps_of_96_bits_keep_years_and_nanoseconds(zone):
    type_ = pa.timestamp("us", tz=zone)

    def read(values, unit):
        table = pa.table({"x": pa.array(values, pa.timestamp(unit))})
        return parse("parquet", parquet(table, use_deprecated_int96_timestamps=True), schema=pa.schema({"x": type_}))

    far, near = datetime(1600, 1, 1, tzinfo=UTC if zone else None), datetime(2024, 1, 1, tzinfo=UTC if zone else None)
    assert values(read([datetime(1600, 1, 1), datetime(2024, 1, 1)], "us")) == [far, near]
    assert "fractional" in rescued(read([1_700_000_000_123_456_789], "ns"))[0][1]


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_a_damaged_file_gives_no_rows_and_the_others_are_unaffected(kind):
    table = pa.table({"id": list(range(1000)), "x": [f"text {number}" for number in range(1000)]})
    good = avro(table.to_pylist(), id="long", x="string") if kind == "avro" else WRITERS[kind](table)
    damaged = [b"", b"rubbish", good[:4], good[: len(good) // 2], good[:-1], good[1:], good[:-40] + bytes(40)]
    parsed = parse(kind, good, *damaged, good)
    assert [row[FILE] for row in parsed.bad.to_pylist()] == list(range(1, len(damaged) + 1))
    assert all(row["reason"] and row[LINE] is None for row in parsed.bad.to_pylist())
    assert values(parsed) == [f"text {number}" for number in range(1000)] * 2


def test_a_damaged_page_is_found_by_its_checksum():
    good = parquet(
        pa.table({"x": ["abcdefgh"] * 9}), compression="none", use_dictionary=False, write_page_checksum=True
    )
    # Two values in a row are in the page, and not in the statistics, which have no checksum.
    damaged = good.replace(b"abcdefgh\x08\0\0\0abcdefgh", b"abcdefgh\x08\0\0\0abcdefgX", 1)
    assert damaged != good
    assert "CRC" in reason(parse("parquet", damaged))


def test_text_that_is_not_utf8_is_rescued():
    content = parquet(pa.table({"id": [1, 2], "x": ["Juergen", "ok"]}), compression="none", use_dictionary=False)
    parsed = parse("parquet", content.replace(b"Juergen", b"J\xfcrgen!"))
    assert values(parsed) == [None, "ok"]
    assert rescued(parsed)[0] == (base64.b64encode(b"J\xfcrgen!").decode(), "invalid UTF-8")


def test_two_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    assert "more than once" in reason(parse("parquet", parquet(table)))


@pytest.mark.parametrize("kind", [*WRITERS, "avro"])
def test_files_that_expand_beyond_the_limit_are_refused(kind):
    if kind == "avro":
        content = avro([{"x": "a" * 100}] * 20_000, "deflate", x="string")
    else:
        content = WRITERS[kind](pa.table({"x": ["a" * 100] * 20_000, "id": [1] * 20_000}))
    assert parse(kind, content).rows.num_rows == 20_000
    assert "expands" in reason(parse(kind, content, limit=10_000))


def test_avro_values():
    rows = [{"id": 1, "x": "a", "u": 4711}, {"id": 2, "x": None, "u": "text"}]
    parsed = parse("avro", avro(rows, id="int", x=["null", "string"], u=["string", "long"]))
    assert values(parsed) == ["a", None]
    assert [each[0] for each in rescued(parsed, "u")] == [4711, "text"]
    assert drift(parsed) == {("u", "int64"): 1, ("u", "string"): 1}


def test_avro_logical_types():
    fields = {
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "amount": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        "tags": {"type": "array", "items": "string"},
        "deep": {"type": "record", "name": "D", "fields": [{"name": "a", "type": ["null", "int"]}]},
    }
    row = {
        "day": date(2024, 3, 15),
        "at": datetime(2024, 3, 15, 10, tzinfo=UTC),
        "amount": Decimal("12.34"),
        "tags": ["a"],
        "deep": {"a": None},
    }
    types = (pa.date32(), UTC_TIME, pa.decimal128(6, 2), pa.list_(pa.string()), pa.struct({"a": pa.int64()}))
    schema = pa.schema(list(zip(row, types, strict=True)))
    parsed = parse("avro", avro([row], **fields), schema=schema)
    assert parsed.rows.drop_columns([FILE, LINE, RESCUED]).to_pylist() == [row]
    assert parsed.rows[RESCUED].to_pylist() == [None]


def test_avro_nanoseconds_are_no_microseconds():
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    parsed = parse("avro", avro([{"x": 1_700_000_000_123_456_789}], x=kind), schema=pa.schema({"x": UTC_TIME}))
    assert rescued(parsed) == [(1_700_000_000_123_456_789, "int64, not a timestamp")]


def test_avro_without_its_library_says_what_to_install():
    code = """
import sys
import uuid
sys.modules["fastavro"] = None
import pyarrow as pa
from oncelake.sources.arrivals.parsing.columnar import parse_columnar
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile
parsed = parse_columnar([PackedFile(0, "a.avro", b"Obj\\x01")], FileFormat("avro"), pa.schema({"id": pa.int64()}))
print(parsed.bad["reason"][0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "oncelake[avro]"' in done.stdout


def test_times_durations_and_uuids_are_written_as_text():
    texts = pa.schema({"t": pa.string(), "d": pa.string(), "u": pa.string()})
    sink = io.BytesIO()
    moment, length = time(1, 2, 3, 4000), timedelta(hours=25)
    pq.write_table(pa.table({"t": [moment, None], "d": pa.array([length, None], pa.duration("us"))}), sink)
    parsed = parse_columnar([PackedFile(0, "a.parquet", sink.getvalue())], FileFormat("parquet"), texts)
    assert parsed.rows.select(["t", "d"]).to_pylist() == [
        {"t": "01:02:03.004000", "d": "1 day, 1:00:00"},
        {"t": None, "d": None},
    ]
    some = uuid.uuid4()
    fields = [
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
    ]
    avro = io.BytesIO()
    fastavro.writer(avro, {"type": "record", "name": "r", "fields": fields}, [{"u": some, "t": moment}])
    parsed = parse_columnar([PackedFile(0, "a.avro", avro.getvalue())], FileFormat("avro"), texts)
    assert parsed.rows.select(["t", "u"]).to_pylist() == [{"t": "01:02:03.004000", "u": str(some)}]
    assert parsed.rows[RESCUED].null_count == 1
