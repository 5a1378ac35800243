"""Plans are pure: declarations, what the logs say and a request go in."""

from datetime import UTC, datetime

import pytest

from oncelake import testing
from oncelake.declare.graph import sort_upstream_first
from oncelake.declare.pipelines import Schedule, build
from oncelake.errors import BadRange, UnknownPipeline
from oncelake.model.intervals import Grid, Interval, instant_text
from oncelake.model.markers import Marker, app_id, restate_app_id
from oncelake.model.slices import Whole
from oncelake.model.work import RESTATED, Request
from oncelake.patterns import append, overwrite, replace_interval
from oncelake.planning.plan import LakeState, make_plan
from oncelake.sources import table

NOW = datetime(2024, 1, 5, 6, 30, tzinfo=UTC)
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]


class MemoryLog(testing.MemoryLog):
    """A target's log in memory, with the pins of its commits."""

    def add(self, marker, pins=None):
        return super().add(marker, **({} if pins is None else {"pins": pins}))


def a_pipeline(name, reads, writes, every="day", start="2024-01-01", zone="UTC"):
    return build(lambda frame: frame, reads, writes, Schedule(every, start, zone), name=name, where=f"{name}.py:1")


def daily(name="orders", reads=None, writes=None, **schedule):
    reads, writes = reads or table("bronze", time="at"), writes or replace_interval("silver", time="day")
    return a_pipeline(name, reads, writes, **schedule)


def whole(name="gold", reads="silver", writes="gold"):
    return a_pipeline(name, table(reads), overwrite(writes), every=None, start=None)


def day(text, pipeline=None):
    grid = (pipeline or daily()).grid
    return grid.cell(grid.parse(text))


def done(pipeline, *cells, generation=1, log=None):
    """A log in which the pipeline's only target has these cells."""
    log = log or MemoryLog()
    (pattern,) = pipeline.writes
    for cell in cells:
        log.add(pattern.marker(pipeline.name, cell, generation))
    return log


def plan_of(*pipelines, logs=None, pins=None, names=(), now=NOW, **asked):
    return make_plan(
        sort_upstream_first(pipelines), LakeState(logs or {}, pins or {}), Request(now, tuple(names), **asked)
    )


def actions(plan):
    return [(item.work.pipeline, item.action) for item in plan.works]


def starts(plan, action="run"):
    """The days that are planned, whether or not they are written together."""
    spans = [item.work.interval for item in plan.works if item.action == action]
    return [instant_text(cell.start)[:10] for span in spans for cell in Grid("day").cells(span.start, span.end)]


def refused(*pipelines, **asked):
    with pytest.raises(BadRange) as caught:
        plan_of(*pipelines, **asked)
    assert caught.value.code == "bad_range"
    assert caught.value.exit_code == 2
    return caught.value.facts


# What a request covers


def test_everything_due_is_every_interval_that_is_over_oldest_first():
    plan = plan_of(daily())
    assert starts(plan) == DAYS
    assert [(scope.intervals, str(scope.span)) for scope in plan.pipelines] == [(4, "[2024-01-01, 2024-01-05)")]
    assert len(plan.to_do) == 1


def test_an_interval_is_due_the_moment_it_is_over():
    assert starts(plan_of(daily(), now=datetime(2024, 1, 5, tzinfo=UTC))) == DAYS
    assert starts(plan_of(daily(), now=datetime(2024, 1, 4, 23, 59, 59, tzinfo=UTC))) == DAYS[:3]


def test_nothing_is_due_before_the_first_interval_is_over():
    plan = plan_of(daily(start="2024-02-01"))
    assert (plan.works, plan.pipelines[0].span, plan.pipelines[0].intervals) == ((), None, 0)


def test_a_date_is_its_interval():
    assert starts(plan_of(daily(), date="2024-01-03")) == ["2024-01-03"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"start": "2024-01-02", "end": "2024-01-04"}, DAYS[1:3]),
        ({"start": "2024-01-03"}, DAYS[2:]),
        ({"end": "2024-01-03"}, DAYS[:2]),
        ({"start": "2024-01-01", "end": "2024-01-05"}, DAYS),
    ],
)
def test_the_end_of_a_range_is_exclusive(asked, expected):
    plan = plan_of(daily(), **asked)
    assert starts(plan) == expected
    assert plan.pipelines[0].intervals == len(expected)


def test_the_part_of_a_range_that_is_not_over_is_left_out_with_a_note():
    plan = plan_of(daily(), start="2024-01-03", end="2024-01-10")
    assert starts(plan) == DAYS[2:]
    assert len(plan.notes) == 1


def test_a_bare_date_on_a_grid_of_hours_is_all_its_hours():
    plan = plan_of(daily(every="hour", writes=append("silver")), date="2024-01-03")
    assert len(plan.works) == 24
    assert str(plan.pipelines[0].span) == "[2024-01-03, 2024-01-04)"


def test_a_date_with_a_time_on_a_grid_of_hours_is_one_hour():
    (item,) = plan_of(daily(every="hour", writes=append("silver")), date="2024-01-03T06:00").works
    assert str(item.work.slice) == "[2024-01-03T06:00, 2024-01-03T07:00)"


@pytest.mark.parametrize(("date", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-07-01", 24)])
def test_a_bare_date_has_the_hours_of_its_day(date, hours):
    hourly = daily(every="hour", writes=append("silver"), zone="Europe/Berlin")
    assert len(plan_of(hourly, date=date, now=datetime(2025, 1, 1, tzinfo=UTC)).works) == hours


def test_a_date_is_one_of_the_pipelines_own_zone():
    (item,) = plan_of(daily(zone="Europe/Berlin"), date="2024-01-03").works
    assert item.work.slice.start == datetime(2024, 1, 2, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "asked"),
    [
        ("day", {"date": "2024-01-03T06:00"}),
        ("day", {"start": "2024-01-03T00:00:01"}),
        ("day", {"end": "2024-01-03T12:00"}),
        ("week", {"date": "2024-01-03"}),
        ("month", {"start": "2024-01-02"}),
        ("hour", {"date": "2024-01-03T06:30"}),
        ("day", {"date": "2024-01-03T00:00+01:00"}),
    ],
)
def test_a_time_off_the_grid_is_refused(every, asked):
    refused(daily(every=every, writes=overwrite("silver")), **asked)


@pytest.mark.parametrize("text", ["", "tomorrow", "2024-02-30", "03/01/2024", "2024-1-3", "20240101T"])
@pytest.mark.parametrize("option", ["date", "start", "end"])
def test_what_is_no_date_is_refused(option, text):
    refused(daily(), **{option: text})


@pytest.mark.parametrize(("zone", "date"), [("Europe/Berlin", "0001-01-01"), ("UTC", "9999-12-31")])
def test_a_date_at_the_end_of_the_calendar_is_refused(zone, date):
    refused(daily(zone=zone), date=date)


@pytest.mark.parametrize("end", ["2024-01-03", "2024-01-02", "2023-01-01"])
def test_a_range_that_ends_before_it_starts_is_refused(end):
    refused(daily(), start="2024-01-03", end=end)


@pytest.mark.parametrize(
    "asked", [{"date": "2023-12-31"}, {"start": "2023-12-31"}, {"start": "2023-01-01", "end": DAYS[2]}]
)
def test_what_lies_before_the_start_is_refused(asked):
    assert "2024-01-01" in refused(daily(), **asked)["next"]


@pytest.mark.parametrize(
    "asked", [{"date": "2024-01-05"}, {"date": "2030-01-01"}, {"start": "2024-01-05", "end": "2024-01-06"}]
)
def test_what_is_not_over_yet_is_refused(asked):
    refused(daily(), **asked)


@pytest.mark.parametrize("asked", [{"start": "2030-01-01"}, {"end": "2023-01-01"}])
def test_a_half_open_range_that_holds_nothing_is_refused(asked):
    refused(daily(), **asked)


# Names


def test_only_the_named_pipelines_are_planned_upstream_first():
    pipelines = [whole("a", "silver", "x"), daily(), daily("other", writes=append("y"))]
    plan = plan_of(*pipelines, names=["a", "orders"], date="2024-01-03")
    assert actions(plan) == [("orders", "run"), ("a", "run")]


def test_an_unknown_pipeline_is_refused_with_a_guess():
    with pytest.raises(UnknownPipeline) as caught:
        plan_of(daily(), whole(), names=["order"])
    assert caught.value.code == "unknown_pipeline"
    assert (caught.value.facts["name"], caught.value.facts["known"]) == ("order", "orders, gold")
    assert "'orders'" in caught.value.facts["did_you_mean"]


def test_an_unknown_pipeline_like_no_other_is_refused_without_a_guess():
    with pytest.raises(UnknownPipeline) as caught:
        plan_of(daily(), names=["zzz"])
    assert caught.value.facts["did_you_mean"] == ""


# What is done


def test_what_is_done_is_skipped():
    orders = daily()
    plan = plan_of(orders, logs={"silver": done(orders, day(DAYS[0]), day(DAYS[2]))})
    assert starts(plan, "skip") == [DAYS[0], DAYS[2]]
    assert starts(plan) == [DAYS[1], DAYS[3]]


def test_an_older_interval_is_not_done_because_a_newer_one_is():
    orders = daily()
    assert starts(plan_of(orders, logs={"silver": done(orders, day(DAYS[3]))})) == DAYS[:3]


def test_a_range_that_is_done_covers_its_cells():
    orders = daily()
    covering = Interval(day(DAYS[0]).start, day(DAYS[2]).end)
    plan = plan_of(orders, logs={"silver": done(orders, covering)})
    assert starts(plan, "skip") == DAYS[:3]
    assert starts(plan) == DAYS[3:]
    assert {item.work.generation for item in plan.works} == {1}


def test_a_cell_that_a_range_covers_in_part_is_not_done():
    orders = daily()
    part = Interval(day(DAYS[0]).start, datetime(2024, 1, 2, 12, tzinfo=UTC))
    assert starts(plan_of(orders, logs={"silver": done(orders, part)})) == DAYS[1:]


def test_a_cell_is_done_by_the_smaller_ones_in_it():
    orders = daily()
    halves = [
        Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=UTC)),
        Interval(datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)),
    ]
    assert starts(plan_of(orders, logs={"silver": done(orders, *halves)})) == DAYS[1:]


def test_what_another_pipeline_did_to_the_table_is_not_ours():
    orders = daily()
    log = done(daily("others", writes=append("silver")), *(day(text) for text in DAYS))
    assert starts(plan_of(orders, logs={"silver": log})) == DAYS


def test_a_restated_interval_is_done_in_its_generation():
    orders = daily()
    (item,) = plan_of(orders, logs={"silver": done(orders, day(DAYS[1]), generation=3)}, date=DAYS[1]).works
    assert (item.action, item.work.generation) == ("skip", 3)


def test_a_work_is_planned_per_target_and_only_what_is_missing_of_it_runs():
    two = daily(writes=[append("one"), append("two")])
    one_done = MemoryLog().add(two.writes[0].marker("orders", day(DAYS[1]), 1))
    plan = plan_of(two, logs={"one": one_done}, date=DAYS[1])
    assert [(item.work.target, item.action) for item in plan.works] == [("one", "skip"), ("two", "run")]


@pytest.mark.parametrize(("every", "slice_"), [("day", day(DAYS[1])), (None, Whole())])
def test_a_restated_target_takes_along_a_sibling_that_is_missing_and_none_that_is_done(every, slice_):
    start = every and "2024-01-01"
    writes = [overwrite(name) for name in ("one", "two", "three")]
    three = a_pipeline("orders", table("bronze"), writes, every=every, start=start)
    requested, done_once = (MemoryLog().add(three.pattern(t).marker("orders", slice_, 1), {}) for t in ("one", "three"))
    requested.add(Marker(restate_app_id("orders", "one", slice_), 2))
    logs, pins = {"one": requested, "three": done_once}, {"orders": {}}
    plan = plan_of(three, logs=logs, pins=pins, only=RESTATED)
    running = [(item.work.target, item.work.generation) for item in plan.works if item.action == "run"]
    assert running == [("one", 2), ("two", 1)]
    assert plan_of(three, logs={"three": done_once}, pins=pins, only=RESTATED).works == ()


def test_planning_changes_nothing_and_gives_the_same_plan_twice():
    orders = daily()
    log = done(orders, day(DAYS[0]))
    before = dict(log.markers)
    assert plan_of(orders, logs={"silver": log}) == plan_of(orders, logs={"silver": log})
    assert log.markers == before


# Reloads with intervals


def test_an_older_reload_counts_as_done_when_a_newer_one_is_in_place():
    reload = daily(writes=overwrite("silver"))
    plan = plan_of(reload, logs={"silver": done(reload, day(DAYS[2]), generation=2)})
    assert [(item.action, item.work.generation) for item in plan.works] == [("skip", 1), ("skip", 2), ("run", 1)]
    assert starts(plan, "skip") == DAYS[:3]


# Pipelines without intervals


def test_a_whole_that_was_never_done_runs():
    plan = plan_of(whole(), pins={"gold": {"frame": {"version": 3}}})
    assert actions(plan) == [("gold", "run")]
    assert (plan.works[0].work.slice, plan.works[0].work.generation) == (Whole(), 1)
    assert plan.pipelines[0].intervals == 1


def test_a_whole_whose_inputs_are_unchanged_is_skipped():
    gold, pins = whole(), {"frame": {"version": 3}}
    log = MemoryLog().add(gold.writes[0].marker("gold", Whole(), 2), pins)
    (item,) = plan_of(gold, logs={"gold": log}, pins={"gold": pins}).works
    assert (item.action, item.work.generation) == ("skip", 2)


def test_a_whole_whose_inputs_changed_runs_as_the_next_generation():
    gold = whole()
    log = MemoryLog().add(gold.writes[0].marker("gold", Whole(), 2), {"frame": {"version": 3}})
    (item,) = plan_of(gold, logs={"gold": log}, pins={"gold": {"frame": {"version": 4}}}).works
    assert (item.action, item.work.generation) == ("run", 3)
    assert item.work.marker == gold.writes[0].marker("gold", Whole(), 3)


@pytest.mark.parametrize("pins", [{"frame": {"version": 3}}, None])
def test_a_whole_whose_facts_are_gone_runs_again(pins):
    gold = whole()
    log = MemoryLog({app_id("gold", "gold", Whole()): 2})
    (item,) = plan_of(gold, logs={"gold": log}, pins={"gold": pins}).works
    assert (item.action, item.work.generation) == ("run", 3)


def test_a_whole_whose_inputs_cannot_be_pinned_runs_and_will_say_why():
    gold = whole()
    log = MemoryLog().add(gold.writes[0].marker("gold", Whole(), 1), {"frame": {"version": 3}})
    assert actions(plan_of(gold, logs={"gold": log}, pins={"gold": None})) == [("gold", "run")]


def test_a_whole_runs_again_when_what_it_reads_is_written_in_the_same_plan():
    orders, gold, pins = daily(), whole(), {"frame": {"version": 3}}
    logs = {
        "silver": done(orders, *(day(text) for text in DAYS[:3])),
        "gold": MemoryLog().add(gold.writes[0].marker("gold", Whole(), 1), pins),
    }
    plan = plan_of(orders, gold, logs=logs, pins={"gold": pins})
    assert (plan.works[-1].work.pipeline, plan.works[-1].action) == ("gold", "run")


# Waiting for upstream


def downstream(name="report", reads="silver", writes="report", **schedule):
    return daily(name, table(reads, time="day"), replace_interval(writes, time="day"), **schedule)


def test_what_upstream_has_not_done_and_will_not_do_is_waited_for():
    plan = plan_of(daily(), downstream(), names=["report"], date=DAYS[1])
    assert actions(plan) == [("report", "wait")]
    assert len(plan.to_do) == 1


def test_what_upstream_has_done_is_not_waited_for():
    orders = daily()
    plan = plan_of(orders, downstream(), logs={"silver": done(orders, day(DAYS[1]))}, names=["report"])
    assert starts(plan) == [DAYS[1]]
    assert starts(plan, "wait") == [DAYS[0], *DAYS[2:]]


def test_what_upstream_was_asked_to_do_again_is_waited_for():
    """A restore may have taken its rows out: what upstream did before is not there to be read."""
    orders = daily()
    log = done(orders, day(DAYS[0]), day(DAYS[1]))
    log.add(Marker(restate_app_id("orders", "silver", day(DAYS[1])), 2))
    plan = plan_of(orders, downstream(), logs={"silver": log}, names=["report"])
    assert starts(plan) == [DAYS[0]]
    assert starts(plan, "wait") == DAYS[1:]
    log = done(orders, day(DAYS[1]), generation=2, log=log)
    assert starts(plan_of(orders, downstream(), logs={"silver": log}, names=["report"])) == DAYS[:2]


def test_what_upstream_will_do_in_the_same_plan_is_not_waited_for():
    plan = plan_of(daily(), downstream(), date=DAYS[1])
    assert actions(plan) == [("orders", "run"), ("report", "run")]


def test_what_lies_before_upstreams_start_is_not_waited_for():
    plan = plan_of(daily(start=DAYS[2]), downstream(), names=["report"])
    assert starts(plan) == DAYS[:2]
    assert starts(plan, "wait") == DAYS[2:]


def test_a_month_waits_for_all_its_days():
    orders = daily()
    monthly = downstream(every="month")
    cells = list(orders.grid.cells(day("2024-01-01").start, day("2024-02-01").start))
    for ready, action in ((cells[:-1], "wait"), (cells, "run")):
        logs = {"silver": done(orders, *ready)}
        plan = plan_of(
            orders, monthly, logs=logs, names=["report"], date="2024-01-01", now=datetime(2024, 3, 1, tzinfo=UTC)
        )
        assert actions(plan) == [("report", action)]


def test_a_table_that_is_read_whole_is_not_waited_for():
    plan = plan_of(
        daily(),
        daily("report", table("silver"), replace_interval("report", time="day")),
        names=["report"],
        date=DAYS[1],
    )
    assert actions(plan) == [("report", "run")]


def test_what_is_done_does_not_wait():
    report = downstream()
    plan = plan_of(daily(), report, logs={"report": done(report, day(DAYS[1]))}, names=["report"], date=DAYS[1])
    assert actions(plan) == [("report", "skip")]


def test_an_upstream_that_reloads_is_not_waited_for_once_it_has():
    reload = daily(writes=overwrite("silver"))
    plan = plan_of(reload, downstream(), logs={"silver": done(reload, day(DAYS[1]))}, names=["report"], date=DAYS[1])
    assert actions(plan) == [("report", "run")]


def test_what_waits_makes_those_wait_that_read_it():
    pipelines = [daily(), downstream("middle", "silver", "m"), downstream("last", "m", "l")]
    plan = plan_of(*pipelines, names=["middle", "last"], date=DAYS[1])
    assert actions(plan) == [("middle", "wait"), ("last", "wait")]


# Order and number


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"limit": 3, "names": ["orders"]}, [("orders", ["01-01", "01-02", "01-03"])]),
        ({"limit": 3, "names": ["orders"], "newest_first": True}, [("orders", ["01-02", "01-03", "01-04"])]),
        (
            {"limit": 6, "names": ["orders", "report"]},
            [("orders", ["01-01", "01-02", "01-03", "01-04"]), ("report", ["01-01", "01-02"])],
        ),
        ({"limit": 1, "names": ["one"]}, [("one", ["01-01"])]),
        ({"limit": 2, "names": ["one"], "newest_first": True}, [("one", ["01-04"]), ("one", ["01-03"])]),
    ],
)
def test_a_limit_is_one_of_intervals_whether_or_not_they_are_written_together(asked, expected):
    plan = plan_of(daily(), downstream(), daily("one", writes=append("added")), **asked)
    found = [(item.work.pipeline, item.work.interval) for item in plan.works if item.action == "run"]
    days = [(name, [str(cell.start)[5:10] for cell in Grid("day").cells(i.start, i.end)]) for name, i in found]
    assert days == expected
    (note,) = plan.notes
    assert "are left for another run" in note


def test_a_part_of_a_range_is_the_work_of_that_part():
    orders = daily()
    (item,) = plan_of(orders, limit=2).works
    assert item.work.marker == orders.writes[0].marker("orders", item.work.slice, 1)


def test_what_is_done_does_not_count_for_a_limit():
    orders = daily()
    plan = plan_of(orders, logs={"silver": done(orders, day(DAYS[0]))}, limit=1)
    assert (starts(plan, "skip"), starts(plan)) == (DAYS[:1], DAYS[1:2])


def test_the_newest_first_is_the_oldest_last():
    one = daily("one", writes=append("added"))
    assert starts(plan_of(one, newest_first=True)) == DAYS[::-1]


# Ranges


def test_without_a_lock_and_a_fence_every_interval_has_a_commit_of_its_own():
    orders, request = daily(), Request(NOW, end=DAYS[2])
    for ranges, commits in ((True, 1), (False, 2)):
        plan = make_plan({"orders": orders}, LakeState({"silver": None}, {}, ranges=lambda: ranges), request)  # noqa: B023
        assert len(plan.works) == commits


# Documents


def test_a_plan_is_one_document():
    orders = daily()
    document = plan_of(orders, logs={"silver": done(orders, day(DAYS[0]))}, end=DAYS[2]).document()
    assert document["pipelines"] == [{"pipeline": "orders", "range": "[2024-01-01, 2024-01-03)", "intervals": 2}]
    assert document["to_do"] == 1
    assert document["works"][1] == {
        "pipeline": "orders",
        "target": "silver",
        "slice": "[2024-01-02, 2024-01-03)",
        "start": "2024-01-02T00:00:00Z",
        "end": "2024-01-03T00:00:00Z",
        "generation": 1,
        "action": "run",
        "why": "not done yet",
        "cause": "missing",
        "estimated_rows": None,
    }
