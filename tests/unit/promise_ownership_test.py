"""Row filters count as disjoint only if no column type makes their values equal."""

from datetime import UTC, date, datetime
from decimal import Decimal
from math import nan

import pytest

import oncelake as once
from oncelake.declare.graph import sort_upstream_first
from oncelake.errors import OverlappingWriters
from oncelake.model.ownership import disjoint

DAY, TIME = date(2024, 3, 14), datetime(2024, 3, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2024", 2024),
        ("2024", "02024"),
        ("2024", "2024.0"),
        ("2024", " 2024"),
        ("1e3", "1000"),
        ("2024-03-14", "2024-3-14"),
        ("2024-03-14", "2024-03-14 00:00:00"),
        ("2024-03-14T01:00:00Z", "2024-03-14T02:00:00+01:00"),
        ("2024", "2024-01-01"),
        ("true", "t"),
        ("yes", "1"),
        ("EU", "eu"),
        (1, True),
        (1, 1.0),
        (1, Decimal("1.5")),
        (0.0, -0.0),
        (nan, float("nan")),
        (2**53, 2**53 + 1),
        (Decimal("1.00000000000000000001"), Decimal("1.00000000000000000002")),
        (DAY, TIME),
        (DAY, "2024-03-14"),
        (TIME, datetime(2024, 3, 15)),
        (None, None),
        (["EU", "US"], ["US", "AS"]),
        (["EU", 1], ["US", "AS"]),
    ],
)
def test_values_that_may_be_equal_are_not_disjoint(one, other):
    assert not disjoint({"y": one}, {"y": other})
    assert not disjoint({"y": other}, {"y": one})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("EU", "US"),
        ("EU", "1"),
        ("0a", "0b"),
        ("2023", "2024"),
        ("-1", "1"),
        ("2024-03-14", "2024-03-15"),
        (2023, 2024),
        (20240314, 20240315),
        (True, False),
        (1.5, 2.5),
        (Decimal("1.5"), Decimal("2.5")),
        (DAY, date(2024, 3, 15)),
        (TIME, datetime(2024, 3, 15, tzinfo=UTC)),
        (None, "EU"),
        (None, 0),
        (["EU", None], ["US", "AS"]),
        ([], "EU"),
    ],
)
def test_values_that_differ_in_every_type_are_disjoint(one, other):
    assert disjoint({"y": one}, {"y": other})
    assert disjoint({"y": other, "x": 1}, {"y": one, "x": 1})


def test_one_column_is_enough_and_other_columns_say_nothing():
    assert disjoint({"y": 1, "region": "EU"}, {"y": "1", "region": "US"})
    assert not disjoint({"y": 1}, {"z": 2})
    assert not disjoint({}, {})


def test_pipelines_whose_filters_differ_by_type_alone_are_refused():
    def pipeline(name, value):
        @once.pipeline(
            name=name,
            every="day",
            start="2024-03-14",
            reads=once.table("raw", time="at"),
            writes=once.replace_interval("t", time="at", within={"y": value}),
        )
        def load(raw):
            return raw

        return load

    with pytest.raises(OverlappingWriters):
        sort_upstream_first([pipeline("one", "2024"), pipeline("two", 2024)])
    assert len(sort_upstream_first([pipeline("one", 2023), pipeline("two", 2024)])) == 2
