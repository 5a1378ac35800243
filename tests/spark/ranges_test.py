"""Ranges of intervals: neighbouring intervals are one commit, and the result is that of interval by interval."""

from datetime import date, timedelta

import pytest

import oncelake as once
from support.lakes import DAYS, commits, ids, land, orders_of, rows
from support.orders import FILES, SCHEMA, open_orders, orders_columns, orders_pipeline
from support.variants import VARIANTS

SPAN = {"start": DAYS[0], "end": "2024-03-17"}
ALL_IDS = [0, 1, 2, 100, 101, 102, 200, 201, 202]


def outcomes(report):
    return [(work.slice, work.outcome) for work in report.works]


def test_neighbouring_days_are_one_commit_and_later_plans_know_what_is_in_it(tmp_path, spark):
    project = open_orders(tmp_path, spark, "replace_interval")
    report = project.run("orders", **SPAN)
    assert outcomes(report) == [("[2024-03-14, 2024-03-17)", "committed")]
    assert (report.works[0].rows.written, commits(tmp_path)) == (9, 1)
    again = project.run("orders", date=DAYS[1])
    assert outcomes(again) == [("[2024-03-15, 2024-03-16)", "already_done")]
    assert again.works[0].version == report.works[0].version
    assert project.status()[0].done == 3


def one_of_a_kind(frame):
    return frame.dropDuplicates(["kind"])


def counted_by_kind(frame):
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return frame.withColumn("n", F.count("*").over(Window.partitionBy("kind")))


@pytest.mark.parametrize("reduced", [one_of_a_kind, counted_by_kind])
def test_a_range_is_what_its_days_would_give_one_by_one(tmp_path, spark, reduced):
    from pyspark.sql import functions as F

    def declared(name, **more):
        @once.pipeline(
            name=name,
            every="day",
            start=DAYS[0],
            reads=once.files(FILES, schema="id long, at string"),
            writes=once.replace_interval(name, time="ordered_at"),
            **more,
        )
        def orders(frame, interval):
            frame = frame.select("id", F.lit("same").alias("kind"), F.to_timestamp("at").alias("ordered_at"))
            return reduced(frame).withColumn("day", F.lit(str(interval)))

        return orders

    pipelines = declared("combined"), declared("alone", combine_intervals=False)
    for day in DAYS:
        land(tmp_path, day, orders_of(day, 1))
    project = once.Project.of(*pipelines, lake=tmp_path / "lake", root=tmp_path, spark=spark)
    report = project.run(**SPAN)
    assert [work.outcome for work in report.works] == ["committed"] * 4
    assert (commits(tmp_path, "combined"), commits(tmp_path, "alone")) == (1, 3)
    assert rows(tmp_path, "combined") == rows(tmp_path, "alone")
    assert len(rows(tmp_path, "combined")) == 3


def test_a_bad_day_ends_up_alone_and_the_others_are_committed(tmp_path, spark):
    from pyspark.sql import functions as F

    @once.pipeline(
        every="day",
        start="2024-03-01",
        reads=once.files(FILES, schema=SCHEMA, missing="empty"),
        writes=once.replace_interval("silver.orders", time="ordered_at"),
    )
    def orders(files):
        return files.select("id", "amount", F.to_timestamp("at").alias("ordered_at"))

    for number in range(8):
        day = (date(2024, 3, 1) + timedelta(days=number)).isoformat()
        # One row of the sixth day says it is of the seventh.
        stamped = "2024-03-07" if number == 5 else day
        land(tmp_path, day, [{"id": number, "amount": 1.0, "at": f"{stamped}T06:00:00Z"}])
    project = once.Project.of(orders, lake=tmp_path / "lake", root=tmp_path, spark=spark)
    report = project.run("orders", start="2024-03-01", end="2024-03-09")
    failed = [work for work in report.works if work.outcome == "failed"]
    assert [(work.slice, work.code) for work in failed] == [("[2024-03-06, 2024-03-07)", "rows_outside_slice")]
    assert ids(tmp_path) == [0, 1, 2, 3, 4, 6, 7]
    assert [str(gap) for gap in project.status()[0].gaps][:1] == ["[2024-03-06, 2024-03-07)"]
    land(tmp_path, "2024-03-06", [{"id": 5, "amount": 1.0, "at": "2024-03-06T06:00:00Z"}])
    fixed = project.run("orders", failed=True, start="2024-03-01", end="2024-03-09")
    assert [work.slice for work in fixed.works if work.outcome == "committed"] == ["[2024-03-06, 2024-03-07)"]
    assert ids(tmp_path) == list(range(8))


def test_a_range_of_which_another_run_did_a_part_leaves_that_part_alone(tmp_path, spark):
    project = open_orders(tmp_path, spark, "replace_interval")
    plan = project.plan("orders", **SPAN)
    assert project.run("orders", date=DAYS[1]).outcome == "done"
    report = project.apply(plan)
    assert report.outcome == "done"
    assert min(outcomes(report)) == ("[2024-03-14, 2024-03-15)", "committed")
    assert ("[2024-03-15, 2024-03-16)", "already_done") in outcomes(report)
    assert ids(tmp_path) == ALL_IDS
    slices = [change.facts["slice"][:10] for change in project.history("silver.orders") if change.facts]
    assert slices.count(DAYS[1]) == 1


@pytest.mark.parametrize("name", ["replace_interval, partitioned", "replace_partitions", "replace_interval"])
def test_slices_written_concurrently_give_what_one_after_another_would(tmp_path, spark, name):
    project = open_orders(tmp_path, spark, name, combine_intervals=False)
    (tmp_path / "landing" / DAYS[1] / "orders.json").write_text("no json")
    report = project.run("orders", jobs=3, **SPAN)
    assert [work.outcome for work in report.works] == ["committed", "failed", "committed"]
    land(tmp_path, DAYS[1], orders_of(DAYS[1]))
    assert project.run("orders", jobs=3, **SPAN).outcome == "done"
    assert ids(tmp_path) == ALL_IDS
    assert commits(tmp_path) == 3


def test_late_rows_are_reprocessed_within_the_lookback(tmp_path, spark, monkeypatch):
    # However many commits there are: a status looks at the newest of them, this at all.
    monkeypatch.setattr("oncelake.delta.log.NEWEST", 1)
    project = open_orders(tmp_path, spark, "replace_interval", combine_intervals=False, late="restate", lookback=2)
    project.run("orders", **SPAN)
    for day in (DAYS[0], DAYS[1]):
        land(tmp_path, day, orders_of(day, 1))
    report = project.run("orders", **SPAN)
    assert [work.outcome for work in report.works] == ["already_done", "committed", "already_done"]
    assert ids(tmp_path) == [0, 1, 2, 100, 200, 201, 202]


def test_late_rows_and_changed_code_make_a_day_stale_and_only_that_is_redone(tmp_path, spark, completed_orders):
    from pyspark.sql import functions as F

    project = completed_orders()
    assert project.status()[0].stale == ()
    land(tmp_path, DAYS[2], orders_of(DAYS[2], 1))
    (stale,) = project.status()[0].stale
    assert str(stale[0]) == "[2024-03-16, 2024-03-17)"
    assert project.run("orders", **SPAN).works[0].outcome == "already_done"
    report = project.run("orders", stale=True, **SPAN)
    assert outcomes(report) == [("[2024-03-16, 2024-03-17)", "committed")]
    assert ids(tmp_path) == [0, 1, 2, 100, 101, 102, 200]
    assert project.status()[0].stale == ()

    def renumbered(files):
        return orders_columns(files).withColumn("id", F.expr("id + 1000"))

    pipeline = orders_pipeline(VARIANTS["replace_interval"].declared, renumbered)
    changed = once.Project.of(pipeline, lake=tmp_path / "lake", root=tmp_path, spark=spark)
    assert "its code changed" in changed.status()[0].stale[0][1]
    assert changed.run("orders", stale=True).outcome == "done"
    assert min(ids(tmp_path)) == 1000


def test_rows_added_to_a_table_make_their_days_stale_and_no_others(tmp_path, spark):
    @once.pipeline(
        every="day",
        start="2024-03-01",
        reads=once.table("raw", time="at"),
        writes=once.replace_interval("silver.orders", time="at"),
    )
    def orders(raw):
        return raw

    path = str(tmp_path / "lake" / "raw")
    days = spark.range(10).selectExpr("id", "timestamp_micros(1709251200000000 + id * 86400000000) AS at")
    days.write.format("delta").save(path)
    project = once.Project.of(orders, lake=tmp_path / "lake", root=tmp_path, spark=spark)
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
