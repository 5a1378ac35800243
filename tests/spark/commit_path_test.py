"""The commit path: how deep it is, how often it reads logs, and what it does where the grid changed under the markers."""

import sys
from datetime import UTC, datetime, timedelta
from shutil import copytree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

import oncelake as once
from oncelake.cli.main import cli
from oncelake.delta import log as delta_log
from oncelake.model import failpoints
from oncelake.model.intervals import Interval
from oncelake.storage import objects
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 3, 15, tzinfo=UTC)
ROWS = [(hour, datetime(2024, 3, 14, hour, 30, tzinfo=UTC), hour % 3) for hour in range(24)]
PATTERNS = {
    "replace_interval": once.replace_interval("t", time="at"),
    "append": once.append("t"),
    "overwrite": once.overwrite("t"),
    "merge": once.merge("t", keys="id", latest_by="at"),
    "scd2": once.scd2("t", keys="key", latest_by="at"),
    "aggregate": once.aggregate("t", keys="id"),
}


def raw(spark, lake, rows=ROWS):
    ids, times, keys = zip(*rows, strict=True)
    columns = {"id": pa.array(ids, pa.int64()), "at": pa.array(times, pa.timestamp("us", "UTC")), "key": keys}
    write_deltalake(f"{lake}/raw", pa.table(columns), mode="append")


def project(spark, lake, pattern, every="day", start="2024-03-14"):
    @once.pipeline(every=every, start=start, reads=once.table("raw", time="at"), writes=pattern)
    def copy(raw):
        return raw

    return once.Project.of(copy, lake=lake, spark=spark)


def ids(lake, table="t"):
    return sorted(DeltaTable(f"{lake}/{table}").to_pyarrow_table(columns=["id"])["id"].to_pylist())


def modules_on_the_stack():
    """The modules of oncelake on the stack, outermost first, each once."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("oncelake.") and name not in found and name != failpoints.__name__:
            found.append(name)
        frame = frame.f_back
    return found[::-1]


@pytest.mark.parametrize("kind", PATTERNS)
def test_a_commit_is_at_most_eight_modules_deep(spark, tmp_path, monkeypatch, kind):
    raw(spark, tmp_path)
    depths = []
    from oncelake.delta import writes

    for name in ("append", "replace", "overwrite", "merge"):
        real = getattr(writes, name)

        def noting(*args, real=real, **kwargs):
            depths.append([*modules_on_the_stack(), writes.__name__])
            return real(*args, **kwargs)

        monkeypatch.setattr(writes, name, noting)
    opened = project(spark, tmp_path, PATTERNS[kind])
    assert opened.run(now=NOW).outcome == "done"
    # The command line calls the project: one more.
    (path,) = [found for found in depths if found[0] == "oncelake.api"]
    assert len(path) + len([cli]) <= 8, path


@pytest.fixture
def looks(monkeypatch):
    """How often the log of each table is replayed, refreshed, and its commit files read."""
    counts = {}

    def counting(kind, owner, name, table_of):
        real = getattr(owner, name)

        def instead(*args):
            key = (table_of(*args), kind)
            counts[key] = counts.get(key, 0) + 1
            return real(*args)

        monkeypatch.setattr(owner, name, instead)

    counting("replays", delta_log, "_replay", lambda log, *_: log.table)
    counting("reads", objects._Local, "read", lambda storage, name: storage._folder.rpartition("/")[2])
    real = delta_log.refresh_log

    def refreshing(log):
        counts[log.table, "refreshes"] = counts.get((log.table, "refreshes"), 0) + 1
        return real(log)

    monkeypatch.setattr("oncelake.delta.tables.refresh_log", refreshing)
    return counts


@pytest.mark.parametrize("kind", ["replace_interval", "merge"])
def test_one_day_reads_the_targets_log_once_and_refreshes_it_three_times_at_most(spark, tmp_path, looks, kind):
    raw(spark, tmp_path)
    opened = project(spark, tmp_path, PATTERNS[kind])
    opened.run(now=NOW)
    opened.restate("copy", date="2024-03-14", now=NOW)  # the table is there now
    looks.clear()
    again = once.Project.of(*opened.pipelines.values(), lake=tmp_path, spark=spark)
    raw(spark, tmp_path)
    report = again.run(stale=True, now=NOW)
    assert [work.outcome for work in report.works] == ["committed"]
    commits = DeltaTable(f"{tmp_path}/t").version() + 1
    assert looks["t", "replays"] == 1
    assert looks["t", "refreshes"] <= 3
    assert looks["t", "reads"] == commits, "every commit file is read once"
    assert looks["raw", "replays"] == 1
    assert looks["raw", "reads"] == DeltaTable(f"{tmp_path}/raw").version() + 1


@pytest.mark.parametrize("kind", ["replace_interval", "merge"])
def test_an_interval_that_is_partly_done_under_another_grid_is_completed(spark, tmp_path, kind):
    raw(spark, tmp_path)
    hourly = project(spark, tmp_path, PATTERNS[kind], every="hour")
    assert hourly.run(start="2024-03-14", end="2024-03-14T06:00", now=NOW).outcome == "done"
    assert ids(tmp_path) == list(range(6))
    daily = project(spark, tmp_path, PATTERNS[kind])
    report = daily.run(now=NOW)
    assert [(work.outcome, work.slice) for work in report.works] == [("committed", "[2024-03-14, 2024-03-15)")]
    assert ids(tmp_path) == list(range(24))
    assert daily.run(now=NOW).works[0].outcome == "already_done"


def test_a_partly_done_interval_that_would_be_appended_twice_is_refused_with_a_way_out(spark, tmp_path):
    week = [(day, datetime(2024, 3, day, 12, tzinfo=UTC), 0) for day in range(11, 18)]
    spark.createDataFrame(week, "id long, at timestamp, key long").coalesce(1).write.format("delta").save(
        f"{tmp_path}/raw"
    )
    over = datetime(2024, 3, 18, tzinfo=UTC)
    daily, weekly = (project(spark, tmp_path, once.append("t"), every, "2024-03-11") for every in ("day", "week"))
    daily.run(end="2024-03-15", now=over)
    (work,) = weekly.run(now=over).works
    assert (work.outcome, work.code) == ("failed", "partly_done")
    assert ids(tmp_path) == [11, 12, 13, 14]
    assert "oncelake rebuild t" in work.error
    # The two ways out that the error names: replay all of it, or finish the interval on the former grid and then change it.
    copytree(tmp_path, tmp_path.with_name("rebuilt"))
    for root, finish in ((tmp_path.with_name("rebuilt"), "rebuild"), (tmp_path, "run")):
        daily, weekly = (project(spark, root, once.append("t"), every, "2024-03-11") for every in ("day", "week"))
        done = weekly.rebuild("t", now=over).failed is None if finish == "rebuild" else daily.run(now=over).works
        assert done
        assert ids(root) == list(range(11, 18))
        assert weekly.run(now=over).works[0].outcome == "already_done"


@pytest.mark.parametrize("kind", ["append", "merge"])
def test_a_rebuild_replays_the_whole_interval_of_what_was_done_in_part(tmp_path, kind):
    pattern, hour = PATTERNS[kind], datetime(2024, 3, 14, 5, tzinfo=UTC)
    before_the_first = Interval(hour - timedelta(days=1), hour - timedelta(hours=5))
    for number, done in enumerate((Interval(hour, hour + timedelta(hours=1)), before_the_first)):
        write_commit(tmp_path / "t", number, txn(pattern.marker("copy", done, 1)))
    found = project(None, tmp_path, pattern).rebuild("t", dry_run=True, now=NOW)
    assert [str(slice_) for _, slice_ in found.works] == ["[2024-03-14, 2024-03-15)"]


def by_date(lake, spark, zone, start):
    @once.pipeline(
        every="day",
        start=start,
        timezone=zone,
        reads=once.table("raw", time="at"),
        writes=once.replace_interval("t", time="day"),
    )
    def copy(raw):
        return raw.withColumn("day", F.to_date("at"))

    return once.Project.of(copy, lake=lake, spark=spark)


def test_dates_of_another_zone_are_not_lost_one_day_at_a_time(spark, tmp_path):
    times = [datetime(2024, 3, day, hour, 30, tzinfo=UTC) for day in (14, 15) for hour in (6, 20)]
    raw(spark, tmp_path, [(number, time, 0) for number, time in enumerate(times)])
    over = datetime(2024, 3, 16, tzinfo=UTC)
    assert by_date(tmp_path, spark, "Asia/Kolkata", "2024-03-14").run(now=over).outcome == "done"
    # The second day in UTC is done in part. Its date is also that of rows of the first day, which is done.
    daily = by_date(tmp_path, spark, "UTC", "2024-03-14")
    first, second = daily.run(now=over).works
    assert (first.outcome, second.outcome, second.code) == ("already_done", "failed", "other_timezone")
    assert ids(tmp_path) == [0, 1, 2]
    assert daily.rebuild("t", now=over).failed is None
    assert [work.outcome for work in daily.run(now=over).works] == ["already_done"] * 2
    found = DeltaTable(f"{tmp_path}/t").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["day"].day) for row in found) == [(0, 14), (1, 14), (2, 15), (3, 15)]
    assert daily.restate("copy", date="2024-03-14", now=over).outcome == "done"
    assert ids(tmp_path) == [0, 1, 2, 3]


def test_a_range_whose_intervals_have_other_columns_is_split(spark, tmp_path):
    raw(spark, tmp_path)

    @once.pipeline(
        every="hour",
        start="2024-03-14",
        reads=once.table("raw", time="at"),
        writes=once.replace_interval("t", time="at"),
    )
    def odd(raw, interval):
        return raw.withColumn("odd", F.lit(1)) if interval.start.hour == 5 else raw

    report = once.Project.of(odd, lake=tmp_path, spark=spark).run(end="2024-03-14T08:00", now=NOW)
    failed = [work for work in report.works if work.outcome == "failed"]
    assert [(work.slice, work.code) for work in failed] == [("[2024-03-14T05:00, 2024-03-14T06:00)", "wrong_columns")]
    assert ids(tmp_path) == [0, 1, 2, 3, 4, 6, 7]
