"""A changed grid or time zone: markers of the former grid count, and nothing is planned off the present one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

import oncelake as once
from oncelake.declare.pipelines import Schedule, build
from oncelake.model.intervals import Grid, Interval, instant_text, merge, subtract
from oncelake.model.markers import Marker, restate_app_id
from oncelake.model.work import FAILED_BEFORE, STALE, Request
from oncelake.planning.decisions import StalePart
from oncelake.planning.inputs import LakeState
from oncelake.planning.plan import make_plan
from oncelake.testing import MemoryLog
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 3, 17, 1, tzinfo=UTC)
REPLACE = once.replace_interval("t", time="at")
PATTERNS = {
    "replace_interval": REPLACE,
    "append": once.append("t"),
    "merge": once.merge("t", keys="id", latest_by="at"),
}


def at(day, hour=0):
    return datetime(2024, 3, day, tzinfo=UTC) + timedelta(hours=hour)


def hours(day, first, last):
    return [Interval(at(day, hour), at(day, hour + 1)) for hour in range(first, last)]


def daily(pattern=REPLACE, every="day", zone="UTC", start="2024-03-14"):
    schedule = Schedule(every, start, zone)
    reads = once.table("raw", time="at")
    return build(lambda frame: frame, reads, pattern, schedule, name="p", where="p.py:1")


def log_of(*slices, generation=1, log=None, pattern=REPLACE):
    log = log or MemoryLog()
    for slice_ in slices:
        log.add(pattern.marker("p", slice_, generation))
    return log


def plan_of(pipeline, log, stale=(), failed=(), **request):
    known = LakeState({"t": log}, {}, stale=lambda *_: list(stale), failed={"p": list(failed)})
    return make_plan({"p": pipeline}, known, Request(NOW, **request))


def spans(plan, action="run"):
    return [(item.slice, item.generation) for item in plan.works if item.action == action]


def late(day, hour, hours=1):
    return StalePart(instant_text(at(day, hour)), instant_text(at(day, hour + hours)), "late rows")


def test_a_late_row_in_one_hour_redoes_its_whole_day():
    log = log_of(*hours(14, 0, 24))
    plan = plan_of(daily(), log, [late(14, 5)], only=STALE)
    assert spans(plan) == [("[2024-03-14, 2024-03-15)", 2)]
    assert plan.works[0].cause == "stale"


def test_the_generation_of_a_widened_interval_is_above_every_one_under_it():
    log = log_of(*hours(14, 0, 24))
    log_of(*hours(14, 3, 4), generation=4, log=log)
    assert spans(plan_of(daily(), log, [late(14, 5)], only=STALE)) == [("[2024-03-14, 2024-03-15)", 5)]


def test_a_requested_hour_is_its_day():
    log = log_of(*hours(14, 0, 24), generation=3)
    log.add(Marker(restate_app_id("p", "t", hours(14, 5, 6)[0]), 4))
    (item,) = [
        item for item in plan_of(daily(), log).works if item.action == "run" and item.slice.startswith("[2024-03-14")
    ]
    assert (item.slice, item.generation, item.cause) == ("[2024-03-14, 2024-03-15)", 4, "restated")


@pytest.mark.parametrize("kind", ["replace_interval", "merge"])
def test_a_partly_done_day_is_done_as_a_whole(kind):
    log = log_of(*hours(14, 0, 6), generation=2, pattern=PATTERNS[kind])
    plan = plan_of(daily(PATTERNS[kind]), log, date="2024-03-14")
    assert spans(plan) == [("[2024-03-14, 2024-03-15)", 3)]


def test_a_partly_done_day_that_would_be_added_twice_is_refused(tmp_path):
    pattern = PATTERNS["append"]
    write_commit(tmp_path / "t", 0, *(txn(pattern.marker("p", slice_, 1)) for slice_ in hours(14, 0, 6)))
    opened = once.Project.of(daily(pattern), lake=tmp_path)
    (item,) = opened.plan(date="2024-03-14", now=NOW).works
    assert (item.slice, item.action) == ("[2024-03-14, 2024-03-15)", "wait")
    (outcome,) = opened.run(date="2024-03-14", now=NOW).works
    assert (outcome.outcome, outcome.code) == ("failed", "partly_done")


def test_an_undone_part_of_what_was_added_does_not_add_the_rest_again(tmp_path):
    pattern = PATTERNS["append"]
    log = log_of(*hours(14, 0, 24), pattern=pattern)
    log.add(Marker(restate_app_id("p", "t", hours(14, 5, 6)[0]), 2))
    (item,) = plan_of(daily(pattern), log, date="2024-03-14").works
    assert (item.action, item.refusal.code) == ("wait", "partly_done")


def test_a_day_that_its_hours_did_is_one_done_work():
    plan = plan_of(daily(), log_of(*hours(14, 0, 24)), date="2024-03-14")
    assert spans(plan, "skip") == [("[2024-03-14, 2024-03-15)", 1)]
    assert spans(plan) == []


def test_another_zone_plans_days_of_that_zone():
    log = log_of(*(Interval(at(day), at(day + 1)) for day in (14, 15)))
    berlin = daily(zone="Europe/Berlin")
    plan = plan_of(berlin, log)
    assert spans(plan) == [("[2024-03-14, 2024-03-15) Europe/Berlin", 2), ("[2024-03-16, 2024-03-17) Europe/Berlin", 2)]
    assert spans(plan, "skip") == [("[2024-03-15, 2024-03-16) Europe/Berlin", 1)]


BY_DATE = once.replace_interval("t", time="day")
KOLKATA = Grid("day", "Asia/Kolkata")


def in_kolkata(*days, kind="date", pattern=BY_DATE):
    """A log of days in another zone, of a table that is cut by a column of that type."""
    log = log_of(*(KOLKATA.cell(at(day)) for day in days), pattern=pattern)
    log.schema = {"day": kind, "at": "timestamp"}
    return log


def refusals(plan):
    return [(item.slice, item.refusal.code) for item in plan.works if item.action == "wait"]


def test_dates_of_another_zone_are_not_replaced_one_day_at_a_time():
    plan = plan_of(daily(BY_DATE), in_kolkata(14, 15))
    assert refusals(plan) == [("[2024-03-15, 2024-03-16)", "other_timezone")]
    assert spans(plan, "skip") == [("[2024-03-14, 2024-03-15)", 1)]
    assert spans(plan) == [("[2024-03-16, 2024-03-17)", 1)]
    assert "oncelake rebuild t" in str(plan.works[1].refusal)


@pytest.mark.parametrize(
    ("kind", "pattern"), [("date", REPLACE), ("timestamp", BY_DATE), ("date", PATTERNS["merge"])], ids=str
)
def test_instants_and_keys_are_of_no_zone(kind, pattern):
    plan = plan_of(daily(pattern), in_kolkata(14, 15, kind=kind, pattern=pattern))
    assert refusals(plan) == []


@pytest.mark.parametrize(("zone", "refused"), [("Asia/Kolkata", 1), ("UTC", 0)])
def test_a_commit_says_in_which_zone_its_wall_clock_was(zone, refused):
    log = log_of(pattern=BY_DATE)
    log.schema = {"day": "timestamp_ntz"}
    log.add(BY_DATE.marker("p", Interval(at(14), at(15, 18.5)), 1), cut_by=["day", zone])
    assert len(refusals(plan_of(daily(BY_DATE), log))) == refused


def test_an_interval_around_all_dates_of_another_zone_is_redone():
    log = in_kolkata(14)
    assert spans(plan_of(daily(BY_DATE), log))[0] == ("[2024-03-14, 2024-03-15)", 2)


def test_late_rows_among_dates_of_another_zone_are_refused_and_all_of_them_are_redone():
    stale = [late(14, 5)]
    plan = plan_of(daily(BY_DATE), in_kolkata(14, 15), stale, only=STALE)
    assert refusals(plan) == [("[2024-03-14, 2024-03-15)", "other_timezone")]
    log = in_kolkata(14, 15)
    for day in (14, 15):
        log.add(Marker(restate_app_id("p", "t", KOLKATA.cell(at(day))), 2))
    redone = [("[2024-03-14, 2024-03-15)", 2), ("[2024-03-15, 2024-03-16)", 2)]
    assert spans(plan_of(daily(BY_DATE), log))[:2] == redone


def test_what_failed_on_the_former_grid_is_tried_again_on_the_present_one():
    plan = plan_of(daily(), MemoryLog(), failed=hours(14, 5, 6), only=FAILED_BEFORE)
    assert spans(plan) == [("[2024-03-14, 2024-03-15)", 1)]


def test_a_plan_says_that_the_markers_have_another_grid():
    (note,) = plan_of(daily(), log_of(*hours(14, 0, 24))).notes
    assert "another grid" in note
    assert plan_of(daily(), log_of(Interval(at(14), at(15)))).notes == ()
    assert plan_of(daily(every="hour"), log_of(Interval(at(14), at(15)))).notes == ()


def test_status_counts_gaps_on_the_grid_and_warns(tmp_path):
    pipeline = daily()
    write_commit(tmp_path / "t", 0, *(txn(REPLACE.marker("p", slice_, 1)) for slice_ in hours(14, 0, 30)))
    (status,) = once.Project.of(pipeline, lake=tmp_path).status(now=NOW)
    assert (status.done, status.missing) == (1, 2)
    assert [str(gap) for gap in status.gaps] == ["[2024-03-15, 2024-03-17)"]
    assert any("another grid" in warning for warning in status.warnings)


GRIDS = [("hour", "UTC"), ("day", "UTC"), ("day", "Europe/Berlin"), ("day", "America/New_York"), ("week", "UTC")]


def started(every, zone):
    grid = Grid(every, zone)
    start = grid.after(grid.floor(datetime(2024, 3, 1, tzinfo=UTC)))
    return daily(every=every, zone=zone, start=start.isoformat())


@pytest.mark.parametrize("seed", range(40))
def test_any_markers_stale_parts_and_requests_are_planned_on_the_grid_and_converge(seed):
    random = Random(seed)
    log, former, pipeline = MemoryLog(), Grid(*random.choice(GRIDS)), started(*random.choice(GRIDS))
    cells = list(former.cells(former.floor(at(1)), former.floor(at(17))))
    for _ in range(random.randint(0, 30)):
        log.add(REPLACE.marker("p", random.choice(cells), random.randint(1, 3)))
    for _ in range(random.randint(0, 3)):
        log.add(Marker(restate_app_id("p", "t", random.choice(cells)), random.randint(1, 4)))
    stale = [late(random.randint(1, 14), random.randint(0, 23), random.randint(1, 30))]
    only = random.choice([None, STALE])
    plan = plan_of(pipeline, log, stale, only=only)
    grid, planned = pipeline.grid, [item.work.interval for item in plan.works]
    assert all(grid.is_boundary(span.start) and grid.is_boundary(span.end) for span in planned)
    assert sum((span.end - span.start for span in planned), timedelta()) == sum(
        (span.end - span.start for span in merge(planned)), timedelta()
    )
    if only is None:
        assert subtract([plan.pipelines[0].span], planned) == []
    before = MemoryLog(dict(log.markers))
    for item in plan.works:
        if item.action == "run":
            under = [part for part in before.coverage("p", "t") if part.interval.overlaps(item.work.interval)]
            assert item.generation > max((part.generation for part in under), default=0)
            log.add(item.work.marker)
    assert [item for item in plan_of(pipeline, log, only=only).works if item.action == "run"] == []
    assert replace(pipeline) == pipeline


@pytest.mark.parametrize(
    ("pattern", "there", "noted"),
    [
        (once.append("t", partition_by="day"), ("day",), False),
        (once.append("t", partition_by="Day"), ("day",), False),
        (once.append("t", partition_by="day"), ("region",), True),
        (once.append("t", partition_by="day"), (), True),
        (once.append("t"), ("day",), True),
        (once.replace_partitions("t", by=["day", "region"]), ("region", "day"), False),
        (once.replace_partitions("t", by="day"), ("region",), True),
    ],
)
def test_a_plan_says_that_the_table_is_partitioned_otherwise(pattern, there, noted):
    log = log_of(Interval(at(14), at(15)), pattern=pattern)
    log.partitioned_by = there
    notes = plan_of(daily(pattern), log).notes
    assert len(notes) == int(noted)
    assert all("partitioned by" in note for note in notes)
