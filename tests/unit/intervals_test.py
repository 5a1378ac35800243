"""Intervals, the grids they lie on and the arithmetic over them, against brute force."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelake.model.coverage import Coverage, align, clip, resolve_overlaps
from oncelake.model.intervals import (
    EVERY,
    Grid,
    Interval,
    covers,
    instant_text,
    merge,
    missing,
    parse_interval,
    subtract,
)
from oncelake.model.slices import Whole, slice_options

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
)
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
thorough = settings(deadline=None, max_examples=200)


def ticks(start, end):
    return Interval(EPOCH + timedelta(hours=start), EPOCH + timedelta(hours=end))


def hours(intervals):
    """The brute-force model: an interval is the set of the hours in it."""
    return {
        hour
        for interval in intervals
        for hour in range(
            int((interval.start - EPOCH).total_seconds()) // 3600, int((interval.end - EPOCH).total_seconds()) // 3600
        )
    }


an_interval = st.builds(lambda start, length: ticks(start, start + length), st.integers(0, 40), st.integers(1, 12))
some_intervals = st.lists(an_interval, max_size=8)
grids = st.builds(Grid, st.sampled_from(EVERY), st.sampled_from(ZONES))
instants = st.datetimes(datetime(2009, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@thorough
@given(some_intervals)
def test_merge_keeps_the_instants_and_leaves_nothing_that_touches(intervals):
    merged = merge(intervals)
    assert hours(merged) == hours(intervals)
    assert all(one.end < following.start for one, following in pairwise(merged))


@thorough
@given(some_intervals, some_intervals)
def test_subtract_leaves_what_is_not_taken(intervals, taken):
    left = subtract(intervals, taken)
    assert hours(left) == hours(intervals) - hours(taken)
    assert all(one.end <= following.start for one, following in pairwise(left))


@thorough
@given(some_intervals, an_interval)
def test_covers_is_the_subset_of_instants(intervals, wanted):
    assert covers(intervals, wanted) == (hours([wanted]) <= hours(intervals))


@thorough
@given(st.lists(st.integers(0, 40), unique=True, max_size=12), some_intervals)
def test_missing_are_the_cells_not_wholly_done_in_their_order(starts, done):
    cells = [ticks(start, start + 1) for start in sorted(starts)]
    assert missing(cells, done) == [cell for cell in cells if not hours([cell]) <= hours(done)]


@thorough
@given(some_intervals)
def test_missing_with_cells_of_several_hours(done):
    cells = [ticks(start, start + 4) for start in range(0, 52, 4)]
    assert missing(cells, done) == [cell for cell in cells if not hours([cell]) <= hours(done)]


@thorough
@given(an_interval, an_interval)
def test_overlaps_is_sharing_an_instant(one, other):
    assert one.overlaps(other) == bool(hours([one]) & hours([other]))


@thorough
@given(grids, instants, st.integers(1, 40))
def test_cells_tile_a_range_without_gap_or_overlap(grid, instant, count):
    start = grid.floor(instant)
    end = start
    for _ in range(count):
        end = grid.after(end)
    cells = list(grid.cells(start, end))
    assert len(cells) == count
    assert (cells[0].start, cells[-1].end) == (start, end)
    assert all(one.end == following.start for one, following in pairwise(cells))
    assert all(grid.is_boundary(cell.start) and grid.is_boundary(cell.end) for cell in cells)


@thorough
@given(grids, instants)
def test_the_cell_of_an_instant_holds_it(grid, instant):
    cell = grid.cell(instant)
    assert cell.start <= instant < cell.end


@thorough
@given(grids, instants)
def test_floor_is_idempotent(grid, instant):
    assert grid.floor(grid.floor(instant)) == grid.floor(instant)


@thorough
@given(grids, instants, instants)
def test_floor_never_swaps_two_instants(grid, one, other):
    earlier, later = sorted([one, other])
    assert grid.floor(earlier) <= grid.floor(later)


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Goose_Bay"])
def test_a_cell_holds_its_instants_where_clocks_go_back_over_midnight(zone):
    instant = datetime(2010, 11, 6, 23, 30, tzinfo=ZoneInfo(zone), fold=1).astimezone(UTC)
    cell = Grid("day", zone).cell(instant)
    assert cell.start <= instant < cell.end


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("every", EVERY)
def test_years_are_tiled_in_every_zone(every, zone):
    grid = Grid(every, zone)
    start, end = grid.floor(datetime(2009, 6, 15, tzinfo=UTC)), grid.floor(datetime(2012, 6, 15, tzinfo=UTC))
    cells = list(grid.cells(start, end))
    assert merge(cells) == [Interval(start, end)]
    assert sum((cell.end - cell.start for cell in cells), timedelta()) == end - start


@pytest.mark.parametrize(
    ("zone", "day", "length"),
    [
        ("Europe/Berlin", "2024-03-31", 23),
        ("Europe/Berlin", "2024-10-27", 25),
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("America/Sao_Paulo", "2018-11-04", 23),
        ("America/Sao_Paulo", "2018-02-17", 25),
        ("Australia/Lord_Howe", "2024-04-07", 24.5),
        ("Australia/Lord_Howe", "2024-10-06", 23.5),
        ("Asia/Kolkata", "2024-03-31", 24),
    ],
)
def test_a_day_on_which_the_clocks_change_is_one_interval(zone, day, length):
    grid = Grid("day", zone)
    start = grid.parse(day)
    (cell,) = grid.cells(start, grid.after(start))
    assert cell.end - cell.start == timedelta(hours=length)
    assert cell.local_start.date() == date.fromisoformat(day)


def test_a_day_of_23_hours_has_23_hours_of_its_own():
    day = Grid("day", "Europe/Berlin").cell(datetime(2024, 3, 31, 12, tzinfo=UTC))
    assert len(list(Grid("hour", "Europe/Berlin").cells(day.start, day.end))) == 23


def test_a_day_a_zone_skipped_is_no_interval():
    grid = Grid("day", "Pacific/Apia")
    cells = list(grid.cells(grid.parse("2011-12-28"), grid.parse("2012-01-02")))
    assert [cell.local_start.date().day for cell in cells] == [28, 29, 31, 1]
    assert all(cell.end - cell.start == timedelta(hours=24) for cell in cells)
    assert grid.parse("2011-12-30") == grid.parse("2011-12-31")


def test_a_day_without_a_midnight_begins_when_the_clocks_jump():
    cell = Grid("day", "America/Sao_Paulo").cell(datetime(2018, 11, 4, 12, tzinfo=UTC))
    assert cell.start == datetime(2018, 11, 4, 3, tzinfo=UTC)
    assert cell.local_start.hour == 1


def test_hours_of_a_zone_that_is_half_an_hour_off_begin_at_half_past():
    assert Grid("hour", "Asia/Kolkata").floor(datetime(2024, 3, 15, 7, 45, tzinfo=UTC)).minute == 30


def test_weeks_begin_on_monday():
    cell = Grid("week").cell(datetime(2024, 3, 15, tzinfo=UTC))
    assert str(cell) == "[2024-03-11, 2024-03-18)"


def test_months_have_their_own_lengths():
    grid = Grid("month")
    cells = grid.cells(grid.parse("2024-01-01"), grid.parse("2024-05-01"))
    assert [(cell.end - cell.start).days for cell in cells] == [31, 29, 31, 30]


@pytest.mark.parametrize(
    ("grid", "instant", "shown"),
    [
        (Grid("day"), "2024-03-15", "[2024-03-15, 2024-03-16)"),
        (Grid("hour"), "2024-03-15T06:00", "[2024-03-15T06:00, 2024-03-15T07:00)"),
        (Grid("day", "Europe/Berlin"), "2024-03-31", "[2024-03-31, 2024-04-01) Europe/Berlin"),
        (
            Grid("hour", "Europe/Berlin"),
            "2024-10-27T02:00",
            "[2024-10-27T02:00+0200, 2024-10-27T02:00+0100) Europe/Berlin",
        ),
    ],
)
def test_intervals_are_printed_half_open_in_their_zone(grid, instant, shown):
    assert str(grid.cell(grid.parse(instant))) == shown


@thorough
@given(grids, instants)
def test_the_text_of_an_interval_is_read_back(grid, instant):
    cell = grid.cell(instant)
    assert parse_interval(cell.text) == cell


@thorough
@given(instants, st.timedeltas(timedelta(microseconds=1), timedelta(days=900)))
def test_the_text_of_any_interval_is_read_back(start, length):
    interval = Interval(start, start + length)
    assert parse_interval(interval.text) == interval


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whole",
        "2024-01-01..2024-01-02",
        "2024-01-02T00:00:00Z..2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z..2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z..2024-01-02T00:00:00Z..2024-01-03T00:00:00Z",
    ],
)
def test_text_of_no_interval_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  whoever calls it catches just that
        parse_interval(text)


def test_an_interval_is_the_same_in_every_zone_it_is_shown_in():
    berlin = Grid("day", "Europe/Berlin").cell(datetime(2024, 3, 15, tzinfo=UTC))
    assert berlin == Interval(berlin.start, berlin.end)
    assert hash(berlin) == hash(Interval(berlin.start, berlin.end))


def test_equal_wall_clock_times_that_are_different_instants_make_an_interval():
    zone = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold) for fold in (0, 1))
    interval = Interval(first, second)
    assert interval.end - interval.start == timedelta(hours=1)


def test_an_interval_needs_zones():
    with pytest.raises(ValueError, match="zone"):
        Interval(datetime(2024, 1, 1), datetime(2024, 1, 2))


@pytest.mark.parametrize("value", ["2024-03-15", " 2024-03-15 ", date(2024, 3, 15), datetime(2024, 3, 15)])
def test_a_date_without_a_zone_is_the_grids_own(value):
    assert Grid("day", "Europe/Berlin").parse(value) == datetime(2024, 3, 14, 23, tzinfo=UTC)


def test_a_time_with_a_zone_keeps_it():
    assert Grid("hour", "Europe/Berlin").parse("2024-03-15T06:00Z") == datetime(2024, 3, 15, 6, tzinfo=UTC)


@pytest.mark.parametrize("value", ["", "tomorrow", "2024-02-30", "2024-13-01", "15.03.2024", "2024-03-15T25:00"])
def test_what_is_no_date_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011  whoever calls it catches just that
        Grid("day").parse(value)


@pytest.mark.parametrize(("zone", "value"), [("UTC", 20240101), ("UTC", True), ("Europe/Berlin", "0001-01-01")])
def test_what_cannot_be_an_instant_is_refused(zone, value):
    with pytest.raises((ValueError, TypeError)):
        Grid("day", zone).parse(value)


@pytest.mark.parametrize("every", ["", "days", "Day", "minute", None, 1])
def test_a_grid_that_does_not_exist_is_refused(every):
    with pytest.raises(ValueError, match="every="):
        Grid(every)


@pytest.mark.parametrize(
    "zone", ["", "Berlin", "Europe", "Europe/Berlín", "../../etc/passwd", "/etc/localtime", "a\0b"]
)
def test_a_zone_that_does_not_exist_is_refused(zone):
    with pytest.raises(ValueError, match="timezone="):
        Grid("day", zone)


def test_instants_are_spelled_in_one_way():
    berlin = datetime(2024, 3, 15, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant_text(berlin) == "2024-03-15T00:00:00Z"


# Layers: stretches of time that lie over each other

HOURS = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(12)]


def covered(start, end, generation, name=""):
    return Coverage(
        instant_text(HOURS[start]), instant_text(HOURS[end]), generation, name or f"{start}-{end}@{generation}"
    )


coverage = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(1, 3))
    .filter(lambda found: found[0] < found[1])
    .map(lambda found: covered(*found)),
    max_size=6,
)


def at(hour, found):
    """The layers over the middle of an hour."""
    instant = instant_text(HOURS[hour])
    return [each for each in found if each.start <= instant < each.end]


@given(coverage)
def test_the_topmost_layers_are_disjoint_and_the_highest_everywhere(given_layers):
    found = resolve_overlaps(given_layers)
    assert all(one.end <= other.start for one, other in pairwise(found))
    for hour in range(11):
        generations = [each.generation for each in at(hour, given_layers)]
        assert [each.generation for each in at(hour, found)] == ([max(generations)] if generations else [])


@given(coverage, coverage)
def test_overlaid_rows_are_cut_wherever_one_changes(one, other):
    rows = [resolve_overlaps(one), resolve_overlaps(other)]
    pieces = list(align(*rows))
    assert all(before[1] <= after[0] for before, after in pairwise(pieces))
    for hour in range(11):
        instant = instant_text(HOURS[hour])
        over = [found for start, end, found in pieces if start <= instant < end]
        expected = tuple(next(iter(at(hour, row)), None) for row in rows)
        assert over == ([expected] if any(expected) else [])


@given(coverage, st.integers(0, 10), st.integers(1, 11))
def test_clipped_layers_lie_in_the_span_and_lose_nothing_of_it(given_layers, start, length):
    span = Interval(HOURS[start], HOURS[min(11, start + length)])
    there = resolve_overlaps(given_layers)
    found = clip(there, span)
    assert all(span.start <= each.interval.start < each.interval.end <= span.end for each in found)
    for hour in range(start, min(11, start + length)):
        assert len(at(hour, found)) == len(at(hour, there))


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata"])
def test_a_step_of_many_cells_is_many_steps_of_one(every, zone):
    grid = Grid(every, zone)
    start = grid.floor(datetime(2018, 10, 20, tzinfo=UTC))
    line = start
    for cells in range(1, 40):
        line = grid.after(line)
        assert grid.step(start, cells) == line


def test_around_is_the_cells_that_an_interval_touches():
    grid = Grid("day")
    part = Interval(datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 2, 1, tzinfo=UTC))
    assert str(grid.around(part)) == "[2024-01-01, 2024-01-03)"
    assert str(grid.around(grid.cell(part.start))) == "[2024-01-01, 2024-01-02)"


@pytest.mark.parametrize(
    ("every", "zone", "end", "options"),
    [
        ("day", "Asia/Kolkata", "2024-03-15", " --date 2024-03-14"),
        ("day", "UTC", "2024-03-16", " --from 2024-03-14 --to 2024-03-16"),
        ("hour", "Asia/Tokyo", "2024-03-14T01:00", " --date 2024-03-13T15:00:00Z"),
        ("hour", "UTC", "2024-03-15", " --from 2024-03-14T00:00:00Z --to 2024-03-15T00:00:00Z"),
    ],
)
def test_the_options_of_a_command_name_exactly_a_slice(every, zone, end, options):
    grid = Grid(every, zone)
    assert slice_options(Interval(grid.parse("2024-03-14"), grid.parse(end), zone), grid) == options
    assert slice_options(Whole(), None) == ""
