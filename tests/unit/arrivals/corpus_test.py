"""Every kind of bad input: nothing is lost in silence, nothing raises, and good files beside a bad one are unaffected."""

from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from oncelake.sources.arrivals.parsing.records import FILE, FileFormat, PackedFile
from oncelake.sources.arrivals.schema_types import parse_schema
from support.bad_files import Case, corpus
from support.parsed_files import Outcome, parse_files

CASES = {each.id: each for each in corpus()}
GOOD = {kind: CASES[f"{kind}: {name}"] for kind, name in (("parquet", "good"), ("orc", "good"), ("avro", "good"))}
GOOD |= {"json": CASES["json: no newline at the end"], "csv": CASES["csv: no newline at the end"]}
GOOD |= {"text": CASES["text: lines"], "binary": CASES["binary: any bytes"]}


def parsed(*cases: Case) -> list[Outcome]:
    """Parse cases of one format, options and schema as one pack."""
    files = [PackedFile(number * 7, each.file_name, each.content) for number, each in enumerate(cases)]
    fmt = FileFormat(cases[0].format, cases[0].options, cases[0].max_expanded_bytes)
    return list(parse_files(files, fmt, parse_schema(cases[0].schema)).values())


@cache
def alone(name: str) -> Outcome:
    return parsed(CASES[name])[0]


def content(outcome: Outcome) -> tuple:
    """What became of a file, whatever its place in the pack."""
    without = [
        [{name: str(cell) for name, cell in row.items() if name != FILE} for row in rows]
        for rows in (outcome.rows, outcome.bad)
    ]
    return (*without, outcome.read)


def test_the_corpus_has_all_kinds():
    assert len({each.name for each in CASES.values()}) >= 200
    assert len(CASES) == len(corpus())
    assert {each.format for each in CASES.values()} == set(GOOD)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost(name):
    case = CASES[name]
    outcome = alone(case.id)
    said = "; ".join(outcome.reasons)
    assert case.good_rows is None or len(outcome.rows) == case.good_rows, said
    assert case.bad_rows is None or len(outcome.bad) == case.bad_rows, said
    assert case.whole is None or outcome.is_bad_file == case.whole, said
    assert case.reason in said
    if not outcome.is_bad_file:
        assert [value for value in case.must_find if not outcome.holds(value)] == [], said
        assert set(case.rescues) <= {column for row in outcome.rescued for column in row}


@pytest.mark.parametrize("name", CASES)
def test_good_files_beside_a_bad_one_are_unaffected(name):
    case = CASES[name]
    good = replace(
        GOOD[case.format], options=case.options, schema=case.schema, max_expanded_bytes=case.max_expanded_bytes
    )
    before, middle, after = parsed(good, case, good)
    assert content(before) == content(after) == content(parsed(good)[0])
    assert content(middle) == content(alone(case.id))


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_a_pack_of_everything_gives_what_each_file_gives_alone(kind):
    def of_one_pack(case):
        return sorted(case.options.items()), case.schema, case.max_expanded_bytes

    cases = sorted((each for each in CASES.values() if each.format == kind), key=lambda each: str(of_one_pack(each)))
    for _, group in groupby(cases, key=of_one_pack):
        pack = list(group)
        for case, outcome in zip(pack, parsed(*pack), strict=True):
            assert content(outcome) == content(alone(case.id)), case.id
