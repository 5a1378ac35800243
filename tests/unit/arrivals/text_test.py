"""Text and binary files, encodings, and what `parse` does with files that no parser expects."""

import pyarrow as pa
import pytest

from oncelake.sources.arrivals.parsing import parse as parse_module
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile

VALUE = pa.schema({"value": pa.string()})
CONTENT = pa.schema({"content": pa.binary()})


def parse_one(content, kind="text", schema=VALUE, name="f.txt", **options):
    return parse([PackedFile(7, name, content)], FileFormat(kind, options), schema)


def counts(parsed):
    return dict(zip(*parsed.counts.to_pydict().values(), strict=True))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\rb\r\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc"]),
        (b"x\0y\n", ["x\0y"]),
        (b"  a \n", ["  a "]),
    ],
)
def test_one_row_for_each_line(content, lines):
    parsed = parse_one(content)
    assert parsed.rows["value"].to_pylist() == lines
    assert parsed.rows["_once_line"].to_pylist() == list(range(1, len(lines) + 1))
    assert counts(parsed) == {7: len(lines)}


def test_line_that_is_not_utf8_is_bad_with_its_place():
    parsed = parse_one("ä\n".encode() + b"caf\xe9\r\nc\n")
    assert parsed.rows["value"].to_pylist() == ["ä", "c"]
    assert parsed.rows["_once_line"].to_pylist() == [1, 3]
    (bad,) = parsed.bad.to_pylist()
    assert (bad["_once_line"], bad["offset"], bad["raw"]) == (2, 3, b"caf\xe9")
    assert "not valid UTF-8 at byte 4" in bad["reason"]
    assert counts(parsed) == {7: 3}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_encoding_is_found_by_its_mark(encoding):
    assert parse_one("ä\nb\n".encode(encoding)).rows["value"].to_pylist() == ["ä", "b"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-16", "UTF-8"])
def test_encoding_is_an_option(encoding):
    assert parse_one("ä\nb\n".encode(encoding), encoding=encoding).rows["value"].to_pylist() == ["ä", "b"]


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        ("ab\n".encode("utf-16")[:-1], {}, "not valid utf-16-le"),
        (b"\x81\n", {"encoding": "cp1252"}, "not valid cp1252"),
        (b"a\n", {"encoding": "klingon"}, "unknown encoding klingon"),
        (b"a\n", {"encoding": "hex"}, "encoding"),
    ],
)
def test_file_that_is_not_valid_in_its_encoding_is_bad(content, options, reason):
    parsed = parse_one(content, **options)
    (bad,) = parsed.bad.to_pylist()
    assert bad["_once_line"] is None
    assert reason in bad["reason"]
    assert parsed.rows.num_rows == 0
    assert counts(parsed) == {7: 1}


def test_text_without_a_column_for_it_is_rescued():
    parsed = parse_one(b"a\n", schema=pa.schema({"other": pa.int32()}))
    assert parsed.rows["_rescued"].to_pylist() == ['{"value": {"value": "a", "reason": "no such column"}}']
    assert parsed.drift.to_pylist() == [{"column": "value", "type": "string", "rows": 1}]


@pytest.mark.parametrize("content", [b"", b"\0\xff", b"\x1f\x8b rubbish"])
def test_binary_is_one_row_for_each_file_as_it_is(content):
    parsed = parse_one(content, "binary", CONTENT, name="f.gz")
    assert parsed.rows["content"].to_pylist() == [content]
    assert counts(parsed) == {7: 1}


def test_no_files_are_no_rows():
    assert parse([], FileFormat("text"), VALUE).rows.num_rows == 0
    with pytest.raises(ValueError, match="none of json, csv"):
        parse([], FileFormat("xml"), VALUE)


def test_file_that_makes_a_parser_fail_is_bad_and_the_others_are_read():
    files = [PackedFile(index, "f", b"%d\n" % index) for index in range(9)]

    def fails_on_five(files, fmt, schema):
        if any(file.index == 5 for file in files):
            raise MemoryError("too much")
        return parse(files, fmt, schema)

    parts = list(parse_module._parse(files, FileFormat("text"), VALUE, fails_on_five))
    bad = [row for part in parts for row in part.bad.to_pylist()]
    assert [(row["_once_file_index"], row["reason"]) for row in bad] == [(5, "cannot be parsed: MemoryError: too much")]
    assert [value for part in parts for value in part.rows["value"].to_pylist()] == list("01234678")
