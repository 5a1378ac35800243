"""Restatements: what is replaced, in which generation, what follows downstream, and what happens if one is stopped."""

import pytest
from click.testing import CliRunner

import oncelake as once
from oncelake.cli.main import cli
from support.lakes import DAYS, ids, land, land_days, orders_of, orders_project, rows
from support.orders import FILES, SCHEMA, open_orders

SPAN = {"start": DAYS[0], "end": "2024-03-17"}


def outcomes(report):
    return [(work.slice, work.outcome) for work in report.works]


def test_a_restatement_says_what_it_replaces_and_replaces_part_of_a_range_exactly(tmp_path, completed_orders):
    project = completed_orders()
    (whole,) = project.restatement("orders", **SPAN)
    assert (whole.versions, whole.rows, whole.generation) == ((1,), 9, 2)
    (part,) = project.restatement("orders", date=DAYS[1])
    assert (part.versions, part.rows) == ((1,), None)

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
def test_a_restatement_that_was_stopped_is_resumed(tmp_path, completed_orders, stopped_at, point, resumed_by):
    project = completed_orders()
    land(tmp_path, DAYS[1], orders_of(DAYS[1], 1))
    with stopped_at(point):
        project.restate("orders", date=DAYS[1])
    again = project.run("orders", **SPAN) if resumed_by == "run" else project.restate("orders", date=DAYS[1])
    assert again.outcome == "done"
    assert ids(tmp_path) == [0, 1, 2, 100, 200, 201, 202]
    done = {work.slice: work.generation for work in project.run("orders", **SPAN).works}
    # Stopped after its commit it was done; the same command then is another restatement.
    assert done["[2024-03-15, 2024-03-16)"] == (3 if (point, resumed_by) == ("written", "restate") else 2)


# A folder, because the command line is part of the test.
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


def test_restate_downstream_includes_dependents(tmp_path, spark):
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
    project = open_orders(tmp_path, spark, "replace_interval")
    with pytest.raises(once.OncelakeError) as caught:
        project.restate("orders", **SPAN)
    assert (caught.value.code, caught.value.exit_code) == ("nothing_to_restate", 2)
    appended = open_orders(tmp_path / "other", spark, "append")
    appended.run("orders", date=DAYS[0])
    with pytest.raises(once.OncelakeError) as caught:
        appended.restate("orders", date=DAYS[0])
    assert caught.value.code == "cannot_restate"


def test_failures_are_reported_until_they_are_done_also_of_a_whole_table_and_of_a_restatement(tmp_path, spark):
    from pyspark.sql import functions as F

    broken = tmp_path / "broken"
    files = {"schema": SCHEMA, "missing": "empty"}

    def orders(rows):
        if broken.exists():
            raise ValueError("broken")
        return rows.select("id", F.to_timestamp("at").alias("ordered_at"))

    @once.pipeline(
        every="day",
        start=DAYS[0],
        reads=once.files(FILES, **files),
        writes=once.replace_interval("silver.daily", time="ordered_at"),
    )
    def daily(rows):
        return orders(rows)

    @once.pipeline(reads=once.files("landing/*/*.json", **files), writes=once.overwrite("silver.whole"))
    def whole(rows):
        return orders(rows)

    land_days(tmp_path)
    project = once.Project.of(daily, whole, lake=tmp_path / "lake", root=tmp_path, spark=spark)
    project.run("daily", **SPAN)
    project.run("whole")
    assert [status.failed for status in project.status()] == [(), ()]
    spark.sql(f"DELETE FROM delta.`{tmp_path / 'lake' / 'silver' / 'whole'}` WHERE id = 0")
    broken.touch()
    project.restate("daily", date=DAYS[1])
    project.restate("whole")
    of_daily, of_whole = project.status()
    # That a restatement was requested does not bring the rows back.
    assert [len(status.warnings) for status in (of_daily, of_whole)] == [0, 1]
    assert [failure.slice for failure in of_daily.failed] == ["[2024-03-15, 2024-03-16)"]
    assert [failure.slice for failure in of_whole.failed] == ["whole"]
    assert of_daily.failed[0].next == "oncelake run daily --failed"
    broken.unlink()
    assert outcomes(project.run("daily", failed=True)) == [("[2024-03-15, 2024-03-16)", "committed")]
    assert project.run("whole", failed=True).outcome == "done"
    assert project.status("whole")[0].warnings == ()
    assert [status.failed for status in project.status()] == [(), ()]
