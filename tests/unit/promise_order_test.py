"""Patterns whose result depends on the order of slices run in order: a slice waits for earlier ones, an older one is refused."""

import json
from datetime import UTC, datetime

import pytest

import oncelake as once
from oncelake.declare.pipelines import Schedule, build
from oncelake.errors import OutOfOrder
from oncelake.model.intervals import Grid, instant_text
from oncelake.model.markers import Marker, restate_app_id
from oncelake.model.work import FAILED_BEFORE, STALE, Request
from oncelake.planning.decisions import StalePart
from oncelake.planning.inputs import LakeState
from oncelake.planning.plan import make_plan
from oncelake.testing import MemoryLog
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 3, 18, 1, tzinfo=UTC)
AGGREGATE, MERGE = once.aggregate("t", keys="id"), once.merge("t", keys="id")
ORDERED = {"aggregate": AGGREGATE, "merge": MERGE}
FREE = {
    "aggregate, any order": once.aggregate("t", keys="id", any_order=True),
    "merge, any order": once.merge("t", keys="id", any_order=True),
    "merge by latest": once.merge("t", keys="id", latest_by="at"),
    "scd2": once.scd2("t", keys="id", latest_by="at"),
    "add": once.aggregate("t", keys="id", add="n"),
    "append": once.append("t"),
    "replace_interval": once.replace_interval("t", time="at"),
}


def day(number):
    return Grid("day").cell(datetime(2024, 3, number, tzinfo=UTC))


def daily(*patterns, reads=None, **schedule):
    reads = reads or once.table("raw", time="at")
    schedule = Schedule("day", "2024-03-14", "UTC", **schedule)
    return build(lambda frame: frame, reads, patterns, schedule, name="p", where="p.py:1")


def log_of(*numbers, pattern=AGGREGATE, requested=()):
    log = MemoryLog()
    for number in numbers:
        log.add(pattern.marker("p", day(number), 1))
    for number in requested:
        log.add(Marker(restate_app_id("p", "t", day(number)), 2))
    return log


def plan_of(pipeline, log=None, stale=(), failed=(), **request):
    known = LakeState({"t": log}, {}, stale=lambda *_: list(stale), failed={"p": list(failed)})
    return make_plan({"p": pipeline}, known, Request(NOW, **request))


def actions(plan, target="t"):
    return [
        (item.work.interval.start.day, item.action, item.refusal.code if item.refusal else None)
        for item in plan.works
        if item.target == target
    ]


RUN, SKIP = ("run", None), ("skip", None)
WAIT, REFUSED = ("wait", "earlier_not_done"), ("wait", "out_of_order")


@pytest.mark.parametrize("pattern", ORDERED.values(), ids=ORDERED)
def test_patterns_whose_result_depends_on_the_order_are_ordered(pattern):
    assert pattern.ordered


@pytest.mark.parametrize("pattern", FREE.values(), ids=FREE)
def test_other_patterns_take_slices_in_any_order(pattern):
    assert not pattern.ordered
    plan = plan_of(daily(pattern), log_of(15, pattern=pattern), date="2024-03-14")
    assert actions(plan) == [(14, *RUN)]
    assert actions(plan_of(daily(pattern), log_of(pattern=pattern), date="2024-03-17")) == [(17, *RUN)]


def test_any_order_changes_no_row_and_makes_nothing_stale():
    from oncelake.declare.code_fingerprint import declaration_fingerprint

    for strict, free in ((AGGREGATE, FREE["aggregate, any order"]), (MERGE, FREE["merge, any order"])):
        assert declaration_fingerprint(daily(strict), strict) == declaration_fingerprint(daily(free), free)


@pytest.mark.parametrize("pattern", ORDERED.values(), ids=ORDERED)
def test_slices_that_are_planned_in_order_run(pattern):
    assert actions(plan_of(daily(pattern))) == [(number, *RUN) for number in (14, 15, 16, 17)]
    plan = plan_of(daily(pattern), log_of(14, 15, pattern=pattern))
    assert actions(plan) == [(14, *SKIP), (15, *SKIP), (16, *RUN), (17, *RUN)]


@pytest.mark.parametrize("pattern", ORDERED.values(), ids=ORDERED)
def test_a_slice_waits_for_earlier_ones_that_are_due(pattern):
    plan = plan_of(daily(pattern), log_of(14, pattern=pattern), start="2024-03-16")
    assert actions(plan) == [(16, *WAIT), (17, *WAIT)]
    assert "[2024-03-15, 2024-03-16)" in plan.works[0].why
    failed = plan_of(daily(pattern), log_of(14, pattern=pattern), failed=[day(16)], only=FAILED_BEFORE)
    assert actions(failed) == [(16, *WAIT)]


@pytest.mark.parametrize("pattern", ORDERED.values(), ids=ORDERED)
def test_an_older_slice_after_a_newer_one_is_refused(pattern):
    plan = plan_of(daily(pattern), log_of(15, pattern=pattern))
    assert actions(plan) == [(14, *REFUSED), (15, *SKIP), (16, *WAIT), (17, *WAIT)]
    refusal = plan.works[0].refusal
    assert refusal.facts["newer"] == "[2024-03-15, 2024-03-16)"
    assert "any_order=True" in refusal.next
    assert "oncelake rebuild t" in refusal.next


def test_what_a_restore_undid_is_redone_in_order():
    plan = plan_of(daily(AGGREGATE), log_of(14, 15, 16, requested=(15, 16)))
    assert actions(plan) == [(14, *SKIP), (15, *RUN), (16, *RUN), (17, *RUN)]
    plan = plan_of(daily(AGGREGATE), log_of(14, 15, 16, requested=(15,)))
    assert actions(plan) == [(14, *SKIP), (15, *REFUSED), (16, *SKIP), (17, *WAIT)]


def late(number):
    return StalePart(instant_text(day(number).start), instant_text(day(number).end), "late rows")


def test_late_rows_redo_only_the_newest_slice():
    pipeline = daily(AGGREGATE, late="restate")
    log = log_of(14, 15, 16, 17)
    plan = plan_of(pipeline, log, [late(15)])
    assert actions(plan) == [(number, *SKIP) for number in (14, 15, 16, 17)]
    assert "rebuild" in plan.works[1].why
    assert actions(plan_of(pipeline, log, [late(17)]))[-1] == (17, *RUN)
    assert actions(plan_of(daily(FREE["aggregate, any order"], late="restate"), log, [late(15)]))[1] == (15, *RUN)


def test_stale_slices_that_are_asked_for_are_refused_if_they_are_older():
    log = log_of(14, 15, 16, 17)
    assert actions(plan_of(daily(AGGREGATE), log, [late(15)], only=STALE)) == [(15, *REFUSED)]
    assert actions(plan_of(daily(AGGREGATE), log, [late(17)], only=STALE)) == [(17, *RUN)]


def test_the_newest_first_is_ignored_and_the_plan_says_so():
    plan = plan_of(daily(AGGREGATE), newest_first=True)
    assert actions(plan) == [(number, *RUN) for number in (14, 15, 16, 17)]
    assert any("--newest-first" in note for note in plan.notes)
    free = plan_of(daily(FREE["append"]), newest_first=True)
    assert [number for number, *_ in actions(free)] == [17, 16, 15, 14]
    assert free.notes == ()


def test_a_limit_keeps_the_oldest():
    assert actions(plan_of(daily(AGGREGATE), limit=2)) == [(14, *RUN), (15, *RUN)]


def test_the_other_targets_of_a_slice_wait_with_it():
    pipeline = daily(once.append("log"), AGGREGATE)
    known = LakeState({"t": log_of(15), "log": None}, {})
    plan = make_plan({"p": pipeline}, known, Request(NOW, date="2024-03-14"))
    assert actions(plan, "log") == [(14, *REFUSED)]


def project(tmp_path, *pipelines):
    opened = once.Project.of(*pipelines, lake=tmp_path / "lake", root=tmp_path)

    def no_session():
        raise AssertionError("nothing is computed here")

    opened.session = no_session
    return opened


FILES = once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long")


def land(tmp_path, *numbers):
    for number in numbers:
        folder = tmp_path / f"landing/2024-03-{number}"
        folder.mkdir(parents=True)
        (folder / "x.json").write_text(json.dumps({"id": 1}))


@pytest.mark.parametrize("pattern", ORDERED.values(), ids=ORDERED)
def test_slices_after_a_failed_one_are_blocked_in_the_same_run(tmp_path, pattern):
    land(tmp_path, 15, 16, 17)
    report = project(tmp_path, daily(pattern, reads=FILES)).run(now=NOW)
    assert [(work.outcome, work.code) for work in report.works] == [("failed", "source_missing")] + [
        ("blocked", "earlier_not_done")
    ] * 3
    assert report.exit_code == 1
    assert "[2024-03-14, 2024-03-15)" in report.works[-1].error


def mark_done(tmp_path, pattern, *numbers, target="t"):
    write_commit(tmp_path / "lake" / target, 0, *(txn(pattern.marker("p", day(number), 1)) for number in numbers))


def test_an_older_slice_is_reported_as_failed_with_the_ways_out(tmp_path):
    land(tmp_path, 14)
    mark_done(tmp_path, AGGREGATE, 15, 16, 17)
    report = project(tmp_path, daily(AGGREGATE, reads=FILES)).run(now=NOW)
    assert (report.works[0].outcome, report.works[0].code) == ("failed", "out_of_order")
    assert "any_order=True" in report.works[0].error


def test_a_target_that_is_done_is_reported_as_done_beside_one_that_is_refused(tmp_path):
    land(tmp_path, 14)
    log = once.append("log")
    mark_done(tmp_path, AGGREGATE, 15)
    mark_done(tmp_path, log, 14, target="log")
    report = project(tmp_path, daily(log, AGGREGATE, reads=FILES)).run(date="2024-03-14", now=NOW)
    assert [(work.target, work.outcome, work.code) for work in report.works] == [
        ("log", "already_done", None),
        ("t", "failed", "out_of_order"),
    ]


def test_restating_an_older_slice_is_refused_before_anything_is_written(tmp_path):
    mark_done(tmp_path, AGGREGATE, 14, 15, 16)
    opened = project(tmp_path, daily(AGGREGATE))
    for command in (opened.restatement, opened.restate):
        with pytest.raises(OutOfOrder):
            command("p", date="2024-03-14", now=NOW)
    assert len(list((tmp_path / "lake/t/_delta_log").iterdir())) == 1


def test_restating_the_newest_slices_is_allowed(tmp_path):
    mark_done(tmp_path, AGGREGATE, 14, 15, 16)
    opened = project(tmp_path, daily(AGGREGATE))
    assert opened.restatement("p", start="2024-03-15", now=NOW)
    assert opened.restatement("p", now=NOW)
