"""CSV: by the names of the header, every record a row or a bad row with its bytes."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from oncelake.sources.arrivals.parsing.csv_dialect import Dialect
from oncelake.sources.arrivals.parsing.csv_records import Scanner
from oncelake.sources.arrivals.parsing.csv_rows import PACK, SEGMENT, parse_csv
from oncelake.sources.arrivals.parsing.records import FILE, LINE, RESCUED, FileFormat, PackedFile

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "qty": pa.int32()})
COVID = Path("/work/shared/data/covid-daily")


def parse(*contents, schema=SCHEMA, **options):
    files = [
        PackedFile(number, f"{number}.csv", each.encode() if isinstance(each, str) else each)
        for number, each in enumerate(contents)
    ]
    parsed = parse_csv(files, FileFormat("csv", options), schema)
    rows, bad = parsed.rows[FILE].to_pylist(), parsed.bad[FILE].to_pylist()
    counts = dict(zip(parsed.counts[FILE].to_pylist(), parsed.counts["read"].to_pylist(), strict=True))
    assert counts == {each.index: rows.count(each.index) + bad.count(each.index) for each in files}
    return parsed


def values(parsed):
    return [tuple(row.values()) for row in parsed.rows.drop_columns([FILE, LINE, RESCUED]).to_pylist()]


def rescued(parsed):
    return [each and json.loads(each) for each in parsed.rows[RESCUED].to_pylist()]


def drift(parsed):
    return {(row["column"], row["type"]): row["rows"] for row in parsed.drift.to_pylist()}


def bad(parsed):
    return [(row[LINE], row["offset"], row["raw"], row["reason"]) for row in parsed.bad.to_pylist()]


def bad_file(parsed):
    assert parsed.rows.num_rows == 0
    [(line, offset, _, reason)] = bad(parsed)
    assert (line, offset) == (None, None)
    return reason


def test_columns_are_matched_by_name_in_each_file():
    parsed = parse("id,name,qty\n1,a,2\n", "qty,ID,Name\n4,3,b\n", "name\nc\n")
    assert sorted(values(parsed), key=str) == [(1, "a", 2), (3, "b", 4), (None, "c", None)]
    assert parsed.rows[RESCUED].null_count == 3


def test_a_column_that_the_schema_lacks_is_rescued():
    parsed = parse('id,colour,name\n1,7,a\n2,01234,b\n3,,c\n4,"say ""hi""",d\n')
    assert values(parsed) == [(number, name, None) for number, name in zip(range(1, 5), "abcd", strict=True)]
    found = [each and each["colour"] for each in rescued(parsed)]
    assert [each and each["value"] for each in found] == ["7", "01234", None, 'say "hi"']
    assert {each["reason"] for each in found if each} == {"no such column"}
    assert drift(parsed) == {("colour", "int64"): 1, ("colour", "string"): 2}


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("12", "int64"),
        ("-0.5", "double"),
        ("1e3", "double"),
        ("True", "bool"),
        ("2024-02-29", "date32[day]"),
        ("2023-02-29", "string"),
        ("2024-02-29T10:00:00", "timestamp[us, tz=UTC]"),
        ("007", "string"),
    ],
)
def test_the_type_of_an_unknown_column_is_told_by_its_texts(text, type_):
    assert drift(parse(f"id,new\n1,{text}\n")) == {("new", type_): 1}


@pytest.mark.parametrize(
    ("type_", "text", "reason", "needed"),
    [
        (pa.int64(), "abc", "not an integer", None),
        (pa.int64(), "1.5", "not an integer", "double"),
        (pa.int32(), "99999999999", "out of range of int32", "int64"),
        (pa.decimal128(5, 2), "1.239", "decimal with more than 2 fractional digits", "decimal128(6, 3)"),
        (pa.decimal128(5, 2), "12345", "out of range of decimal(5, 2)", "decimal128(7, 2)"),
        (pa.float64(), "1e400", "out of range of double", None),
        (pa.float64(), "NaN", "not finite", None),
        (pa.date32(), "2024-02-30", "no such date", None),
        (pa.date32(), "99999-01-01", "not a date", None),
        (pa.timestamp("us", tz="UTC"), "99999-01-01 00:00:00", "not a timestamp", None),
        (pa.timestamp("us", tz="UTC"), "1", "not a timestamp", "int64"),
        (pa.bool_(), "yes", "not a boolean", None),
    ],
)
def test_an_unreadable_value_is_rescued_with_the_reason(type_, text, reason, needed):
    parsed = parse(f"id,x\n1,{text}\n", schema=pa.schema({"id": pa.int64(), "x": type_}))
    assert values(parsed) == [(1, None)]
    assert rescued(parsed) == [{"x": {"value": text, "reason": reason}}]
    assert drift(parsed) == ({("x", needed): 1} if needed else {})


def test_names_that_differ_by_case_do_not_overwrite_each_other():
    parsed = parse("id,NAME,name\n1,HIGH,low\n")
    assert values(parsed) == [(1, "low", None)]
    assert rescued(parsed)[0]["NAME"]["value"] == "HIGH"


def test_too_few_and_too_many_fields_are_bad_rows():
    parsed = parse("id,name,qty\n1,a,1\n2,b\n3,c,3,4\n4,d,4\n")
    assert values(parsed) == [(1, "a", 1), (4, "d", 4)]
    assert parsed.rows[LINE].to_pylist() == [2, 5]
    assert bad(parsed) == [
        (3, 18, b"2,b", "too few fields: 2 instead of 3"),
        (4, 22, b"3,c,3,4", "too many fields: 4 instead of 3"),
    ]


def test_an_unbalanced_quote_is_one_bad_line():
    parsed = parse('id,name,qty\n1,a,1\n2,"open,2\n3,c,3\n4,"d",4\n')
    assert values(parsed) == [(1, "a", 1), (3, "c", 3), (4, "d", 4)]
    assert bad(parsed) == [(3, 18, b'2,"open,2', "text after a closing quote")]


def test_a_quote_that_is_never_closed_does_not_swallow_the_rest():
    parsed = parse('id,name,qty\n1,"open,1\n2,b,2\n3,c,3\n')
    assert values(parsed) == [(2, "b", 2), (3, "c", 3)]
    assert bad(parsed) == [(2, 12, b'1,"open,1', "unbalanced quote, opened and never closed")]


def test_text_after_a_closing_quote_is_bad():
    assert bad(parse('id,name\n1,"a"b\n2,c\n')) == [(2, 8, b'1,"a"b', "text after a closing quote")]


def test_quotes_that_match_nowhere_take_no_quadratic_time():
    line = b'x","y\n'
    parsed = parse(b"id,name\n" + line * 50_000)
    raw = b"\n".join(row[2].rstrip(b"\n") for row in bad(parsed))
    assert raw + b"\n" == line * 50_000
    assert "remaining" in bad(parsed)[-1][3]
    assert parsed.rows.num_rows == 0


def test_a_cut_at_the_end_looks_truncated():
    for content in ("id,name\n1,a\n2", 'id,name\n1,a\n2,"b'):
        [(line, _, _, reason)] = bad(parse(content))
        assert line == 3
        assert reason.endswith("the file looks truncated")


def test_invalid_utf8_and_nul_are_bad_rows():
    parsed = parse(b"id,name\n1,J\xfcrgen\n2,b\n3,a\0b\n")
    assert values(parsed) == [(2, "b", None)]
    assert bad(parsed) == [(2, 8, b"1,J\xfcrgen", "invalid UTF-8"), (4, 21, b"3,a\0b", "raw NUL byte")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("id,name,id\n1,a,2\n", "more than once"),
        ("1,a,2\n2,b,3\n", "no header"),
        ('"id,name\n1,a\n', "header: unbalanced quote"),
        (b"id,na\xffme\n1,a\n", "header: invalid UTF-8"),
        ("id,name\n1,a\n".encode("utf-16")[:-1], "utf-16"),
    ],
)
def test_a_file_without_a_usable_header_is_bad(content, reason):
    assert reason in bad_file(parse(content))


def test_a_bad_file_does_not_touch_the_others():
    parsed = parse("id,name\n1,a\n", "id,id\n1,2\n", "id,name\n2,b,c\n3,c\n")
    assert values(parsed) == [(1, "a", None), (3, "c", None)]
    assert [(row[FILE], row[LINE]) for row in parsed.bad.to_pylist()] == [(1, None), (2, 2)]


def test_options_that_make_no_sense_are_told_for_each_file():
    assert "header" in bad_file(parse("id\n1\n", header="maybe"))
    assert "differ" in bad_file(parse("id\n1\n", sep='"'))
    assert "unknown encoding" in bad_file(parse("id\n1\n", encoding="klingon"))


@pytest.mark.parametrize("content", ["", "\n\n", "id,name", "id,name\n", "id,name\r\n\r\n", b"\xef\xbb\xbf"])
def test_no_records_are_no_rows(content):
    parsed = parse(content)
    assert (parsed.rows.num_rows, parsed.bad.num_rows) == (0, 0)
    assert parsed.counts.to_pylist() == [{FILE: 0, "read": 0}]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_understood(encoding):
    assert values(parse("id,name\n1,Köln\n".encode(encoding))) == [(1, "Köln", None)]


def test_the_offset_counts_the_byte_order_mark():
    content = b"\xef\xbb\xbfid,name\n1\n"
    [(_, offset, raw, _)] = bad(parse(content))
    assert content[offset : offset + len(raw)] == raw == b"1"


def test_options():
    assert values(parse("id;name\n1;a,b\n", DELIMITER=";")) == [(1, "a,b", None)]
    assert values(parse("id||name\n1||a|b\n", sep="||")) == [(1, "a|b", None)]
    assert values(parse("id,name\n1,'a,b'\n", quote="'")) == [(1, "a,b", None)]
    assert values(parse('id,name\n1,"a\\"b\\\\"\n', escape="\\")) == [(1, 'a"b\\', None)]
    assert values(parse("# x\nid,name\n# y\n1,a\n", comment="#")) == [(1, "a", None)]
    assert values(parse("id,name\n1,NA\nNA,\n", nullValue="NA")) == [(1, None, None), (None, None, None)]
    assert values(parse("id,name\n1,K\xf6ln\n".encode("latin-1"), charset="ISO-8859-1")) == [(1, "Köln", None)]
    trim = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": True}
    assert values(parse('id , name\n 1 ,  a b \n2, " c " \n', **trim)) == [(1, "a b", None), (2, " c ", None)]
    assert values(parse('id,name\n1,"a"\n', quote="")) == [(1, '"a"', None)]


def test_without_a_header_columns_are_by_position():
    parsed = parse("1,a,2\n3,b\n", header=False)
    assert values(parsed) == [(1, "a", 2)]
    assert bad(parsed) == [(2, 6, b"3,b", "too few fields: 2 instead of 3")]


def test_newlines_in_quotes():
    content = 'id,name\n1,"two\nlines"\n2,b\n'
    parsed = parse(content)
    assert values(parsed) == [(1, "two\nlines", None), (2, "b", None)]
    assert parsed.rows[LINE].to_pylist() == [2, 4]
    parsed = parse(content, multiLine="false")
    assert values(parsed) == [(2, "b", None)]
    assert [(row[0], row[2]) for row in bad(parsed)] == [(2, b'1,"two'), (3, b'lines"')]


def test_null_and_empty_text():
    parsed = parse('id,name,qty\n1,,\n2,"",""\n')
    assert values(parsed) == [(1, None, None), (2, "", None)]
    assert rescued(parsed) == [None, None]


def test_a_large_file_with_bad_lines_is_read_as_strictly():
    rows = [f'{number},"say ""hi""\n{number}",{number % 7}\n' for number in range(60_000)]
    rows[40_000] = '40000,"open,1\n'
    rows[50_000] = "50000,short\n"
    content = ("id,name,qty\n" + "".join(rows)).encode()
    assert len(content) > SEGMENT
    parsed = parse(content)
    records = list(Scanner(content, Dialect()).records(len(content), 3))[1:]
    assert [row[:3] for row in bad(parsed)] == [
        (each.line, each.start, content[each.start : each.end]) for each in records if each.reason
    ]
    good = {
        each.line: (int(each.fields[0]), each.fields[1], int(each.fields[2])) for each in records if not each.reason
    }
    assert dict(zip(parsed.rows[LINE].to_pylist(), values(parsed), strict=True)) == good
    # The other line of a record whose first line is bad is by itself no record.
    assert (parsed.rows.num_rows, parsed.bad.num_rows) == (59_998, 2)


def test_many_files_are_read_as_each_by_itself():
    contents = [f"id,name,qty\n{number},x{number},{number % 100}\n" for number in range(3000)]
    contents[17], contents[2000] = "id,name,qty\n1,2\n5,y,6\n", 'id,name\n7,"z'
    parsed = parse(*contents)
    found = dict(zip(parsed.rows[FILE].to_pylist(), values(parsed), strict=True))
    assert found[17] == (5, "y", 6)
    assert all(
        found[number] == (number, f"x{number}", number % 100) for number in range(3000) if number not in (17, 2000)
    )
    assert [(row[FILE], row[LINE]) for row in parsed.bad.to_pylist()] == [(17, 2), (2000, 2)]
    assert sum(map(len, contents)) < PACK


@pytest.mark.skipif(not COVID.exists(), reason="the data is not here")
def test_real_headers_that_changed_lose_nothing():
    names = sorted(COVID.glob("*.csv"))[::6]
    contents = [each.read_bytes() for each in names]
    schema = pa.schema({"Confirmed": pa.int64(), "Lat": pa.float64(), "Country_Region": pa.string()})
    parsed = parse(*contents, schema=schema)
    assert parsed.bad.num_rows == 0
    seen = set()
    rows = parsed.rows.to_pylist()
    places = {(row[FILE], row[LINE]): row for row in rows}
    for number, content in enumerate(contents):
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        seen.add(tuple(reader.fieldnames))
        for line, expected in enumerate(reader, 2):
            row = places.pop((number, line))
            lost = json.loads(row[RESCUED] or "{}")
            for name, text in expected.items():
                found = row[name] if name in schema.names and name not in lost else lost.get(name, {}).get("value")
                assert found == (type(found)(text) if text else None)
    assert not places
    assert len(seen) == 3
