"""JSON lines and documents: every kind of bad input, and Arrow's reader against the strict parser."""

import json
import random
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelake.sources.arrivals.parsing.json_fast import ArrowReader
from oncelake.sources.arrivals.parsing.json_lines import Piece, parse_json_lines, parse_strictly
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import FILE, LINE, RESCUED, FileFormat, PackedFile

JSON = FileFormat("json")
DOCUMENTS = FileFormat("json", {"multiLine": "true"})
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "s": pa.string(),
        "o": pa.bool_(),
        "d": pa.decimal128(5, 2),
        "e": pa.decimal128(38, 18),
        "t": pa.timestamp("us", tz="UTC"),
        "u": pa.timestamp("us"),
        "y": pa.date32(),
        "a": pa.list_(pa.float64()),
        "x": pa.struct({"p": pa.int64(), "q": pa.list_(pa.string())}),
    }
)


def parse_contents(*contents, fmt=JSON, schema=SCHEMA):
    """Return the rows and bad rows of files, after checking that as many as were read are there."""
    parsed = parse([PackedFile(index, "f.json", content) for index, content in enumerate(contents)], fmt, schema)
    found = parsed.rows[FILE].to_pylist() + parsed.bad[FILE].to_pylist()
    counts = dict(zip(*parsed.counts.to_pydict().values(), strict=True))
    assert counts == {index: found.count(index) for index in range(len(contents))}
    assert parsed.rows.schema.names == [*schema.names, FILE, LINE, RESCUED]
    return parsed


def rescued(parsed):
    return [None if text is None else json.loads(text) for text in parsed.rows[RESCUED].to_pylist()]


def places(parsed):
    return list(zip(*(parsed.bad[name].to_pylist() for name in (FILE, LINE, "offset", "raw")), strict=True))


def test_good_lines():
    parsed = parse_contents(b'{"i": 1, "s": "a"}\n{"i": 2}\r\n\n  \n{}', b"", b" \n", b'\xef\xbb\xbf{"i": 3}')
    assert parsed.rows.select(["i", FILE, LINE]).to_pydict() == {
        "i": [1, 2, None, 3],
        FILE: [0, 0, 0, 3],
        LINE: [1, 2, 5, 1],
    }
    assert parsed.rows[RESCUED].null_count == 4
    assert parsed.bad.num_rows == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"i": 1,}', "not JSON: Illegal trailing comma|not JSON: Expecting property name"),
        (b"x", "not JSON"),
        (b"null", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b"NaN", "not a JSON object"),
        (b'{"i": 1}{"i": 2}', "not JSON: Extra data at character 9"),
        (b'{"i": 1}null{"i": 2}', "not JSON: Extra data"),
        (b'{"i": 1, "i": 1}', 'duplicate key "i"'),
        (b'{"i": 1, "\\u0069": null}', 'duplicate key "i"'),
        (b'{"x": {"p": 1, "p": 1}}', 'duplicate key "p"'),
        (b'{"s": "a\0b"}', "a NUL byte"),
        (b'\0{"i": 1}', "a NUL byte"),
        (b'{"s": "caf\xe9"}', "not valid UTF-8 at byte 11"),
        (b'{"s": "\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"s": "a\tb"}', "not JSON: Invalid control character"),
        (b'{"s": "\\x"}', "not JSON: Invalid"),
        (b'{"i": 01}', "not JSON"),
        (b'{"i": ' + b"[" * 2000 + b"]" * 2000 + b"}", "nested more than 100 deep"),
        (b'{"a":' * 100_000, "nested more than 100 deep"),
        (
            random.Random(1).randbytes(1000).replace(b"\n", b"").replace(b"\r", b"").replace(b"\0", b""),
            "not valid UTF-8",
        ),
    ],
)
def test_bad_line_is_kept_with_its_place_and_the_others_are_read(line, reason):
    before, after = b'{"i": 1}\r\n\n', b'\n{"i": 2}\n'
    parsed = parse_contents(b'{"i": 0}', before + line + after, b'{"i": 3}')
    assert parsed.rows["i"].to_pylist() == [0, 1, 2, 3]
    assert parsed.rows[LINE].to_pylist() == [1, 1, 4, 1]
    assert places(parsed) == [(1, 3, len(before), line)]
    assert any(parsed.bad["reason"][0].as_py().startswith(each) for each in reason.split("|"))
    assert "truncated" not in parsed.bad["reason"][0].as_py()


@pytest.mark.parametrize("line", [b'{"i": 1', b'{"s": "abc', b'{"s": "\xc3', b"{", b'{"i"'])
def test_half_record_at_the_end_looks_truncated(line):
    parsed = parse_contents(b'\xef\xbb\xbf{"i": 1}\n' + line, b'{"i": 2}')
    assert parsed.rows["i"].to_pylist() == [1, 2]
    assert places(parsed) == [(0, 2, 12, line)]
    assert "looks truncated" in parsed.bad["reason"][0].as_py()


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("i", '"x"', "not an integer"),
        ("i", "1.5", "not an integer"),
        ("i", "99999999999", "out of range of int32"),
        ("d", "1.239", "decimal with more than 2 fractional digits"),
        ("d", "12345", "out of range of decimal(5, 2)"),
        ("e", "1e37", "out of range of decimal(38, 18)"),
        ("f", "1e400", "out of range of double"),
        ("f", "NaN", "not finite"),
        ("f", "-Infinity", "not finite"),
        ("g", "1e39", "out of range of float"),
        ("y", '"2024-02-30"', "no such date"),
        ("y", "19800", "not a date"),
        ("t", '"99999-01-01T00:00:00Z"', "not a timestamp"),
        ("t", "1", "not a timestamp"),
        ("u", '"2024-01-01T00:00:00Z"', "timestamp with a time zone"),
        ("s", '"\\ud800"', "half of a surrogate pair"),
        ("x", '{"p": 1, "new": [1.50]}', "field new: no such column"),
        ("new", "1.50", "no such column"),
        ("new", "null", "no such column"),
    ],
)
def test_value_that_does_not_fit_is_rescued_as_it_came(column, value, reason):
    parsed = parse_contents(f'{{"o": true, "{column}": {value}}}\n{{"o": false}}'.encode())
    assert parsed.rows["o"].to_pylist() == [True, False]
    if column in SCHEMA.names:
        assert parsed.rows[column].to_pylist() == [None, None]
    spelled = f'"{value}"' if value in ("NaN", "-Infinity") else value
    assert parsed.rows[RESCUED].to_pylist() == [f'{{"{column}": {{"value": {spelled}, "reason": "{reason}"}}}}', None]


def test_keys_that_differ_by_case():
    parsed = parse_contents(b'{"I": 1}\n{"i": 2, "I": 3}\n{"S": "a", "s": "b", "O": 1}')
    assert parsed.rows["i"].to_pylist() == [1, 2, None]
    assert parsed.rows["s"].to_pylist() == [None, None, "b"]
    assert rescued(parsed) == [
        None,
        {"I": {"value": 3, "reason": "another field matches column i"}},
        {
            "S": {"value": "a", "reason": "another field matches column s"},
            "o": {"value": 1, "reason": "not a boolean"},
        },
    ]


def test_drift_is_what_would_hold_the_rescued_values():
    lines = [b'{"new": 1}'] * 17 + [b'{"l": 2.5}'] * 3 + [b'{"l": "rubbish"}', b'{"new": "x"}', b'{"d": 1.239}']
    parsed = parse_contents(b"\n".join(lines))
    assert {tuple(row.values()) for row in parsed.drift.to_pylist()} == {
        ("new", "int64", 17),
        ("l", "double", 3),
        ("new", "string", 1),
        ("d", "decimal128(6, 3)", 1),
    }


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_encoding_by_its_mark(encoding):
    assert parse_contents('{"s": "ä"}\n{"i": 1}\n'.encode(encoding)).rows["s"].to_pylist() == ["ä", None]


def test_encoding_by_option():
    latin = FileFormat("json", {"encoding": "latin-1"})
    assert parse_contents('{"s": "ä"}\n'.encode("latin-1"), fmt=latin).rows["s"].to_pylist() == ["ä"]


def test_old_line_ends():
    parsed = parse_contents(b'{"i": 1}\r{"i": 2}\rx\r\n{"i": 3}')
    assert parsed.rows.select(["i", LINE]).to_pydict() == {"i": [1, 2, 3], LINE: [1, 2, 4]}
    assert places(parsed) == [(0, 3, 18, b"x")]


def test_line_of_fifteen_megabytes():
    text = "x" * (15 << 20)
    parsed = parse_contents(json.dumps({"s": text}).encode() + b"\n" + json.dumps({"new": text}).encode() + b"\n{")
    assert parsed.rows["s"].to_pylist() == [text, None]
    assert len(parsed.rows[RESCUED][1].as_py()) > len(text)
    assert parsed.bad.num_rows == 1


@pytest.mark.parametrize(
    "nested", ["[" * 99 + "]" * 99, '{"k": ' * 99 + "1" + "}" * 99, '[{"k": ' * 49 + "1" + "}]" * 49]
)
def test_deepest_value_is_rescued(nested):
    parsed = parse_contents(f'{{"new": {nested}}}\n{{"x": {nested}}}'.encode())
    assert [entry[name]["value"] for entry, name in zip(rescued(parsed), ("new", "x"), strict=True)] == [
        json.loads(nested)
    ] * 2


def test_hundred_thousand_keys():
    keys = ", ".join(f'"k{at}": {at}' for at in range(100_000))
    parsed = parse_contents(f'{{{keys}}}\n{{{keys}, "k99999": 1}}\n'.encode())
    assert len(rescued(parsed)[0]) == parsed.drift.num_rows == 100_000
    assert parsed.bad["reason"].to_pylist() == ['duplicate key "k99999"']


def test_column_types_that_arrow_does_not_read():
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int8()), "b": pa.binary(), "t": pa.list_(pa.date32())})
    parsed = parse_contents(
        b'{"m": {"k": 1}, "b": "aGk=", "t": ["2024-01-01", null]}\n{"m": {"k": 300}}', schema=schema
    )
    assert parsed.rows["m"].to_pylist() == [[("k", 1)], None]
    assert parsed.rows["b"].to_pylist() == [b"hi", None]
    assert rescued(parsed)[1] == {"m": {"value": {"k": 300}, "reason": "entry 1: out of range of int8"}}
    assert parse_contents(b'{"a": 1}', schema=pa.schema({})).rows[RESCUED].null_count == 0


@pytest.mark.parametrize(
    ("document", "numbers"),
    [
        (b'{"i":\n 1}', [1]),
        (b' [{"i": 1},\n {"i": 2}]\n', [1, 2]),
        (b"[]", []),
        (b"", []),
        (b" \n", []),
        ('{"i": 1}'.encode("utf-16"), [1]),
    ],
)
def test_documents(document, numbers):
    parsed = parse_contents(document, fmt=DOCUMENTS)
    assert parsed.rows["i"].to_pylist() == numbers
    assert parsed.rows[LINE].to_pylist() == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'[{"i": 1}, {"i"', "looks truncated"),
        (b'{"i": 1}\n{"i": 2}', "not JSON: Extra data"),
        (b'[{"i": 1, "i": 2}]', 'duplicate key "i"'),
        (b'{"s": "caf\xe9"}', "not valid UTF-8"),
        (b"null", "neither a JSON object nor an array"),
        (b"[" * 2000 + b"]" * 2000, "nested more than"),
        (b'{"s": "\0"}', "not JSON: Invalid control character"),
    ],
)
def test_document_that_does_not_parse_is_a_bad_file(document, reason):
    parsed = parse_contents(b'{"i": 1}', document, b'[{"i": 2}]', fmt=DOCUMENTS)
    assert parsed.rows["i"].to_pylist() == [1, 2]
    assert places(parsed) == [(1, None, None, document[:200])]
    assert reason in parsed.bad["reason"][0].as_py()


def test_item_of_a_document_that_is_no_object_is_a_bad_row():
    parsed = parse_contents(b'[{"i": 1}, 1.50, null, {"i": "x"}]', fmt=DOCUMENTS)
    assert parsed.rows["i"].to_pylist() == [1, None]
    assert places(parsed) == [(0, 2, None, b"1.50"), (0, 3, None, b"null")]
    assert rescued(parsed)[1] == {"i": {"value": "x", "reason": "not an integer"}}


# Arrow against the strict parser ---------------------------------------------------------------------------------------

SPELLED_NUMBERS = (
    "0 -0 1 -1 0.0 1.0 1.50 1.500 -0.5 1e2 1E-2 1e-3 127 999.99 999.990 1000 12345 1e5 1e17 1e19 1e20 1e37 1e38 1e39 1e76 1e77 "
    "2147483647 2147483648 9007199254740992 9007199254740993 16777216 16777217 9223372036854775807 9223372036854775808 "
    "3.4028236e38 1e-45 7e-46 5e-324 2e-324 1e308 1e309 1e400 1e-400 1e99999999999 NaN Infinity -Infinity Inf 01 1. .5 +1 0x1 1e "
    "0.000000000000000001 0.0000000000000000001 99999999999999999999.999999999999999999 100000000000000000000"
)
NUMBERS = [*SPELLED_NUMBERS.split(), "0." + "0" * 350 + "1", "9" * 38, "9" * 39, "1" + "0" * 320]
SPELLED_TIMES = (
    "2024-01-01 2024-02-29 2023-02-29 0000-01-01 0001-01-01 9999-12-31 99999-01-01 2024-1-1 20240101 2024-01-01T00 2024-01-01T05Z "
    "2024-01-01T00:00 2024-01-01T00:00:00 2024-01-01T00:00:00Z 2024-01-01T00:00:00+05:30 2024-01-01T00:00:00-0800 2024-01-01T00:00:00+01 "
    "2024-01-01T24:00:00Z 2024-01-01T00:00:60Z 2024-01-01T00:00:00+24:00 2024-01-01T00:00:00+05:60 2024-01-01t00:00:00z "
    "0001-01-01T00:00:00+14:00 9999-12-31T23:59:59.999999-14:00 2024-01-01T00:00:00. 2024-01-01T00:00:00.1 2024-01-01T00:00:00.123456 "
    "2024-01-01T00:00:00.1234567 2024-01-01T00:00:00.1234560 2024-01-01Z 1704067200 -2024-01-01"
)
TIMES = [*SPELLED_TIMES.split(), "2024-01-01 00:00:00.5", " 2024-01-01", "2024-01-01 "]
PARTS = [
    "a",
    "é",
    "😀",
    " ",
    "}",
    "{",
    "}{",
    "e-999",
    "\\n",
    "\\u0000",
    "\\ud83d\\ude00",
    "\\ud800",
    '\\"',
    "\\x",
    "\t",
    "\x7f",
    "\u2028",
]

number = st.sampled_from(NUMBERS) | st.integers().map(str) | st.floats().map(json.dumps) | st.decimals().map(str)
moment = st.sampled_from(TIMES) | st.datetimes(timezones=st.sampled_from([None, UTC])).map(datetime.isoformat)
string = (st.lists(st.sampled_from(PARTS), max_size=4).map("".join) | moment | number).map('"{}"'.format)
word = st.sampled_from(["true", "false", "null", "nan", "", "[]", "{}", "[null]", '{"p": 1}null'])
array = st.lists(number | word, max_size=3).map(lambda items: f"[{', '.join(items)}]")
struct = st.builds('{{"{}": {}, "q": {}}}'.format, st.sampled_from(["p", "q", "z"]), number, array | word)
by_column = {
    **dict.fromkeys("ilfg", number),
    **dict.fromkeys("de", number | number.map('"{}"'.format)),
    **dict.fromkeys("tuy", moment.map('"{}"'.format)),
    "s": string,
    "o": word,
    "a": array,
    "x": struct,
}


@st.composite
def lines(draw):
    """A line of JSON that is mostly good."""
    columns = draw(st.lists(st.sampled_from(SCHEMA.names), max_size=3, unique=draw(st.integers(0, 20)) > 0))
    any_value = st.one_of(*by_column.values())
    items = [f'"{name}": {draw(by_column[name] if draw(st.integers(0, 9)) else any_value)}' for name in columns]
    line = (
        "{" + ",".join(items) + "}" + draw(st.sampled_from([""] * 30 + ["{}", "null", " ", "\r", "x", "}"]))
    ).encode()
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.sampled_from([b"", b"\n", b"}\n{", b"\0", b"\xff", b"null", b"}{"])) + line[at + 1 :]
    return line


def same(one, other):
    # NaN is not equal to itself, and -0.0 equals 0.0; their texts tell them apart.
    return one.schema == other.schema and repr(one.to_pylist()) == repr(other.to_pylist())


@settings(max_examples=80, deadline=None)
@given(st.lists(lines(), min_size=6, max_size=12))
def test_arrow_reads_only_what_the_strict_parser_reads_alike(contents):
    reader = ArrowReader.of(SCHEMA)
    # One by one, because a single doubtful line keeps Arrow from all of them; and in pairs, for what only two lines can do.
    for group in [*([content] for content in contents), *pairwise(contents)]:
        pieces = [Piece(index, 1, 0, content) for index, content in enumerate(group)]
        fast = reader.read(pieces)
        if fast is not None:
            strict = parse_strictly(pieces, SCHEMA)
            assert strict.bad.num_rows == 0
            assert strict.rows[RESCUED].null_count == strict.rows.num_rows
            assert same(fast.rows, strict.rows)
            assert same(fast.counts, strict.counts)


@pytest.mark.parametrize(
    "line",
    [
        b'{"s": "caf\xe9"}',
        b'{"s": "\xed\xa0\x80"}',
        b'{"t": "9999-12-31T23:59:59-14:00"}',
        b'{"t": "0001-01-01T00:00:00+14:00"}',
        b'{"u": "0000-01-01T00:00:00"}',
        b'{"u": "2024-01-01T00:00:00Z"}',
        b'{"y": "0000-12-31"}',
        b'{"y": 1}',
        b'{"f": 1e-400}',
        b'{"f": 0.' + b"0" * 350 + b"1}",
        b'{"a": [1, 1e-400]}',
        b'{"g": -1.5E-50}',
        b'{"g": 1e39}',
        b'{"a": [NaN]}',
        b'{"f": 9007199254740993}',
        b'{"e": 1' + b"0" * 29 + b"}",
        b'{"d": 12345}',
        b'{"d": "01"}',
        b'{"e": "-00.5"}',
        b'{"d": "\\u00301"}',
        b'{"i": 1}null{"i": 2}',
        b'{"i": 1}{"i": 2}\n{"i":\n3}',
        b"null",
        b'{"i": 1}\r{"i": 2}',
        b'{"i": 1, "i": 2}',
        b'{"new": null}',
        b'{"x": {"new": 1}}',
        b'{"i": 1}\0',
    ],
)
def test_arrow_is_not_trusted_with_what_it_would_read_otherwise(line):
    reader = ArrowReader.of(SCHEMA)
    assert reader.read([Piece(0, 1, 0, line)]) is None
    assert reader.read([Piece(0, 1, 0, b'{"i": 1}\n' + line + b'\n{"f": 0}\n')]) is None


@pytest.mark.parametrize("line", [b'{"s": "12e-456", "f": 0}', b'{"f": 0, "g": 1e-9}', b'{"f": 1.5e-99, "a": [0]}'])
def test_small_numbers_and_texts_like_them_are_left_to_arrow(line):
    assert ArrowReader.of(SCHEMA).read([Piece(0, 1, 0, line)]) is not None


def test_arrow_reads_what_is_good():
    good = {"i": 1, "l": -5, "f": 0.0, "g": 1.5, "s": "}\n{ e-999 é", "o": True, "d": "1.5", "e": 1, "y": "2024-01-01"}
    times = {"t": "2024-01-01T00:00:00.5+05:30", "u": "2024-01-01 00:00:00", "a": [1, None], "x": {"p": 1, "q": ["a"]}}
    content = json.dumps({**good, **times}, ensure_ascii=False).encode() + b"\r\n" + json.dumps(good).encode()
    pieces = [Piece(3, 1, 0, content), Piece(5, 7, 100, b"{}\n")]
    fast = ArrowReader.of(SCHEMA).read(pieces)
    assert fast is not None
    assert same(fast.rows, parse_strictly(pieces, SCHEMA).rows)
    assert fast.rows[FILE].to_pylist() == [3, 3, 5]
    assert fast.rows[LINE].to_pylist() == [1, 2, 7]


@pytest.mark.parametrize("share", [0, 0.0005, 0.02, 0.5, 1])
def test_halving_gives_what_the_strict_parser_gives(share):
    chance = random.Random(int(share * 10000))
    bad = [
        b"{",
        b"",
        b'{"new": 1}',
        b'{"i": 1.5}',
        b"null",
        b'{"i": 1}{"i": 2}',
        b'{"i":\n1}',
        b"\xff",
        b'{"i": 1}\r{"i": 2}',
    ]

    def content(rows):
        found = [chance.choice(bad) if chance.random() < share else b'{"i": %d, "s": "abc"}' % at for at in range(rows)]
        return chance.choice([b"\n", b"\r\n"]).join(found) + chance.choice([b"", b"\n"])

    contents = [content(chance.choice([0, 1, 1, 1, 3])) for _ in range(1500)] + [content(4000), b"x" * 100_000]
    files = [PackedFile(index, "f", each) for index, each in enumerate(contents)]
    halved = parse_json_lines(files, JSON, SCHEMA)
    strict = parse_strictly([Piece(file.index, 1, 0, file.content) for file in files], SCHEMA)
    assert same(halved.rows, strict.rows)
    assert same(halved.bad, strict.bad)
    assert sorted(map(str, halved.drift.to_pylist())) == sorted(map(str, strict.drift.to_pylist()))
    counts = dict(zip(*halved.counts.to_pydict().values(), strict=True))
    assert {file: count for file, count in counts.items() if count} == dict(
        zip(*strict.counts.to_pydict().values(), strict=True)
    )
    assert len(counts) == len(files)


def test_thousands_of_small_files_are_read_at_once():
    contents = [
        json.dumps({"i": at, "f": at / 7, "y": "2024-01-01", "s": "x" * 150}).encode() + b"\n" for at in range(5000)
    ]
    fast = ArrowReader.of(SCHEMA).read([Piece(at, 1, 0, content) for at, content in enumerate(contents)])
    assert fast is not None
    assert fast.rows["i"].to_pylist() == fast.rows[FILE].to_pylist() == list(range(5000))
    assert same(parse_contents(*contents).rows, fast.rows)
