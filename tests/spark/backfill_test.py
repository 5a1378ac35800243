"""Ranges, restatements, stale intervals and restores: what an operator does to time, on real tables."""

import json
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import oncelake as once
from oncelake.cli.main import cli
from oncelake.model.work import InputSize
from oncelake.running.execute import packed
from support.lakes import DAYS, commits, ids, land, make_project, orders_of, orders_project, rows

SPAN = {"start": DAYS[0], "end": "2024-03-17"}
BAD = """
import oncelake as once
from pyspark.sql import functions as F


@once.pipeline(
    every="day", start="2024-03-01",
    reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at string", missing="empty"),
    writes=once.replace_interval("silver.orders", time="ordered_at"),
)
def orders(files):
    return files.select("id", "amount", F.to_timestamp("at").alias("ordered_at"))
"""
WHOLE_AND_DAILY = """
from pathlib import Path
import oncelake as once
from pyspark.sql import functions as F

FILES = {"schema": "id long, amount double, at string", "missing": "empty"}
BROKEN = Path(__file__).with_name("broken")


def rows(files):
    if BROKEN.exists():
        raise ValueError("broken")
    return files.select("id", F.to_timestamp("at").alias("ordered_at"))


@once.pipeline(
    every="day", start="2024-03-14", reads=once.files("landing/{start:%Y-%m-%d}/*.json", **FILES),
    writes=once.replace_interval("silver.daily", time="ordered_at"),
)
def daily(files):
    return rows(files)


@once.pipeline(reads=once.files("landing/*/*.json", **FILES), writes=once.overwrite("silver.whole"))
def whole(files):
    return rows(files)
"""


def opened(tmp_path, spark, writes="replace_interval"):
    return once.open(orders_project(tmp_path, writes), spark=spark)


def outcomes(report):
    return [(work.slice, work.outcome) for work in report.works]


# Ranges


def test_neighbouring_days_are_one_commit_and_later_plans_know_what_is_in_it(tmp_path, spark):
    project = opened(tmp_path, spark)
    report = project.run("orders", **SPAN)
    assert outcomes(report) == [("[2024-03-14, 2024-03-17)", "committed")]
    assert (report.works[0].rows.written, commits(tmp_path)) == (9, 1)
    again = project.run("orders", date=DAYS[1])
    assert outcomes(again) == [("[2024-03-15, 2024-03-16)", "already_done")]
    assert again.works[0].version == report.works[0].version
    assert project.status()[0].done == 3


@pytest.mark.parametrize(
    "body", ["frame.dropDuplicates(['kind'])", "frame.withColumn('n', F.count('*').over(W.partitionBy('kind')))"]
)
def test_a_range_is_what_its_days_would_give_one_by_one(tmp_path, spark, body):
    source = f"""
import oncelake as once
from pyspark.sql import Window as W, functions as F

def declare(name, **more):
    @once.pipeline(
        name=name, every="day", start="2024-03-14", reads=once.files("landing/{{start:%Y-%m-%d}}/*.json", schema="id long, at string"),
        writes=once.replace_interval(name, time="ordered_at"), **more,
    )
    def orders(frame, interval):
        frame = frame.select("id", F.lit("same").alias("kind"), F.to_timestamp("at").alias("ordered_at"))
        return {body}.withColumn("day", F.lit(str(interval)))

declare("combine_intervals")
declare("alone", combine_intervals=False)
"""
    make_project(tmp_path, source)
    for day in DAYS:
        land(tmp_path, day, orders_of(day, 1))
    project = once.open(tmp_path, spark=spark)
    report = project.run(**SPAN)
    assert [work.outcome for work in report.works] == ["committed"] * 4
    assert (commits(tmp_path, "combine_intervals"), commits(tmp_path, "alone")) == (1, 3)
    assert rows(tmp_path, "combine_intervals") == rows(tmp_path, "alone")
    assert len(rows(tmp_path, "combine_intervals")) == 3


def test_a_bad_day_ends_up_alone_and_the_others_are_committed(tmp_path, spark):
    make_project(tmp_path, BAD)
    first = date(2024, 3, 1)
    for number in range(8):
        day = (first + timedelta(days=number)).isoformat()
        # One row of the sixth day says it is of the seventh.
        stamped = "2024-03-07" if number == 5 else day
        land(tmp_path, day, [{"id": number, "amount": 1.0, "at": f"{stamped}T06:00:00Z"}])
    project = once.open(tmp_path, spark=spark)
    report = project.run("orders", start="2024-03-01", end="2024-03-09")
    failed = [work for work in report.works if work.outcome == "failed"]
    assert [(work.slice, work.code) for work in failed] == [("[2024-03-06, 2024-03-07)", "rows_outside_slice")]
    assert ids(tmp_path) == [0, 1, 2, 3, 4, 6, 7]
    assert [str(gap) for gap in project.status()[0].gaps][:1] == ["[2024-03-06, 2024-03-07)"]
    land(tmp_path, "2024-03-06", [{"id": 5, "amount": 1.0, "at": "2024-03-06T06:00:00Z"}])
    mended = project.run("orders", failed=True, start="2024-03-01", end="2024-03-09")
    assert [work.slice for work in mended.works if work.outcome == "committed"] == ["[2024-03-06, 2024-03-07)"]
    assert ids(tmp_path) == list(range(8))


def test_a_range_that_somebody_did_part_of_meanwhile_leaves_that_part_alone(tmp_path, spark):
    project = opened(tmp_path, spark)
    plan = project.plan("orders", **SPAN)
    assert project.run("orders", date=DAYS[1]).outcome == "done"
    report = project.apply(plan)
    assert report.outcome == "done"
    assert min(outcomes(report)) == ("[2024-03-14, 2024-03-15)", "committed")
    assert ("[2024-03-15, 2024-03-16)", "already_done") in outcomes(report)
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
    assert [change.facts["slice"][:10] for change in project.history("silver.orders") if change.facts].count(
        DAYS[1]
    ) == 1


# Restatements


def test_part_of_a_range_is_restated_exactly(tmp_path, spark):
    project = opened(tmp_path, spark)
    project.run("orders", **SPAN)
    land(tmp_path, DAYS[1], orders_of(DAYS[1], 2))
    report = project.restate("orders", date=DAYS[1])
    assert outcomes(report) == [("[2024-03-15, 2024-03-16)", "committed")]
    assert report.works[0].generation == 2
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 200, 201, 202]
    assert [work.outcome for work in project.run("orders", **SPAN).works] == ["already_done"] * 3
    whole = project.restate("orders", **SPAN)
    assert {work.generation for work in whole.works} == {3}


@pytest.mark.parametrize(
    ("point", "resumed_by"), [("requested", "run"), ("claimed", "restate"), ("writing", "run"), ("written", "restate")]
)
def test_a_restatement_that_was_stopped_is_resumed(tmp_path, spark, stopped_at, point, resumed_by):
    project = opened(tmp_path, spark)
    project.run("orders", **SPAN)
    land(tmp_path, DAYS[1], orders_of(DAYS[1], 1))
    with stopped_at(point):
        project.restate("orders", date=DAYS[1])
    again = project.run("orders", **SPAN) if resumed_by == "run" else project.restate("orders", date=DAYS[1])
    assert again.outcome == "done"
    assert ids(tmp_path) == [0, 1, 2, 100, 200, 201, 202]
    done = {work.slice: work.generation for work in project.run("orders", **SPAN).works}
    # Stopped after its commit it was done; the same command then is another restatement.
    assert done["[2024-03-15, 2024-03-16)"] == (3 if (point, resumed_by) == ("written", "restate") else 2)


CHAIN = """
TIMED = {"start": "2024-03-11", "reads": once.table("silver.orders", time="day")}


@once.pipeline(every="week", **TIMED, writes=once.replace_interval("gold.weeks", time="week"))
def weeks(orders):
    week = F.expr("CAST(date_trunc('week', day) AS DATE)").alias("week")
    return orders.groupBy(week).agg(F.sum("amount").alias("amount"))


@once.pipeline(reads={"weeks": once.table("gold.weeks")}, writes=once.overwrite("gold.whole"))
def whole(weeks):
    return weeks


@once.pipeline(every="day", **TIMED, writes=once.replace_interval("gold.days", time="day"))
def days(orders):
    return orders.select("id", "day")
"""


def test_what_was_made_from_it_is_restated_with_it(tmp_path, spark):
    root = orders_project(tmp_path, "replace_interval, partitioned", missing="empty")
    (root / "pipelines.py").write_text((root / "pipelines.py").read_text() + CHAIN)
    project = once.open(root, spark=spark)
    assert project.run("orders", "weeks", "whole", end="2024-03-18").outcome == "done"
    land(tmp_path, DAYS[1], [{"id": 100, "amount": 100.0, "at": f"{DAYS[1]}T06:30:00Z"}])
    command = ["restate", "orders", "--date", DAYS[1], "--downstream", "--dry-run", "-p", str(root)]
    assert "downstream pipelines with no slice to restate yet: days" in CliRunner().invoke(cli, command).output

    report = project.restate("orders", date=DAYS[1], downstream=True)
    assert [(work.pipeline, work.slice, work.outcome, work.generation) for work in report.works] == [
        ("orders", "[2024-03-15, 2024-03-16)", "committed", 2),
        ("weeks", "[2024-03-11, 2024-03-18)", "committed", 2),
        ("whole", "whole", "committed", 2),
    ]
    # Three orders of 0, 1.5 and 3 on each of the other two days.
    assert rows(root, "gold.whole") == {(("amount", "109.0"), ("week", "2024-03-11")): 1}
    left = [work.pipeline for work in project.plan(end="2024-03-18").to_do]
    assert left == ["days"]


def test_what_was_never_done_is_not_restated(tmp_path, spark):
    project = opened(tmp_path, spark)
    with pytest.raises(once.OncelakeError) as caught:
        project.restate("orders", **SPAN)
    assert (caught.value.code, caught.value.exit_code) == ("nothing_to_restate", 2)
    appended = opened(tmp_path / "other", spark, "append")
    appended.run("orders", date=DAYS[0])
    with pytest.raises(once.OncelakeError) as caught:
        appended.restate("orders", date=DAYS[0])
    assert caught.value.code == "cannot_restate"


# What changed since


def test_late_rows_and_changed_code_make_a_day_stale_and_only_that_is_redone(tmp_path, spark):
    project = opened(tmp_path, spark)
    project.run("orders", **SPAN)
    assert project.status()[0].stale == ()
    land(tmp_path, DAYS[2], orders_of(DAYS[2], 1))
    (stale,) = project.status()[0].stale
    assert str(stale[0]) == "[2024-03-16, 2024-03-17)"
    assert project.run("orders", **SPAN).works[0].outcome == "already_done"
    report = project.run("orders", stale=True, **SPAN)
    assert outcomes(report) == [("[2024-03-16, 2024-03-17)", "committed")]
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200]
    assert project.status()[0].stale == ()
    source = (tmp_path / "pipelines.py").read_text()
    (tmp_path / "pipelines.py").write_text(source.replace('"id", F.expr', 'F.expr("id + 1000").alias("id"), F.expr'))
    changed = once.open(tmp_path, spark=spark)
    assert "its code changed" in changed.status()[0].stale[0][1]
    assert changed.run("orders", stale=True).outcome == "done"
    assert min(ids(tmp_path)) == 1000


# Going back


def test_what_a_restore_undoes_is_done_again_by_the_next_run(tmp_path, spark):
    for name in ("append", "replace_interval"):
        root = tmp_path / name
        project = opened(root, spark, name)
        project.run("orders", date=DAYS[0])
        kept = project.history("silver.orders")[0].version
        project.run("orders", start=DAYS[1], end="2024-03-17")
        found = project.restore("silver.orders", kept)
        assert min(str(undone.slice)[1:11] for undone in found.undone) == DAYS[1]
        assert ids(root) == [0, 1, 2]
        assert project.run("orders", **SPAN).outcome == "done"
        assert ids(root) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
        assert all(work.outcome == "already_done" for work in project.run("orders", **SPAN).works)


def test_rows_that_somebody_else_changed_are_told(tmp_path, spark):
    project = opened(tmp_path, spark, "replace_interval, partitioned")
    project.run("orders", **SPAN)
    path = str(tmp_path / "lake" / "silver" / "orders")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE day = DATE'2024-03-15'")
    (warning,) = project.status()[0].warnings
    assert "[2024-03-15, 2024-03-16)" in warning
    assert "changed outside oncelake in version" in warning
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert len(project.status()[0].warnings) == 1
    project.restate("orders", date=DAYS[1])
    assert project.status()[0].warnings == ()
    assert json.loads(json.dumps(project.status()[0].document()))["pending"] == []


def test_rows_that_somebody_took_out_of_a_table_with_other_feeders_are_told(tmp_path, spark):
    project = opened(tmp_path, spark, "append")
    project.run("orders", **SPAN)
    path = str(tmp_path / "lake" / "silver" / "orders")
    spark.sql(f"UPDATE delta.`{path}` SET amount = 0 WHERE id = 100")
    doubled = partial(spark.sql, f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}`")
    doubled()
    assert project.status()[0].warnings == ()
    spark.sql(f"RESTORE delta.`{path}` TO VERSION AS OF 1")
    (warning,) = project.status()[0].warnings
    assert "changed outside oncelake in version 6 (RESTORE)" in warning
    doubled()
    assert project.repair("silver.orders", keys=["id"]).version == 8
    assert len(project.status()[0].warnings) == 1
    project.restore("silver.orders", to=3)
    assert project.status()[0].warnings == ()


def test_what_failed_is_told_until_it_is_done_also_of_a_whole_and_of_a_restatement(tmp_path, spark):
    root = make_project(tmp_path, WHOLE_AND_DAILY)
    for day in DAYS:
        land(root, day, orders_of(day))
    project = once.open(root, spark=spark)
    project.run("daily", **SPAN)
    project.run("whole")
    assert [standing.failed for standing in project.status()] == [(), ()]
    spark.sql(f"DELETE FROM delta.`{root / 'lake' / 'silver' / 'whole'}` WHERE id = 0")
    (root / "broken").touch()
    project.restate("daily", date=DAYS[1])
    project.restate("whole")
    daily, whole = project.status()
    # That a restatement was asked for does not bring the rows back.
    assert [len(standing.warnings) for standing in (daily, whole)] == [0, 1]
    assert [failure.slice for failure in daily.failed] == ["[2024-03-15, 2024-03-16)"]
    assert [failure.slice for failure in whole.failed] == ["whole"]
    assert daily.failed[0].next == "oncelake run daily --failed"
    (root / "broken").unlink()
    assert outcomes(project.run("daily", failed=True)) == [("[2024-03-15, 2024-03-16)", "committed")]
    assert project.run("whole", failed=True).outcome == "done"
    assert project.status("whole")[0].warnings == ()
    assert [standing.failed for standing in project.status()] == [(), ()]


def test_upkeep_by_somebody_else_changes_nothing(tmp_path, spark):
    project = opened(tmp_path, spark)
    for day in DAYS:
        project.run("orders", date=day)
    before, path = project.status(), str(tmp_path / "lake" / "silver" / "orders")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    after = project.status()
    assert [replace(now, version=None, last=None) for now in after] == [
        replace(then, version=None, last=None) for then in before
    ]
    assert all(work.outcome == "already_done" for work in project.run("orders", **SPAN).works)
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
    project.restate("orders", date=DAYS[1])
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200, 201, 202]


def test_a_table_that_forgets_its_markers_is_warned_about(tmp_path, spark):
    project = opened(tmp_path, spark)
    project.run("orders", **SPAN)
    assert project.status()[0].warnings == ()
    path = str(tmp_path / "lake" / "silver" / "orders")
    retention = "'delta.setTransactionRetentionDuration' = 'interval 7 days'"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({retention})")
    (warning,) = project.status()[0].warnings
    assert "markers of silver.orders expire after interval 7 days" in warning


def test_what_was_added_and_undone_is_added_again(tmp_path, spark):
    project = opened(tmp_path, spark, "aggregate, adding")
    project.run("orders", date=DAYS[0])
    before, kept = rows(tmp_path), project.history("silver.orders")[0].version
    project.run("orders", date=DAYS[1])
    both = rows(tmp_path)
    project.restore("silver.orders", kept)
    assert rows(tmp_path) == before
    assert [work.generation for work in project.run("orders", date=DAYS[1]).works] == [2]
    assert rows(tmp_path) == both


def test_a_restatement_says_what_it_replaces(tmp_path, spark):
    project = opened(tmp_path, spark)
    project.run("orders", **SPAN)
    (whole,) = project.restatement("orders", **SPAN)
    assert (whole.versions, whole.rows, whole.generation) == ((1,), 9, 2)
    (part,) = project.restatement("orders", date=DAYS[1])
    assert (part.versions, part.rows) == ((1,), None)


def test_late_rows_are_taken_up_by_themselves_within_the_lookback(tmp_path, spark, monkeypatch):
    # However many commits there are: a status looks at the newest of them, this at all.
    monkeypatch.setattr("oncelake.delta.log.NEWEST", 1)
    root = orders_project(tmp_path, "replace_interval")
    source = (root / "pipelines.py").read_text()
    (root / "pipelines.py").write_text(
        source.replace("writes=", 'combine_intervals=False, late="restate", lookback=2, writes=')
    )
    project = once.open(root, spark=spark)
    project.run("orders", **SPAN)
    for day in (DAYS[0], DAYS[1]):
        land(tmp_path, day, orders_of(day, 1))
    report = project.run("orders", **SPAN)
    assert [work.outcome for work in report.works] == ["already_done", "committed", "already_done"]
    assert ids(tmp_path) == [0, 1, 2, 100, 200, 201, 202]


# At once


@pytest.mark.parametrize("writes", ["replace_interval, partitioned", "replace_partitions", "replace_interval"])
def test_slices_at_once_give_what_one_after_another_would(tmp_path, spark, writes):
    root = orders_project(tmp_path, writes)
    source = (root / "pipelines.py").read_text()
    (root / "pipelines.py").write_text(source.replace("writes=", "combine_intervals=False, writes="))
    (root / "landing" / DAYS[1] / "orders.json").write_text("no json")
    project = once.open(root, spark=spark)
    report = project.run("orders", jobs=3, **SPAN)
    assert [work.outcome for work in report.works] == ["committed", "failed", "committed"]
    land(tmp_path, DAYS[1], orders_of(DAYS[1]))
    assert project.run("orders", jobs=3, **SPAN).outcome == "done"
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200, 201, 202]
    assert commits(tmp_path) == 3


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([None] * 5, [3, 2]),
        ([1, 1, 1, 1, 1], [3, 2]),
        ([4, 4, 4, 10, 1, 20, 1], [2, 1, 1, 1, 1, 1]),
        ([4, 4, 2, 2], [3, 1]),
        ([], []),
    ],
)
def test_slices_that_fill_the_cores_are_not_written_at_once(sizes, batches):
    slices = [[SimpleNamespace(size=InputSize(bytes=size))] for size in sizes]
    assert [len(batch) for batch in packed(slices, jobs=3, room=10)] == batches


TABLES = """
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline(every="day", start="2024-03-01", reads=once.table("raw", time="at"),
               writes=once.replace_interval("silver.orders", time="at"))
def orders(raw):
    return raw
"""


def test_rows_that_came_to_a_table_make_their_days_stale_and_no_others(tmp_path, spark):
    make_project(tmp_path, TABLES)
    path = str(tmp_path / "lake" / "raw")
    days = spark.range(10).selectExpr("id", "timestamp_micros(1709251200000000 + id * 86400000000) AS at")
    days.write.format("delta").save(path)
    project = once.open(tmp_path, spark=spark)
    span = {"start": "2024-03-01", "end": "2024-03-11"}
    assert project.plan("orders", **span).works[0].estimated_rows == 10
    project.run("orders", **span)
    late = spark.sql("SELECT 100L AS id, TIMESTAMP'2024-03-04T12:00:00Z' AS at")
    late.write.format("delta").mode("append").save(path)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    (stale,) = project.status()[0].stale
    assert str(stale[0]) == "[2024-03-04, 2024-03-05)"
    report = project.run("orders", stale=True, **span)
    assert outcomes(report) == [("[2024-03-04, 2024-03-05)", "committed")]
    assert ids(tmp_path) == [*range(10), 100]
    assert project.status()[0].stale == ()
