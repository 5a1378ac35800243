"""The fast reader of CSV gives what the strict one gives, and columns of text are converted as single texts are."""

import csv
import io
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelake.sources.arrivals.parsing.csv_dialect import Dialect
from oncelake.sources.arrivals.parsing.csv_fast import Piece, read_clean
from oncelake.sources.arrivals.parsing.csv_records import Scanner
from oncelake.sources.arrivals.parsing.text_columns import convert_texts, types_of_texts
from oncelake.sources.arrivals.parsing.values import convert_text, type_of_text

many = settings(max_examples=100, deadline=None)
SEEDS = st.integers(0, 1 << 64)
EACH = 40  # hypothesis takes longer to make an input than it takes to read it
MARKS = [*',,,;\t""\'\n\n\r\\#aN é0', "\0", "\ufeff", "\r\n"]
WORDS = ["nan", "inf", "-inf", "Infinity", "true", "FALSE", "1e400", "1e-400", "0.0", "-0", "00", "0x1", "1_0", "٣"]
WORDS += ["2024-02-30", "[1,2]", "YQ==", "NULL", "", " 1", "1\n", "+5", ".5", "5.", "1e5", "-1E-5", "1e", "."]
TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.binary()]
TYPES += [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(9, 2), pa.decimal128(38, 0)]
TYPES += [pa.list_(pa.int64())]


def rubbish(random):
    return "".join(random.choices(MARKS, k=random.randrange(25))).encode()


def nearly_clean(random, dialect, width):
    """Return records of so many fields, half of the time with a mark too many or too few."""
    sep, quote, end = dialect.sep.decode(), dialect.quote.decode(), random.choice(["\n", "\r\n"])
    plain, inside = ["", "a", "N", " b ", "é0"], ["", "x", sep, "\n", "\r\n", quote * 2, "#"]
    fields = [
        quote + "".join(random.choices(inside, k=3)) + quote
        if quote and random.random() < 0.4
        else random.choice(plain)
        for _ in range(width * random.randrange(4))
    ]
    rows = [sep.join(fields[start : start + width]) for start in range(0, len(fields), width)]
    text = end.join(rows) + random.choice(["", end])
    if random.random() < 0.5:
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(["", *MARKS, quote, quote]) + text[at + random.randrange(2) :]
    return text.encode()


def some_dialect(random):
    return Dialect(
        sep=random.choice([b",", b",", b";", b"\t"]),
        quote=random.choice([b'"', b'"', b"'", b""]),
        escape=random.choice([b"", b"", b"\\"]),
        comment=random.choice([b"", b"", b"#"]),
        nulls=random.choice([("",), ("", "N")]),
        multi_line=random.random() < 0.7,
        trim_left=random.random() < 0.2,
        trim_right=random.random() < 0.2,
    )


def some_text(random):
    digits = "".join(random.choices("0123456789", k=random.choice([1, 2, 3, 8, 15, 16, 17, 18, 19, 20])))
    fraction = random.choice(["", "", f".{random.randrange(1000)}", f".{random.randrange(10**18)}"])
    number = (
        f"{random.choice(['', '', '-', '+'])}{digits}{fraction}{random.choice(['', '', '', 'e5', 'E-300', 'e+300'])}"
    )
    day = (
        f"{random.choice(['2024', '1969', '0000', '0001', '9999'])}-{random.randrange(14):02}-{random.randrange(33):02}"
    )
    clock = f"{random.randrange(25):02}:{random.randrange(61):02}:{random.randrange(61):02}"
    part = random.choice(["", "", ".1", ".123456", ".1234567"])
    time = f"{day}{random.choice('T ')}{clock}{part}{random.choice(['', 'Z', 'ZZ', '+02:00'])}"
    return (
        random.choice([number, str(random.randrange(-300, 300)), repr(random.random()), day, time, *WORDS[:3]])
        if (random.random() < 0.8)
        else random.choice(WORDS)
    )


def strictly(content, dialect, width):
    return list(Scanner(content, dialect).records(len(content), width))


def check_fast_reader(contents, dialect, width):
    """Say whether the fast reader reads the contents; what it reads is what the strict one reads."""
    cells = read_clean([Piece(number, each, 1) for number, each in enumerate(contents)], dialect, width)
    if cells is None:
        return False
    records = [(number, each) for number, content in enumerate(contents) for each in strictly(content, dialect, width)]
    rows = list(zip(*(column.to_pylist() for column in cells.columns), strict=True))
    given = (contents, dialect, width)
    assert [(None, row) for row in rows] == [(each.reason, tuple(each.fields)) for _, each in records], given
    assert list(cells.files) == [number for number, _ in records], given
    assert list(cells.lines) == [each.line for _, each in records], given
    return True


@many
@given(SEEDS)
def test_the_fast_reader_gives_what_the_strict_reader_gives(seed):
    random = Random(seed)
    for _ in range(EACH):
        dialect, width = some_dialect(random), random.choice([1, 2, 2, 3])
        made = [nearly_clean(random, dialect, width) for _ in range(random.choice([1, 1, 2, 3]))]
        check_fast_reader([*made, rubbish(random)][: random.choice([4, len(made)])], dialect, width)


@pytest.mark.parametrize(
    ("contents", "is_fast"),
    [
        (['a,"b\n', 'c",d\n'], False),
        (['"a\n', 'b"\n'], False),
        (['a,"b"\r\n\r\n', '"c","d""\ne"'], True),
        (['"","a"""\n'], True),
        (['a,b"c\n'], False),
        (['a,"b"c\n'], False),
        (["a,b\rc,d\n"], False),
        (["a,b\n", "c\n"], False),
        (["\n\n", "a,b"], True),
    ],
)
def test_what_the_fast_reader_leaves_to_the_strict_one(contents, is_fast):
    assert check_fast_reader([each.encode() for each in contents], Dialect(), 2) == is_fast


@many
@given(SEEDS)
def test_the_fast_reader_reads_what_is_clean(seed):
    random = Random(seed)
    for _ in range(EACH // 2):
        width = random.randrange(1, 5)
        cells = ["".join(random.choices("ab,;\"'\n\\ é0", k=random.randrange(6))) for _ in range(width * 4)]
        rows = [tuple(cells[start : start + width]) for start in range(0, len(cells), width)]
        target = io.StringIO()
        writer = csv.writer(
            target,
            quoting=random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
            lineterminator=random.choice(["\n", "\r\n"]),
        )
        writer.writerows(rows)
        content = target.getvalue().encode()
        found = read_clean([Piece(0, content, 1)], Dialect(), width)
        texts = zip(*(column.to_pylist() for column in found.columns), strict=True)
        assert [tuple(text or "" for text in row) for row in texts] == rows, content


@many
@given(SEEDS)
def test_records_and_ends_of_lines_are_the_whole_file(seed):
    random = Random(seed)
    for _ in range(EACH):
        content, dialect, width = rubbish(random), some_dialect(random), random.randrange(1, 4)
        position, line = 0, 1
        records = strictly(content, dialect, width)
        for record in records:
            # What is between records is blank lines and comments.
            skipped = content[position : record.start].splitlines()
            assert not any(each and not (dialect.comment and each.startswith(dialect.comment)) for each in skipped)
            assert record.line == line + max(len(skipped) - (position > 0), 0), (content, dialect)
            assert record.reason or len(record.fields) == width
            position, line = record.end, record.line + len(content[record.start : record.end].splitlines())
        rest = content[position:].splitlines()
        assert not any(each and not (dialect.comment and each.startswith(dialect.comment)) for each in rest)


@many
@given(SEEDS)
def test_columns_are_converted_as_single_texts_are(seed):
    random = Random(seed)
    for type_ in TYPES:
        texts = [None if random.random() < 0.1 else some_text(random) for _ in range(random.randrange(8))]
        found, reasons = convert_texts(pa.array(texts, pa.string()), type_)
        expected = [(None, None) if text is None else convert_text(text, type_) for text in texts]
        assert found.equals(pa.array([value for value, _ in expected], type_)), (texts, type_)
        told = [None] * len(texts) if reasons is None else reasons.to_pylist()
        assert told == [reason for _, reason in expected], (texts, type_)


@many
@given(SEEDS)
def test_types_of_columns_are_those_of_single_texts(seed):
    random = Random(seed)
    texts = [*(some_text(random) for _ in range(120)), *map(str, range(random.randrange(100)))]
    expected = [str(type_of_text(text)) for text in texts]
    found = types_of_texts(pa.array(texts, pa.string()), None)
    assert found == {type_: expected.count(type_) for type_ in set(expected)}
