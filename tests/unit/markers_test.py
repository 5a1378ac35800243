"""Markers: no two works share one, and everybody can read back whose it is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker, app_id, marker, newest_reload, parse_app_id, reload_generation, reload_marker
from oncelake.model.names import table_name_problem
from oncelake.model.slices import Named, Whole, parse_slice

thorough = settings(deadline=None, max_examples=200)
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

# Few letters, many signs: what could make two names look alike is what is tried most.
names = st.text(st.sampled_from("ab/%=.2F5'\"`\\ é日\u200b:,+@~"), max_size=6) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)
intervals = st.builds(
    lambda start, length: Interval(EPOCH + timedelta(hours=start), EPOCH + timedelta(hours=start + length)),
    st.integers(0, 5),
    st.integers(1, 5),
)
slices = st.just(Whole()) | st.builds(Named, names | st.just("whole")) | intervals
works = st.tuples(names, names, slices, st.integers(1, 3))


@thorough
@given(works, works)
def test_no_two_works_share_a_marker(one, other):
    assume(one != other)
    assert marker(*one) != marker(*other)


@thorough
@given(names, names, names, names)
def test_a_slash_or_a_percent_sign_moves_nothing_from_one_part_to_the_next(one, two, three, four):
    assume((f"{one}/{two}", f"{three}/{four}") != (f"{one}/{two}/{three}", four))
    assert app_id(f"{one}/{two}", f"{three}/{four}", Whole()) != app_id(f"{one}/{two}/{three}", four, Whole())
    assert app_id(f"{one}%2F{two}", three, Whole()) != app_id(f"{one}/{two}", three, Whole())


@thorough
@given(names, names, slices)
def test_an_app_id_is_read_back(pipeline, target, slice_):
    assert parse_app_id(app_id(pipeline, target, slice_)) == (pipeline, target, slice_)


@thorough
@given(slices)
def test_a_slice_is_read_back(slice_):
    assert parse_slice(slice_.text) == slice_


def test_a_named_slice_is_never_taken_for_the_whole_or_an_interval():
    day = Grid("day").cell(EPOCH)
    named = {app_id("p", "t", Named(name)) for name in ("whole", day.text, "=whole")}
    assert not named & {app_id("p", "t", Whole()), app_id("p", "t", day)}


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "once",
        "once/orders/silver.orders",
        "once/orders/silver.orders/",
        "once/orders/silver.orders/today",
        "once/orders/silver.orders/2024-01-01",
        "once/orders/silver.orders/2024-01-02T00:00:00Z..2024-01-01T00:00:00Z",
        "once/orders/silver.orders/whole/more",
        "other/orders/silver.orders/whole",
        "a3f1c2d4-0000-4000-8000-000000000000",
        "dbt/orders",
    ],
)
def test_a_foreign_app_id_is_nobodys(foreign):
    assert parse_app_id(foreign) is None


def test_an_app_id_with_an_instant_before_all_calendars_is_nobodys():
    assert parse_app_id("once/p/t/0001-01-01T00:00:00+05:00..0002-01-01T00:00:00+05:00") is None


@thorough
@given(st.text(max_size=30))
def test_no_text_breaks_the_reading_of_app_ids(text):
    for app in (text, f"once/a/b/{text}", f"once/{text}/b/whole"):
        found = parse_app_id(app)
        assert found is None or len(found) == 3


def test_a_retry_has_the_same_marker_and_a_redo_the_next():
    day = Grid("day").cell(EPOCH)
    assert marker("p", "t", day, 1) == marker("p", "t", day, 1)
    assert marker("p", "t", day, 2) == Marker(marker("p", "t", day, 1).app_id, 2)


def test_an_older_day_is_not_done_because_a_newer_one_is():
    days = Grid("day").cells(EPOCH, EPOCH + timedelta(days=3))
    assert len({marker("p", "t", day, 1).app_id for day in days}) == 3


@thorough
@given(intervals, intervals, st.integers(1, 999), st.integers(1, 999))
def test_a_later_reload_is_later_whatever_the_generations(one, other, generation, another):
    assume(one.start < other.start)
    earlier, later = reload_marker("p", "t", one, generation), reload_marker("p", "t", other, another)
    assert earlier.app_id == later.app_id
    assert earlier.version < later.version


@thorough
@given(intervals, st.integers(1, 998))
def test_a_redone_reload_is_later_than_what_it_redoes(interval, generation):
    first, second = (reload_marker("p", "t", interval, number) for number in (generation, generation + 1))
    assert first.version < second.version < 2**63


@thorough
@given(intervals, st.integers(1, 999))
def test_the_generation_of_a_reload_is_read_back(interval, generation):
    recorded = reload_marker("p", "t", interval, generation).version
    assert (newest_reload(recorded), reload_generation(recorded)) == (interval.start, generation)


@pytest.mark.parametrize("slice_", [Whole(), Named("nightly")])
def test_a_reload_without_an_interval_is_marked_like_any_work(slice_):
    assert reload_marker("p", "t", slice_, 4) == marker("p", "t", slice_, 4)
    assert newest_reload(reload_marker("p", "t", slice_, 4).version) is None


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "silver.orders",
        "a.b.c",
        "größe.日本",
        "it's",
        'say "x"',
        "a`b",
        "a b",
        "a-b",
        "a=b",
        "a+b@c",
        "x_y",
        "1",
    ],
)
def test_a_table_may_be_named(name):
    assert table_name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            ".",
            "..",
            "a.",
            ".a",
            "a..b",
            "../x",
            "..\\x",
            "a/b",
            "/a",
            "a\\b",
            "_x",
            "a._x",
            "_oncelake.ledger",
        ),
        *(" a", "a ", "a. b", "a\tb", "a\nb", "a\0b", "\x7f", "a*", "a?", "{a}", "[a]", "s3:a", "a%2Fb", "a#b"),
        *(None, 5, b"a", ["a"]),
    ],
)
def test_a_table_may_not_be_named(name):
    assert table_name_problem(name)


@thorough
@given(st.text(max_size=12))
def test_a_table_that_may_be_named_stays_in_the_lake(name):
    assume(table_name_problem(name) is None)
    for part in name.split("."):
        assert part not in ("", ".", "..")
        assert "/" not in part
        assert "\\" not in part
        assert part[0] not in "_."
