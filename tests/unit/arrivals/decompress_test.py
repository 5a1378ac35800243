"""Compressed files: whole or bad, within a limit."""

import bz2
import gzip
import random
import tracemalloc

import pyarrow as pa
import pytest

from oncelake.sources.arrivals.parsing.decompress import BadFile, expand
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile

LIMIT = 1 << 20
SCHEMA = pa.schema({"a": pa.int64()})
LINES = b"".join(b'{"a": %d}\n' % number for number in random.Random(1).choices(range(10**9), k=4000))


def zstd(content):
    return pa.compress(content, "zstd", asbytes=True)


CODECS = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstd, "zstd": zstd}
EVERY = pytest.mark.parametrize("suffix", CODECS)


def parse_one(name, content, limit=LIMIT):
    others = [PackedFile(0, "x.json", b'{"a": 1}\n'), PackedFile(2, "y.json.gz", gzip.compress(b'{"a": 2}\n'))]
    files = [others[0], PackedFile(1, name, content), others[1]]
    parsed = parse(files, FileFormat("json", max_expanded_bytes=limit), SCHEMA)
    counts = dict(zip(*parsed.counts.to_pydict().values(), strict=True))
    assert (counts[0], counts[2]) == (1, 1)
    assert sum(counts.values()) == parsed.rows.num_rows + parsed.bad.num_rows
    return parsed


def reason_of(name, content, limit=LIMIT):
    parsed = parse_one(name, content, limit)
    assert parsed.rows["_once_file_index"].to_pylist() == [0, 2]
    (bad,) = parsed.bad.to_pylist()
    assert (bad["_once_file_index"], bad["_once_line"], bad["offset"]) == (1, None, None)
    assert bad["raw"] == content[:200]
    return bad["reason"]


@EVERY
def test_compressed_file_is_read(suffix):
    assert expand(f"a.json.{suffix.upper()}", CODECS[suffix](LINES), LIMIT) == ("a.json", LINES)
    assert parse_one(f"a.json.{suffix}", CODECS[suffix](LINES)).rows.num_rows == 4002


@EVERY
def test_parts_one_after_another_are_one_file(suffix):
    parts = [CODECS[suffix](part) for part in (b"", LINES[:20000], b"", LINES[20000:20001], LINES[20001:])]
    assert expand(f"a.{suffix}", b"".join(parts), LIMIT)[1] == LINES
    tiny = [CODECS[suffix](b"%d\n" % number) for number in range(3000)]
    assert expand(f"a.{suffix}", b"".join(tiny), LIMIT)[1].count(b"\n") == 3000


@EVERY
def test_file_cut_anywhere_is_bad_as_a_whole(suffix):
    whole = CODECS[suffix](LINES)
    for end in [*range(1, 30), *range(30, len(whole), 997), len(whole) - 9, len(whole) - 1]:
        with pytest.raises(BadFile):
            expand(f"a.{suffix}", whole[:end], LIMIT)
    assert "looks truncated" in reason_of(f"a.json.{suffix}", whole[:-5])


@EVERY
def test_anything_after_the_end_makes_a_file_bad(suffix):
    assert "not valid" in reason_of(f"a.json.{suffix}", CODECS[suffix](LINES) + b'{"a": 1}\n')


@EVERY
def test_plain_text_with_the_name_of_a_compressed_file_is_bad(suffix):
    assert "not valid" in reason_of(f"a.json.{suffix}", LINES)


@EVERY
def test_empty_file_has_no_rows(suffix):
    assert parse_one(f"a.json.{suffix}", b"").bad.num_rows == 0
    assert parse_one(f"a.json.{suffix}", CODECS[suffix](b"")).bad.num_rows == 0


@pytest.mark.parametrize("suffix", ["gz", "bz2"])
def test_changed_byte_is_found_by_the_checksum(suffix):
    content = bytearray(CODECS[suffix](LINES))
    content[len(content) // 2] ^= 1
    assert "not valid" in reason_of(f"a.json.{suffix}", bytes(content))


@EVERY
def test_file_beyond_the_limit_is_refused_without_expanding_it(suffix):
    bomb = CODECS[suffix](b"\0" * (1 << 26))
    tracemalloc.start()
    reason = reason_of(f"a.json.{suffix}", bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reason == f"expands to more than {LIMIT:,} bytes (max_expanded=)"
    assert most < 8 * LIMIT
    assert expand(f"a.{suffix}", CODECS[suffix](b"x" * LIMIT), LIMIT)[1] == b"x" * LIMIT


def test_other_names_are_as_they_are():
    for name in ("gz", "a.json", "a.gz.json", ""):
        assert expand(name, b"rubbish", LIMIT) == (name, b"rubbish")


@pytest.mark.parametrize("flag", [0x20, 0x40, 0x80])
def test_gzip_with_a_flag_that_is_not_known_is_bad(flag):
    """It may announce a field, which would be taken for data."""
    content = bytearray(gzip.compress(LINES))
    content[3] |= flag
    assert "not valid gz" in reason_of("a.json.gz", bytes(content))


def test_zeros_may_follow_gzip():
    assert expand("a.gz", gzip.compress(LINES) + bytes(1000), LIMIT)[1] == LINES
