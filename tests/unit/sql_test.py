"""SQL text that nothing can break out of."""

import enum
import re
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelake.model.intervals import Grid
from oncelake.spark.sql import (
    all_of,
    equal,
    filter_predicates,
    identifier,
    inside,
    literal,
    one_of,
    text_literal,
    typed_literal,
)

thorough = settings(deadline=None, max_examples=300)
nasty = st.text(st.sampled_from("'\"`\\-/*;$ {}\n\r\0()aé日\u2019\uff07"), max_size=12)
texts = nasty | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
QUOTED = re.compile(r"'([^'\"`\\;$*\x00-\x1f]*)'")
BYTES = re.compile(r"CAST\(X'([0-9A-F]*)' AS STRING\)")


def text_of(sql):
    """What a SQL parser makes of the literal; fails for anything but one literal."""
    if found := QUOTED.fullmatch(sql):
        return found.group(1)
    found = BYTES.fullmatch(sql)
    assert found
    return bytes.fromhex(found.group(1)).decode()


@thorough
@given(texts)
def test_text_is_one_literal_that_means_the_text(text):
    assert text_of(text_literal(text)) == text
    assert text_literal(text) == literal(text)


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", "\\' OR ''='", "a--b", "/* x */", "${spark.x}", "a;b", "\n", "\0", "x'y", 'x"y', "`"]
)
def test_text_with_a_meaning_in_sql_goes_in_as_bytes(text):
    assert BYTES.fullmatch(text_literal(text))
    assert text_of(text_literal(text)) == text


@thorough
@given(texts)
def test_an_identifier_ends_where_it_is_meant_to(name):
    sql = identifier(name)
    assert (sql[0], sql[-1]) == ("`", "`")
    assert "`" not in sql[1:-1].replace("``", "")
    assert sql[1:-1].replace("``", "`") == name


@thorough
@given(texts, st.sampled_from(["date", "int", "decimal(10,2)", "timestamp"]))
def test_a_value_spelled_as_text_is_cast_from_one_literal(text, kind):
    sql = typed_literal(text, kind)
    assert sql.startswith("CAST(")
    assert text_of(sql.removeprefix("CAST(").removesuffix(f" AS {kind})")) == text
    assert typed_literal(text, "string") == text_literal(text)


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (False, "FALSE"),
        (0, "0"),
        (-7, "-7"),
        (2**70, str(2**70)),
        (Decimal("1.50"), "1.50BD"),
        (Decimal("1E+3"), "1000BD"),
        (1.5, "CAST('1.5' AS DOUBLE)"),
        (1e300, "CAST('1e+300' AS DOUBLE)"),
        (float("-inf"), "CAST('-inf' AS DOUBLE)"),
        (date(2024, 3, 15), "DATE'2024-03-15'"),
        (date(7, 3, 5), "DATE'0007-03-05'"),
        (datetime(2024, 3, 15, 6, tzinfo=UTC), "TIMESTAMP'2024-03-15T06:00:00Z'"),
        (datetime(2024, 3, 15, 6, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMP'2024-03-15T04:00:00Z'"),
        ("EU", "'EU'"),
        ("", "''"),
        ("größe 日本", "'größe 日本'"),
    ],
)
def test_a_value_is_a_literal_of_its_own_type(value, sql):
    assert literal(value) == sql


@pytest.mark.parametrize("value", [b"x", object(), ["a"], {"a": 1}, timedelta(1), 1j])
def test_a_value_without_a_literal_is_refused(value):
    with pytest.raises(TypeError):
        literal(value)


class Region(str, enum.Enum):  # noqa: UP042  what users have; StrEnum formats otherwise
    EU = "EU"


class Level(int, enum.Enum):
    ONE = 1


@pytest.mark.parametrize(("value", "sql"), [(Region.EU, "'EU'"), (Level.ONE, "1")])
def test_a_member_of_an_enumeration_is_its_value(value, sql):
    assert literal(value) == sql


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_decimal_that_is_no_number_is_refused(text):
    with pytest.raises((TypeError, ValueError)):
        literal(Decimal(text))


def test_a_time_without_a_zone_does_not_depend_on_the_machine(monkeypatch):
    found = set()
    for zone in ("UTC", "Asia/Tokyo"):
        with monkeypatch.context() as patched:
            patched.setenv("TZ", zone)
            time.tzset()
            found.add(literal(datetime(2024, 3, 15, 6)))
    time.tzset()
    assert len(found) == 1


@pytest.mark.parametrize(
    ("kind", "predicate"),
    [
        ("date", "`d` >= DATE'2024-03-31' AND `d` < DATE'2024-04-01'"),
        ("string", "TRY_CAST(`d` AS DATE) >= DATE'2024-03-31' AND TRY_CAST(`d` AS DATE) < DATE'2024-04-01'"),
        ("timestamp", "`d` >= TIMESTAMP'2024-03-30T23:00:00Z' AND `d` < TIMESTAMP'2024-03-31T22:00:00Z'"),
        ("timestamp_ntz", "`d` >= TIMESTAMP_NTZ'2024-03-31T00:00:00' AND `d` < TIMESTAMP_NTZ'2024-04-01T00:00:00'"),
    ],
)
def test_an_interval_is_a_predicate_for_the_type_of_the_column(kind, predicate):
    grid = Grid("day", "Europe/Berlin")
    assert inside("d", kind, grid.cell(grid.parse("2024-03-31"))) == predicate


def test_the_day_a_zone_skipped_leaves_no_date_between_two_predicates():
    grid = Grid("day", "Pacific/Apia")
    cells = grid.cells(grid.parse("2011-12-29"), grid.parse("2012-01-01"))
    assert [inside("d", "date", cell) for cell in cells] == [
        "`d` >= DATE'2011-12-29' AND `d` < DATE'2011-12-31'",
        "`d` >= DATE'2011-12-31' AND `d` < DATE'2012-01-01'",
    ]


@pytest.mark.parametrize(
    ("value", "predicate"),
    [
        ("EU", "`region` IN ('EU')"),
        (["US", "EU"], "`region` IN ('EU', 'US')"),
        (None, "`region` IS NULL"),
        (["EU", None], "(`region` IN ('EU') OR `region` IS NULL)"),
        ("it's", "`region` IN (CAST(X'69742773' AS STRING))"),
    ],
)
def test_a_share_is_a_predicate(value, predicate):
    assert equal("region", value) == predicate
    assert filter_predicates({"region": value}) == [predicate]


def test_a_share_of_no_values_holds_no_row():
    assert equal("region", []) == "FALSE"


def test_predicates_are_joined():
    assert all_of(["a", "b"]) == "a AND b"


def test_partitions_are_compared_with_null_as_a_value():
    assert (
        one_of([{"a": "1", "b": "NULL"}, {"a": "2", "b": "'x'"}])
        == "(`a` <=> 1 AND `b` <=> NULL OR `a` <=> 2 AND `b` <=> 'x')"
    )
    assert one_of([]) is None
