"""Records that are too long for a row, and files that are too large for a task."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelake.sources.arrivals.declaration import parse_arrivals
from oncelake.sources.arrivals.parsing import packs
from oncelake.sources.arrivals.parsing.long_records import (
    KEPT_BYTES,
    MAX_RECORD_BYTES,
    is_too_long,
    runs_of_lines,
)
from oncelake.sources.arrivals.parsing.packs import BATCH_BYTES, bounded_batches
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})
TEXT = pa.schema({"value": pa.string()})
LONG = b"x" * (MAX_RECORD_BYTES + 1)
DOCUMENTS = {"multiLine": True}


def parse_one(name, content, kind, schema=SCHEMA, **options):
    parsed = parse([PackedFile(0, name, content)], FileFormat(kind, options), schema)
    assert sum(parsed.counts["read"].to_pylist()) == parsed.rows.num_rows + parsed.bad.num_rows
    return parsed, parsed.bad.to_pylist()


@pytest.mark.parametrize(
    ("kind", "content", "line", "offset", "schema"),
    [
        ("json", b'{"id": 1}\n%b\r\n{"id": 2}\n' % LONG, 2, 10, SCHEMA),
        ("json", b'{"id": 1}\n{"id": 2}\n{"v": "%b"}' % LONG, 3, 20, SCHEMA),
        ("json", b'{"id": 1}\r%b\r{"id": 2}' % LONG, 2, 10, SCHEMA),
        ("csv", b"id,v\n1,a\n2,%b\n3,c\n" % LONG, 3, 9, SCHEMA),
        ("csv", b'id,v\n1,a\n2,"%b\n"\n3,c\n' % LONG, 3, 9, SCHEMA),
        ("text", b"a\n%b\nc\n" % LONG, 2, 2, TEXT),
    ],
)
def test_a_long_record_is_bad_by_itself(kind, content, line, offset, schema):
    parsed, (bad,) = parse_one(f"a.{kind}", content, kind, schema)
    assert parsed.rows.num_rows == 2
    assert (bad["_once_line"], bad["offset"]) == (line, offset)
    assert bad["raw"] == content[offset : offset + KEPT_BYTES]
    assert is_too_long(bad["reason"])
    assert f"the limit of a row is {MAX_RECORD_BYTES:,}; the first {KEPT_BYTES:,} bytes" in bad["reason"]


def test_a_record_of_the_limit_is_a_row():
    content = b'{"id": 1}\n' + json.dumps({"v": "x" * (MAX_RECORD_BYTES - 9)}).encode() + b'\n{"id": 2}\n'
    parsed, bad = parse_one("a.json", content, "json")
    assert (parsed.rows.num_rows, bad) == (3, [])


def test_a_small_bomb_is_one_short_entry():
    _, (bad,) = parse_one("a.json.gz", gzip.compress(b"0" * 40_000_000), "json")
    assert bad["reason"].startswith("too long: 40,000,000 bytes")
    assert len(bad["raw"]) == KEPT_BYTES


def test_long_values_of_columnar_files_and_documents_have_no_text():
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3], "v": ["a", LONG.decode(), None]}), sink)
    document = b'[{"id": 1}, {"v": "%b"}, {"id": 3}]' % (LONG * 5)
    for kind, content, options in (("parquet", sink.getvalue(), {}), ("json", document, DOCUMENTS)):
        parsed, (bad,) = parse_one(f"a.{kind}", content, kind, **options)
        assert parsed.rows["_once_line"].to_pylist() == [1, 3]
        assert (bad["_once_line"], bad["raw"]) == (2, None)
        assert is_too_long(bad["reason"])


def test_a_file_that_is_one_row_is_bad_as_a_whole():
    _, (document,) = parse_one("a.json", b'{"v": "%b"}' % LONG, "json", **DOCUMENTS)
    _, (binary,) = parse_one("a.bin", LONG, "binary", pa.schema({"content": pa.binary()}))
    for bad in (document, binary):
        assert (bad["_once_line"], len(bad["raw"])) == (None, 200)
        assert is_too_long(bad["reason"])


def test_lines_are_found_across_runs():
    lines = b"".join(b"%07d\r\n" % number for number in range(2_500_000)) + LONG + b"\r\n"
    runs = list(runs_of_lines(lines))
    assert b"".join(lines[run.start : run.end] for run in runs) == lines
    assert [run.is_long for run in runs] == [False, False, True]
    assert all(lines[run.start : run.end].endswith(b"\r\n") for run in runs)


def test_batches_for_spark_are_bounded_in_bytes():
    table = pa.table({"v": ["x" * (1 << 20)] * 40})
    batches = list(bounded_batches(table))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES


def test_a_part_is_not_searched_beyond_its_end(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * 3_000_000)
    with path.open("rb") as stream:
        assert packs._read_lines(stream, 100, 50)[0] == b""
        assert stream.tell() < 100_000
        monkeypatch.setattr(packs, "MAX_READ_BYTES", 1 << 20)
        with pytest.raises(OSError, match="a line of more than"):
            packs._read_lines(stream, 0, 50)


def test_large_files_of_one_task_are_not_read():
    assert packs._too_large(1 << 30, FileFormat("csv")) is None
    assert "max_expanded=" in packs._too_large((1 << 30) + 1, FileFormat("csv"))
    assert is_too_long(packs._too_large(len(LONG), FileFormat("binary")))


def test_max_expanded_is_declared():
    def limit(kind, **given):
        return parse_arrivals("landing", kind, None, None, given).file_format.max_expanded_bytes

    assert (limit("csv"), limit("orc")) == (256 << 20, 1 << 30)
    assert (limit("csv", max_expanded="2 GB"), limit("orc", max_expanded=100)) == (2 << 30, 100)
    with pytest.raises(ValueError, match="max_expanded='much'"):
        limit("csv", max_expanded="much")
