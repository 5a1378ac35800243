"""Large files are read in parts, and give what they give as a whole."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.parsing.csv_dialect import dialect_of
from oncelake.sources.arrivals.parsing.csv_fast import ends_with_record
from oncelake.sources.arrivals.parsing.packs import BAD_ROW, DATA, INDEX, KIND, LINE_OF, NUMBER, RAW, ROW, PackReader
from oncelake.sources.arrivals.parsing.records import FileFormat
from oncelake.sources.arrivals.work_list import LINES, ROW_GROUPS, entries_of, find_footers, work_list

SCHEMA = pa.schema({"a": pa.string(), "b": pa.string(), "c": pa.int64()})


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.parts.PART_BYTES", 256)


def entries(path):
    files = pa.table([[str(path)], [path.stat().st_size], [0]], schema=FILES)
    return entries_of(files, "/")


def records(table, fmt, schema):
    reader = PackReader(fmt, schema)
    return pa.Table.from_batches(list(reader(iter(table.to_batches()))), reader.records).to_pylist()


def rows_of(found):
    return sorted((row[DATA] for row in found if row[KIND] == ROW), key=str)


def bad_of(found):
    return sorted((row[NUMBER], row[RAW]) for row in found if row[KIND] == BAD_ROW)


def is_torn(found):
    return any(row[KIND] == BAD_ROW and row[LINE_OF] is None and row[NUMBER] is None for row in found)


def csv_text(choose):
    """Return lines that are mostly in order: quoted texts with line ends, separators and doubled quotes, and some rubbish."""
    fields = ["x", "", "lorem ipsum", '"q"', '"a,b"', '"two\nlines"', '"say ""hi"""', "é", "\r", 'x"y', '"', "z" * 30]
    weights = [9, 3, 9, 3, 3, 2, 2, 2, 0.2, 0.2, 0.2, 2]
    lines = ["a,b,c"]
    for number in range(choose.randrange(20, 60)):
        width = 3 if choose.random() < 0.97 else choose.randrange(1, 6)
        lines.append(",".join([*choose.choices(fields, weights, k=width - 1), str(number)]))
    return "\n".join(lines) + choose.choice(["", "\n", "\r\n"])


def test_csv_in_parts_gives_what_the_whole_file_gives_or_is_read_as_a_whole(tmp_path, small_parts):
    choose, split, path = random.Random(16), 0, tmp_path / "a.csv"
    fmt = FileFormat("csv")
    for _ in range(40):
        content = csv_text(choose).encode()
        if choose.random() < 0.1:
            content = content.replace(b"\xc3\xa9", b"\xe9")
        path.write_bytes((b"\xef\xbb\xbf" if choose.random() < 0.2 else b"") + content)
        whole = entries(path)
        parts = work_list(whole, fmt, LINES, len(SCHEMA))
        found = records(parts.table, fmt, SCHEMA)
        if not parts.split or is_torn(found):
            continue
        split += 1
        expected = records(whole, fmt, SCHEMA)
        assert rows_of(found) == rows_of(expected)
        assert bad_of(found) == bad_of(expected)
    assert split > 10


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a,b\n1,2\n", {}, True),
        ('a,"b\nc"\n', {}, True),
        ('a,"b\n', {}, False),
        ('a,x"b\n', {}, False),
        ('a,"b\\"c"\n', {"escape": "\\"}, False),
        ('#,"x\na,"b"\n', {"comment": "#"}, False),
        ('a,"b\n', {"multiLine": False}, True),
        ('a,"b\n', {"quote": ""}, True),
    ],
)
def test_the_end_of_a_part_is_certain(text, options, expected):
    assert ends_with_record(text.encode(), dialect_of(options)) is expected


def test_text_that_is_no_utf8_is_not_certain():
    assert not ends_with_record(b'"a\xff\nb",c\n', dialect_of({}))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings_are_read_as_a_whole(tmp_path, small_parts, encoding):
    path = tmp_path / "a.json"
    path.write_text('{"c": 1}\n' * 100, encoding=encoding)
    parts = work_list(entries(path), FileFormat("json"), LINES)
    assert not parts.split
    assert len(rows_of(records(parts.table, FileFormat("json"), SCHEMA))) == 100


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe"])
def test_a_mark_in_the_middle_of_a_file_is_not_that_of_a_part(tmp_path, small_parts, mark):
    """Files that were concatenated have such lines; the marks of other encodings would make another text of a part."""
    path, fmt, schema = tmp_path / "a.txt", FileFormat("text"), pa.schema({"value": pa.string()})
    path.write_bytes(b"".join(line.ljust(31, b".") + b"\n" for line in [b"first"] * 9 + [mark + b"next"] * 30))
    whole = records(entries(path), fmt, schema)
    parts = work_list(entries(path), fmt, LINES)
    assert len(parts.table) > 1
    found = records(parts.table, fmt, schema)
    assert is_torn(found) or rows_of(found) == rows_of(whole)


def test_row_groups_are_the_parts_of_parquet(tmp_path, small_parts):
    path, fmt = tmp_path / "a.parquet", FileFormat("parquet")
    pq.write_table(pa.table({"c": range(1000), "d": ["x"] * 1000}), path, row_group_size=300)
    whole = entries(path)
    parts = work_list(whole, fmt, ROW_GROUPS, footers=find_footers(whole))
    assert parts.table.num_rows == 4
    found = records(parts.table, fmt, SCHEMA)
    assert rows_of(found) == rows_of(records(whole, fmt, SCHEMA))
    lines = sorted(row[LINE_OF] for row in found if row[KIND] == ROW)
    assert lines == list(range(1, 1001))


def test_a_damaged_row_group_makes_the_file_bad(tmp_path, small_parts):
    path, fmt = tmp_path / "a.parquet", FileFormat("parquet")
    pq.write_table(pa.table({"c": range(1000)}), path, row_group_size=300, compression="zstd")
    content = bytearray(path.read_bytes())
    content[40:200] = bytes(160)
    path.write_bytes(bytes(content))
    whole = entries(path)
    found = records(work_list(whole, fmt, ROW_GROUPS, footers=find_footers(whole)).table, fmt, SCHEMA)
    assert is_torn(found)
    assert {row[INDEX] for row in found if row[KIND] == BAD_ROW} == {0}
