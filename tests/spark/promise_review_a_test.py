"""Redoing work where it once stopped short in silence: downstream of a whole table, beside a missing target, after a rebuild."""

import os
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once
from support.daily import daily, files, land, rows

DAY = {"date": "2024-03-14"}


def targets(report):
    return [(work.target, work.outcome) for work in report.works]


@pytest.fixture
def project(spark, tmp_path):
    return lambda *pipelines: once.Project.of(*pipelines, lake=tmp_path / "lake", spark=spark, root=tmp_path)


# restate --downstream


@daily(reads=files("v int, e date"), writes=once.replace_interval("bronze", time="d"))
def load(files, interval):
    return files.withColumn("d", F.lit(interval.start.date()))


broken = [False]


@daily(reads=once.table("bronze", time="e"), writes=once.replace_interval("silver", time="e"))
def by_event_day(bronze):
    return bronze.where("raise_error('broken') is null") if broken[0] else bronze


@daily(reads=once.table("silver"), writes=once.replace_interval("totals", time="d"))
def totals(silver, interval):
    return silver.agg(F.sum("v").alias("v")).withColumn("d", F.lit(interval.start.date()))


@daily(reads=once.table("totals", time="d"), writes=once.replace_interval("report", time="d"))
def report_of(totals):
    return totals


def test_restate_downstream_redoes_a_reader_of_a_whole_table_after_that_table(project, tmp_path):
    opened = project(report_of, totals, by_event_day, load)
    land(tmp_path, 14, {"v": 1, "e": "2024-03-14"})
    assert opened.run(**DAY).outcome == "done"
    land(tmp_path, 14, {"v": 100, "e": "2024-03-14"})
    broken[0] = True
    try:
        failed = opened.restate("load", downstream=True, **DAY)
    finally:
        broken[0] = False
    # What reads a table that could not be redone keeps its rows and its request.
    outcomes = [("bronze", "committed"), ("silver", "failed"), ("totals", "blocked"), ("report", "blocked")]
    assert targets(failed) == outcomes
    assert rows(tmp_path, "totals", "v") == [(1,)]
    redone = opened.restate("load", downstream=True, **DAY)
    assert targets(redone) == [(table, "committed") for table in ("bronze", "silver", "totals", "report")]
    assert rows(tmp_path, "totals", "v") == rows(tmp_path, "report", "v") == [(100,)]
    assert [status.pending + status.stale for status in opened.status()] == [()] * 4


# Several targets


def test_restate_writes_a_restated_target_and_its_missing_sibling_together(project, tmp_path):
    @daily(reads=files("id int, d date"), writes=[once.replace_interval(name, time="d") for name in ("x", "y")])
    def both(files):
        return {"x": files, "y": files.where("raise_error('broken') is null") if broken[0] else files}

    opened = project(both)
    land(tmp_path, 14, {"id": 1, "d": "2024-03-14"})
    broken[0] = True
    try:
        assert targets(opened.run(**DAY)) == [("x", "committed"), ("y", "failed")]
    finally:
        broken[0] = False
    land(tmp_path, 14, {"id": 2, "d": "2024-03-14"})
    gone = opened.run(**DAY).works[1]
    assert gone.code == "pinned_input_gone"
    assert "oncelake restate both --date 2024-03-14," in gone.error
    assert targets(opened.restate("both", **DAY)) == [("x", "committed"), ("y", "committed")]
    assert rows(tmp_path, "x", "id") == rows(tmp_path, "y", "id") == [(2,)]


# Status, plan and --stale agree


def stale_days(opened):
    """Return the stale days by target as `status` shows them, as `plan` shows them, and as `run --stale` would redo them."""
    now = {"now": datetime(2024, 3, 16, tzinfo=UTC)}
    shown = {(one.target, str(part)) for one in opened.status(**now) for part, _ in one.stale}
    planned = {(item.target, item.slice) for item in opened.plan(**now).works if item.cause == "stale"}
    redone = {(item.target, item.slice) for item in opened.plan(stale=True, **now).works if item.action == "run"}
    assert shown == planned
    assert redone == shown
    return {(target, slice_[9:11]) for target, slice_ in shown}


def clean_up(table):
    """Do what Delta's log clean-up does: a checkpoint, and all commits but the newest are gone."""
    DeltaTable(str(table)).create_checkpoint()
    for file in sorted((table / "_delta_log").glob("*.json"))[:-1]:
        os.remove(file)


def test_status_and_plan_show_what_is_stale_after_a_rebuild_a_restored_part_and_a_clean_up(project, tmp_path):
    @daily(reads=files("id int, d date"), writes=once.replace_interval("part", time="d"))
    def by_part(files):
        return files

    @daily(reads=files("id int, d date"), writes=once.replace_interval("rebuilt", time="d"))
    def rebuilt(files):
        return files

    opened = project(by_part, rebuilt)
    for day in (14, 15):
        land(tmp_path, day, {"id": day, "d": f"2024-03-{day}"})
    opened.run(start="2024-03-14", end="2024-03-16")
    (work,) = opened.run("by_part", start="2024-03-14", end="2024-03-16").works
    opened.rebuild("rebuilt")
    assert stale_days(opened) == set()
    land(tmp_path, 14, {"id": 99, "d": "2024-03-14"})
    opened.restate("by_part", **DAY)
    assert stale_days(opened) == {("rebuilt", "14")}
    # The restore goes back to the rows of the range, of which the day was a part.
    opened.restore("part", work.version)
    assert stale_days(opened) == {("part", "14"), ("rebuilt", "14")}
    opened.run("rebuilt", stale=True, **DAY)
    opened.restate("rebuilt", date="2024-03-15")
    assert stale_days(opened) == {("part", "14")}
    clean_up(tmp_path / "lake/rebuilt")
    assert stale_days(project(by_part, rebuilt)) == {("part", "14"), ("rebuilt", "14")}
