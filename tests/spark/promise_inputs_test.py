"""Inputs that change while they are read, that are gone when they are needed again, or that belong to no interval."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import oncelake as once
from oncelake.model import failpoints
from support.lakes import DAYS, land, land_days, orders_of, write_table
from support.orders import open_orders, orders_pipeline
from support.variants import sampled, some_variants

DAY = DAYS[0]


def ts(day, hour=0):
    return datetime(2024, 3, day, hour, tzinfo=UTC)


@pytest.fixture
def at_failpoint():
    """Do something once, when a failpoint is reached."""

    def watch(point, action):
        waiting = [action]
        failpoints.watch(lambda at: waiting.pop()() if at == point and waiting else None)

    yield watch
    failpoints.watch(None)


def commits_of(root, table="silver.orders"):
    log = root.joinpath("lake", *table.split("."), "_delta_log")
    return sum('{"txn"' in file.read_text() for file in log.glob("*.json"))


# Files that change while Spark reads them


@pytest.mark.parametrize("variant", some_variants(2, 1, "changed while read"))
def test_a_file_that_changes_before_the_read_has_ended_fails_the_work(tmp_path, spark, at_failpoint, variant):
    project = open_orders(tmp_path, spark, variant)
    # The digest was compared when the frame was built; Spark reads after this point.
    at_failpoint("writing", lambda: land(tmp_path, DAY, orders_of(DAY, 5)))
    (work,) = project.run("orders", date=DAY).works
    assert (work.outcome, work.code) == ("failed", "source_changed")
    assert commits_of(tmp_path) == 0
    assert project.run("orders", date=DAY).outcome == "done"
    assert not project.status(now=ts(15))[0].stale


def test_of_a_range_only_the_interval_whose_file_changed_is_read_again(tmp_path, spark, at_failpoint):
    project = open_orders(tmp_path, spark, "replace_interval")
    at_failpoint("writing", lambda: land(tmp_path, DAY, orders_of(DAY, 5)))
    report = project.run("orders", start=DAY, end="2024-03-17")
    # The range is halved; what was pinned anew is written as it is now.
    assert report.outcome == "done"
    assert not project.status(now=ts(17))[0].stale


@pytest.mark.long
def test_a_file_that_is_rewritten_by_its_own_reader_fails_the_work(tmp_path, spark):
    land(tmp_path, DAY, orders_of(DAY))
    path = str(tmp_path / f"landing/{DAY}/orders.json")

    @once.pipeline(
        every="day",
        start=DAY,
        reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long"),
        writes=once.append("t"),
    )
    def load(files):
        from pyspark.sql.functions import udf

        @udf("long")
        def rewriting(number):
            with open(path, "a") as file:
                file.write(json.dumps({"id": 99}) + "\n")
            return number

        return files.select(rewriting("id").alias("id"))

    (work,) = once.Project.of(load, lake=tmp_path / "lake", root=tmp_path, spark=spark).run(date=DAY).works
    assert (work.outcome, work.code) == ("failed", "source_changed")
    assert not (tmp_path / "lake/t").exists()


# A table is created with its first rows


FAILING = {
    "replace_interval": once.replace_interval("t", time="at"),
    "replace_partitions": once.replace_partitions("t", by="day"),
    "overwrite": once.overwrite("t"),
    "append": once.append("t"),
    "merge": once.merge("t", keys="id", latest_by="at"),
    "scd2": once.scd2("t", keys="id", latest_by="at"),
    "aggregate": once.aggregate("t", keys="id"),
}


@pytest.mark.parametrize("kind", sampled(list(FAILING), 1, "creates no table", always=["replace_interval", "scd2"]))
def test_a_frame_that_cannot_be_computed_creates_no_table(tmp_path, spark, kind):
    write_table(tmp_path, "raw", {"id": [1], "at": pa.array([ts(14, 1)], pa.timestamp("us", "UTC"))})

    def declared(expression):
        @once.pipeline(every="day", start=DAY, reads=once.table("raw", time="at"), writes=FAILING[kind])
        def load(raw):
            return raw.selectExpr(f"{expression} AS id", "at", "CAST(at AS DATE) AS day")

        return once.Project.of(load, lake=tmp_path / "lake", spark=spark)

    (work,) = declared("CAST(raise_error('no') AS STRING)").run(date=DAY).works
    assert work.outcome == "failed"
    assert not (tmp_path / "lake/t/_delta_log").exists()
    # Corrected, the column has another type: the failed attempt has not fixed it.
    assert declared("id").run(date=DAY).outcome == "done"
    assert DeltaTable(str(tmp_path / "lake/t")).to_pyarrow_table()["id"].to_pylist() == [1]


# Pinned versions of a table that were vacuumed


def raw_rows(*days):
    return {"id": list(days), "at": pa.array([ts(day, 1) for day in days], pa.timestamp("us", "UTC"))}


def copies(spark, root, function=lambda raw, **_: {"a": raw, "b": raw}):
    """Return a project that copies the rows of a day to two tables."""
    targets = [once.replace_interval(name, time="at") for name in ("a", "b")]

    @once.pipeline(every="day", start=DAY, reads=once.table("raw", time="at"), writes=targets)
    def copy(raw):
        return function(raw)

    return once.Project.of(copy, lake=root / "lake", spark=spark)


def interrupt_between_targets(spark, root, stopped_at):
    project = copies(spark, root)
    with stopped_at("settled"):
        project.run(date=DAY)
    assert (commits_of(root, "a"), commits_of(root, "b")) == (1, 0)
    return project


def vacuum(root, table):
    DeltaTable(str(root / "lake" / table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def ids_of(root, table):
    return sorted(DeltaTable(str(root / "lake" / table)).to_pyarrow_table()["id"].to_pylist())


def test_the_rest_of_a_work_whose_input_was_vacuumed_has_two_ways_out(tmp_path, spark, stopped_at):
    write_table(tmp_path, "raw", raw_rows(14))
    project = interrupt_between_targets(spark, tmp_path, stopped_at)
    write_table(tmp_path, "raw", {**raw_rows(14), "id": [99]}, mode="overwrite")
    vacuum(tmp_path, "raw")
    failed = next(work for work in project.run(date=DAY).works if work.outcome == "failed")
    assert (failed.target, failed.code) == ("b", "pinned_input_gone")
    assert "vacuumed" in failed.error
    assert project.run(date=DAY, accept_new_input=True).outcome == "done"
    assert (ids_of(tmp_path, "a"), ids_of(tmp_path, "b")) == ([14], [99])


def test_a_vacuumed_file_without_rows_of_the_interval_stops_nothing(tmp_path, spark, stopped_at):
    write_table(tmp_path, "raw", raw_rows(14))
    write_table(tmp_path, "raw", raw_rows(15))
    project = interrupt_between_targets(spark, tmp_path, stopped_at)
    DeltaTable(str(tmp_path / "lake/raw")).delete("id = 15")
    vacuum(tmp_path, "raw")
    assert project.run(date=DAY).outcome == "done"
    assert ids_of(tmp_path, "b") == [14]


def test_an_error_of_the_function_is_not_taken_for_an_input_that_is_gone(tmp_path, spark, stopped_at):
    write_table(tmp_path, "raw", raw_rows(14))
    interrupt_between_targets(spark, tmp_path, stopped_at)

    def failing(raw):
        raise KeyError("the rate of this day does not exist")

    failed = next(work for work in copies(spark, tmp_path, failing).run(date=DAY).works if work.target == "b")
    assert (failed.outcome, failed.code) == ("failed", "function_failed")


def test_a_retry_after_a_conflict_reads_what_the_first_target_read(tmp_path, spark, monkeypatch):
    from oncelake.delta import writes
    from oncelake.delta.conflicts import TableChanged

    write_table(tmp_path, "raw", raw_rows(14))
    real, conflicts = writes.replace, []

    def conflicting(frame, path, *rest):
        if path.endswith("/b") and not conflicts:
            conflicts.append(path)
            write_table(tmp_path, "raw", {**raw_rows(14), "id": [99]})
            raise TableChanged("another writer was faster")
        return real(frame, path, *rest)

    monkeypatch.setattr(writes, "replace", conflicting)
    assert copies(spark, tmp_path).run(date=DAY).outcome == "done"
    assert conflicts
    assert (ids_of(tmp_path, "a"), ids_of(tmp_path, "b")) == ([14], [14])


# Rows whose time is null


def timed(spark, root, null_time):
    @once.pipeline(
        every="day",
        start=DAY,
        reads=once.table("raw", time="at", null_time=null_time),
        writes=once.replace_interval("t", time="at"),
    )
    def copy(raw):
        return raw

    return once.Project.of(copy, lake=root / "lake", spark=spark)


@pytest.mark.parametrize("statistics", [pytest.param(True, marks=pytest.mark.long), False], ids=["with", "without"])
def test_rows_without_a_time_are_refused_if_declared(tmp_path, spark, statistics):
    settings = {"configuration": {} if statistics else {"delta.dataSkippingNumIndexedCols": "0"}}
    write_table(tmp_path, "raw", raw_rows(14), **settings)
    refusing = timed(spark, tmp_path, "refuse")
    assert refusing.run(date=DAY).outcome == "done"
    nulls = {"id": [1, 2], "at": pa.array([None, None], pa.timestamp("us", "UTC"))}
    write_table(tmp_path, "raw", {name: nulls[name] for name in ("id", "at")})
    write_table(tmp_path, "raw", raw_rows(15))
    (work,) = refusing.run(date="2024-03-15").works
    assert (work.outcome, work.code) == ("failed", "null_times")
    assert "2 rows" in work.error
    assert timed(spark, tmp_path, "report").run(date="2024-03-15").outcome == "done"
    assert ids_of(tmp_path, "t") == [14, 15]


# Odd folders


@pytest.mark.parametrize(
    ("name", "lake"), [pytest.param("a*?{x}#ä b+%", "a*?{x}#ä b+%", marks=pytest.mark.long), ("a[1]%20", "lake")]
)
def test_a_project_may_lie_in_an_odd_folder(tmp_path, spark, name, lake):
    root = tmp_path / name
    land_days(root)
    pipeline = orders_pipeline(once.merge("t", keys="customer", latest_by="ordered_at", delete_when="id = 102"))
    project = once.Project.of(pipeline, lake=tmp_path / lake, root=root, spark=spark)
    assert project.run(start=DAY, end="2024-03-16").outcome == "done"
    assert project.run(start=DAY, end="2024-03-17").outcome == "done"
    assert len(DeltaTable(str(tmp_path / lake / "t")).to_pyarrow_table()) == 3
    assert [entry["outcome"] for entry in project.ledger() if entry["event"] == "ended"] == ["committed"] * 3
    assert {path.name for path in tmp_path.iterdir()} == {name, lake}


def test_a_frame_that_fails_in_once_write_is_an_error_of_ours(spark, tmp_path):
    frame = spark.range(3).selectExpr("id", "assert_true(id < 2) AS checked")
    with pytest.raises(once.OncelakeError, match="is not true") as found:
        once.write(frame, once.merge("t", keys="id"), work="job", lake=str(tmp_path))
    assert (found.value.code, found.value.facts["target"]) == ("write_failed", "t")
    assert "call once.write again" in found.value.next
    assert not (tmp_path / "t").exists()
