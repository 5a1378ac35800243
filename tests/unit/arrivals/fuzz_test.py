"""Thousands of damaged files: none raises, every line and value is accounted for, and a good file beside them is read as ever.

`ONCELAKE_FUZZ` is the number of files. They are made from the commit, or from `ONCELAKE_TEST_SEED`.
"""

import csv
import io
import json
import os
from random import Random

import pyarrow as pa
import pytest

from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile
from oncelake.sources.arrivals.schema_types import parse_schema
from support.bad_avro import avro, good_avro
from support.bad_columnar import GOOD_TABLE, orc_file, parquet
from support.bad_files import COLUMNS, VALUES, compress, flip_bits, mutate
from support.bad_lines import FIRST, FIRST_ROW, HEADER, LAST, LAST_ROW
from support.file_oracles import check_columnar, check_lines, check_records, expanded, read_columnar
from support.parsed_files import parse_files
from support.variants import SEED, number_of

FILES = int(os.environ.get("ONCELAKE_FUZZ", "620"))
PACK = 10
ODD_JSON = '{"id": 2, "qty": 1.5, "new": {"a": [1, "é"]}, "name": "a\\n\\u00fc", "ID": 1e400}\n\n{"amount": 1.239, "ok": null}\n'
JSON = FIRST + b"\n" + ODD_JSON.encode() + LAST + b"\n" + b'{"id": 4}\n{"id": 5, "name": "x"}\n'
ODD_ROWS = '2,1.239,1.5,1e400,"two\nlines, ""quoted""",2024-02-30,now,yes,"[1]",{}\n\n,,,,,,,,,\n'
CSV = HEADER + FIRST_ROW + ODD_ROWS.encode() + LAST_ROW + FIRST_ROW.replace(b"Ann", "Zoë".encode())
TEXT = b"one\n\ntwo \xc3\xa9\n  three\nfour"
LINES = {"json": [JSON, JSON, JSON * 12], "csv": [CSV, CSV, CSV + FIRST_ROW * 40], "text": [TEXT]}
NAMES = parse_schema(COLUMNS).names
MANY = pa.concat_tables([GOOD_TABLE] * 15)
PLAIN = {"compression": "none", "use_dictionary": False}  # a flipped byte is mostly another value
COLUMNAR = {
    "parquet": [
        parquet(GOOD_TABLE),
        parquet(GOOD_TABLE, row_group_size=2, **PLAIN),
        parquet(MANY, write_statistics=False, **PLAIN),
    ],
    "orc": [orc_file(GOOD_TABLE), orc_file(GOOD_TABLE, compression="zlib"), orc_file(MANY)],
    "avro": [good_avro(), good_avro("deflate"), avro([{"id": 1, "x": "y"}] * 40, {"id": "long", "x": "string"})],
}
KINDS = [*LINES, "json values", "csv values", "json.gz", "json.zst", "json.bz2", "csv.gz", "document", *COLUMNAR]


def files(kind):
    """Return the numbered files of one kind."""
    numbers = range(KINDS.index(kind), FILES, len(KINDS))
    return {number: damaged(kind, Random(number_of("fuzz", kind, str(number)))) for number in numbers}


def damaged(kind, random):
    if kind in COLUMNAR:
        content = random.choice(COLUMNAR[kind])
        return (
            flip_bits(content, random)
            if random.random() < 0.6
            else mutate(content, random, random.choice(COLUMNAR[kind]))
        )
    if kind == "document":
        return mutate(b"[" + FIRST + b",\n" + LAST + b"]", random)
    if kind.endswith(" values"):
        return odd_json(random) if kind == "json values" else odd_csv(random)
    base, _, suffix = kind.partition(".")
    content = random.choice(LINES[base])
    if not suffix:
        return mutate(content, random, content)
    # Damaged before it is compressed, after, or both.
    where = random.randrange(3)
    packed = compress(mutate(content, random) if where else content, f".{suffix}")
    return mutate(packed, random) if where != 1 else packed


def odd_json(random):
    """Return good lines and some that have any value in any column, mostly one column, so that quick ways of reading are tried."""
    column = random.choice(NAMES)
    lines = [FIRST] * random.choice((0, 3))
    for _ in range(random.choice((1, 1, 4))):
        value = random.choice(VALUES)
        text = (
            value if is_json(value) and random.random() < 0.7 else json.dumps(value, ensure_ascii=random.random() < 0.5)
        )
        more = random.choice(("", "", f', "{random.choice(NAMES)}": {random.choice(VALUES)}'))
        lines.append(f'{{"{column}": {text}{more}}}'.encode())
    return b"\n".join(lines)


def odd_csv(random):
    column = random.choice(NAMES)
    names = random.sample(NAMES, random.choice((1, 3, len(NAMES))))
    names += [] if column in names else [column]
    lines = [
        [random.choice(VALUES) if name == column or random.random() < 0.02 else "" for name in names]
        for _ in range(random.choice((1, 1, 4)))
    ]
    target = io.StringIO()
    csv.writer(target, quoting=random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)), lineterminator="\n").writerows(
        [names, *lines]
    )
    return target.getvalue().encode()


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def good(kind):
    if kind in COLUMNAR:
        return COLUMNAR[kind][0]
    base, _, suffix = kind.partition(" ")[0].partition(".")
    return b'{"id": 1}' if kind == "document" else compress(LINES[base][0], f".{suffix}")


def check(kind, name, content, outcome):
    if kind in COLUMNAR:
        if not outcome.is_bad_file:
            rows = read_columnar(kind, content)
            assert rows is not None, "it cannot be read"
            check_columnar(rows, outcome)
        return
    base = kind.partition(" ")[0].partition(".")[0]
    text = expanded(name, content)
    assert text is not None or outcome.is_bad_file, "it cannot be expanded"
    if text is not None and not outcome.is_bad_file and kind != "document":
        check_records(text, outcome) if base == "csv" else check_lines(base, text, outcome)
    if text is not None and base in ("json", "text") and not text.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0")):
        assert not outcome.is_bad_file, "lines are bad one by one"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_of_damaged_files(kind):
    base, options = ("json", {"multiLine": True}) if kind == "document" else (kind.split(" ")[0].split(".")[0], {})
    schema = parse_schema("value string" if kind == "text" else COLUMNS)
    name = "f." + kind.partition(" ")[0]
    file_format = FileFormat(base, options, max_expanded_bytes=1 << 24)
    expected = parse_files([PackedFile(0, name, good(kind))], file_format, schema)[0]
    assert not expected.is_bad_file
    made = sorted(files(kind).items())
    for start in range(0, len(made), PACK):
        pack = made[start : start + PACK]
        together = [PackedFile(number + 1, name, data) for number, data in pack]
        found = parse_files([PackedFile(0, name, good(kind)), *together], file_format, schema)
        assert str(found[0]) == str(expected)
        for number, data in pack:
            outcome = found[number + 1]
            try:
                check(kind, name, data, outcome)
                alone = parse_files([PackedFile(number + 1, name, data)], file_format, schema)[number + 1]
                assert str(alone) == str(outcome), "alone and in a pack it is read in different ways"
            except Exception as error:
                raise AssertionError(f"seed {SEED!r}, {kind} {number}: {data!r}") from error
