"""The world changes between two runs: late rows by another time column, restores, more targets, corrected deletes.

Each of these histories once ended wrong, in silence.
"""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once
from oncelake.delta import writes
from support.daily import daily, files, land, rows

RAW = "id long, at timestamp, v long"


def ts(day, hour=0):
    return datetime(2024, 3, day, hour, tzinfo=UTC)


def append_raw(spark, root, *rows):
    spark.createDataFrame(rows, RAW).coalesce(1).write.format("delta").mode("append").save(f"{root}/lake/raw")


@pytest.fixture
def project(spark, tmp_path):
    return lambda *pipelines: once.Project.of(*pipelines, lake=tmp_path / "lake", spark=spark, root=tmp_path)


# Late data by the reader's time column


def load_by_day(interval_column="loaded_on"):
    @daily(reads=files("id long, at timestamp"), writes=once.replace_partitions("raw", by=interval_column))
    def bronze(files, interval):
        return files.withColumn(interval_column, F.lit(interval.start.date()))

    return bronze


def by_event_time(late="restate"):
    @daily(late=late, reads=once.table("raw", time="at"), writes=once.replace_interval("silver", time="at"))
    def silver(raw):
        return raw

    return silver


def test_late_rows_are_found_by_the_readers_time_column(project, tmp_path):
    opened = project(load_by_day(), by_event_time())
    land(tmp_path, 14, {"id": 14, "at": "2024-03-14T10:00:00Z"})
    opened.run(now=ts(15))
    late = {"id": 99, "at": "2024-03-14T23:00:00Z"}
    land(tmp_path, 15, {"id": 15, "at": "2024-03-15T10:00:00Z"}, late)
    opened.run(now=ts(16))
    assert opened.run(now=ts(16)).outcome == "done"
    assert rows(tmp_path, "silver", "id") == [(14,), (15,), (99,)]
    assert all(item.action == "skip" for item in opened.plan(now=ts(16)).works)


def test_restate_downstream_reaches_the_intervals_that_the_rows_touch(project, tmp_path):
    opened = project(load_by_day(), by_event_time(late=None))
    land(tmp_path, 14, {"id": 14, "at": "2024-03-14T10:00:00Z"})
    land(tmp_path, 15, {"id": 15, "at": "2024-03-15T10:00:00Z"})
    opened.run(now=ts(16))
    land(tmp_path, 15, {"id": 15, "at": "2024-03-15T10:00:00Z"}, {"id": 99, "at": "2024-03-14T23:00:00Z"})
    report = opened.restate("bronze", date="2024-03-15", downstream=True, now=ts(16))
    assert report.outcome == "done"
    assert rows(tmp_path, "silver", "id") == [(14,), (15,), (99,)]


def copied():
    @daily(late="restate", reads=once.table("raw", time="at"), writes=once.replace_interval("t", time="at"))
    def copy(raw):
        return raw

    return copy


def test_late_rows_of_a_table_with_mapped_columns_are_not_passed_over(project, spark, tmp_path):
    properties = "tblproperties('delta.columnMapping.mode'='name')"
    spark.sql(f"create table delta.`{tmp_path}/lake/raw` (id long, at timestamp, v long) using delta {properties}")
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    opened = project(copied())
    opened.run(now=ts(15))
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    opened.run(now=ts(15))
    assert rows(tmp_path, "t", "id") == [(1,), (99,)]


def clean_up(table, *versions):
    """Do what Delta's log clean-up does: a checkpoint, and older commits are gone."""
    DeltaTable(str(table)).create_checkpoint()
    for version in versions:
        os.remove(table / "_delta_log" / f"{version:020}.json")


def test_a_source_log_that_no_longer_reaches_back_may_hide_late_rows(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    opened = project(copied())
    opened.run(now=ts(15))
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    append_raw(spark, tmp_path, (2, ts(20), 1))
    clean_up(tmp_path / "lake/raw", 0, 1)
    project(copied()).run(now=ts(15))
    assert rows(tmp_path, "t", "id") == [(1,), (99,)]


def test_a_work_whose_own_commit_was_cleaned_up_may_be_stale(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1), (2, ts(15, 1), 1))
    opened = project(copied())
    opened.run(date="2024-03-14", now=ts(16))
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    opened.run(date="2024-03-15", now=ts(16))
    versions = [entry.version for entry in opened.history("t") if entry.slice == "[2024-03-14, 2024-03-15)"]
    clean_up(tmp_path / "lake/t", *range(versions[0] + 1))
    (status,) = project(copied()).status(now=ts(16))
    assert ["2024-03-14" in str(interval) for interval, _ in status.stale] == [True]
    project(copied()).run(now=ts(16))
    assert rows(tmp_path, "t", "id") == [(1,), (2,), (99,)]


def test_changed_code_is_shown_and_not_redone_by_late_data(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    project(copied()).run(now=ts(15))

    @daily(late="restate", reads=once.table("raw", time="at"), writes=once.replace_interval("t", time="at"))
    def copy(raw):
        return raw.withColumn("v", F.col("v") + 1)

    changed = project(copy)
    assert [work.outcome for work in changed.run(now=ts(15)).works] == ["already_done"]
    assert changed.status(now=ts(15))[0].stale
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    assert [work.outcome for work in changed.run(now=ts(15)).works] == ["committed"]
    assert rows(tmp_path, "t", "id", "v") == [(1, 2), (99, 2)]


# Restore


def appended():
    @daily(reads=files("id long, v long"), writes=once.append("t"))
    def load(files):
        return files

    return load


@pytest.mark.parametrize("run_between", [True, False], ids=["restore, run, restore", "restore, undo"])
def test_restores_never_repeat_an_append_whose_rows_are_there(project, tmp_path, run_between):
    opened = project(appended())
    for day in (14, 15):
        land(tmp_path, day, {"id": day, "v": 1})
    opened.run(now=ts(16))
    good = opened.history("t")[0].version
    assert [str(work.slice) for work in opened.restore("t", good - 1).undone] == ["[2024-03-15, 2024-03-16)"]
    assert rows(tmp_path, "t", "id") == [(14,)]
    if run_between:
        opened.run(now=ts(16))
        assert rows(tmp_path, "t", "id") == [(14,), (15,)]
    assert opened.restore("t", good).undone == ()
    opened.run(now=ts(16))
    assert rows(tmp_path, "t", "id") == [(14,), (15,)]
    # And once more back and forth.
    opened.restore("t", good - 1)
    opened.run(now=ts(16))
    assert rows(tmp_path, "t", "id") == [(14,), (15,)]


def test_a_restore_between_generations_keeps_the_restored_rows_and_what_they_were_made_from(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    opened = project(copied())
    opened.run(now=ts(15))
    first = opened.history("t")[0].version
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    opened.run(now=ts(15))
    assert rows(tmp_path, "t", "id") == [(1,), (99,)]
    assert opened.restore("t", first).undone == ()
    assert rows(tmp_path, "t", "id") == [(1,)]
    # What was restored was made without the late row: it is stale, and late="restate" brings it in.
    opened.run(now=ts(15))
    assert rows(tmp_path, "t", "id") == [(1,), (99,)]


@pytest.mark.parametrize("interval", [None, ("2024-03-14", "2024-03-15")], ids=["named", "interval"])
def test_once_write_writes_again_what_a_restore_took_out(spark, tmp_path, project, interval):
    frame = spark.createDataFrame([(1, ts(14, 1), 1)], RAW)
    pattern = once.append("t") if interval is None else once.replace_interval("t", time="at")
    call = {"work": "nightly/1", "lake": str(tmp_path / "lake"), "interval": interval}
    assert once.write(frame, pattern, **call).outcome == "committed"
    other = project(copied())
    planned = other.restore("t", 0)
    assert planned.undone == ()
    assert [work.pipeline for work in planned.elsewhere] == ["nightly" if interval is None else "nightly/1"]
    assert rows(tmp_path, "t", "id") == []
    assert once.write(frame, pattern, **call).outcome == "committed"
    assert once.write(frame, pattern, **call).outcome == "already_done"
    assert rows(tmp_path, "t", "id") == [(1,)]


def test_a_clustered_table_is_refused_with_an_error_of_ours(spark, tmp_path, project):
    @daily(reads=files("id long"), writes=once.merge("t", keys="id", cluster_by="id"))
    def load(files):
        return files

    opened = project(load)
    land(tmp_path, 14, {"id": 1})
    opened.run(now=ts(15))
    before = rows(tmp_path, "t", "id")
    with pytest.raises(once.OncelakeError) as caught:
        opened.restore("t", 1)
    assert caught.value.code == "cannot_restore"
    assert rows(tmp_path, "t", "id") == before


# Several targets


def both(*patterns, late=None):
    @daily(late=late, reads=once.table("raw", time="at"), writes=list(patterns))
    def copy(raw):
        return {pattern.target: raw for pattern in patterns}

    return copy


A, B = once.replace_interval("a", time="at"), once.replace_interval("b", time="at")


def test_a_redo_of_one_target_reads_the_inputs_as_they_are_now(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    opened = project(both(once.append("log"), B, late="restate"))
    opened.run(now=ts(15))
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    for _ in range(3):
        opened.run(now=ts(15))
    assert rows(tmp_path, "b", "id") == [(1,), (99,)]
    assert [entry.facts["generation"] for entry in opened.history("b") if "generation" in entry.facts] == [2, 1]


def test_a_target_that_is_added_later_reads_the_inputs_as_they_are_now(project, spark, tmp_path):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    project(both(A)).run(now=ts(15))
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    project(both(A, B)).run(now=ts(15))
    assert rows(tmp_path, "b", "id") == [(1,), (99,)]


def test_a_crash_between_two_targets_is_finished_from_the_recorded_pins(project, spark, tmp_path, monkeypatch):
    append_raw(spark, tmp_path, (1, ts(14, 1), 1))
    opened = project(both(A, B))
    real = writes.replace

    def killed(frame, path, *rest):
        if str(path).endswith("/b"):
            raise OSError("killed")
        return real(frame, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(writes, "replace", killed)
        outcomes = {work.target: work.outcome for work in opened.run(now=ts(15)).works}
        assert outcomes == {"a": "committed", "b": "failed"}
    append_raw(spark, tmp_path, (99, ts(14, 5), 1))
    opened.run(now=ts(15))
    assert rows(tmp_path, "a", "id") == rows(tmp_path, "b", "id") == [(1,)]


# Tombstones


def merged():
    pattern = once.merge("m", keys="id", latest_by="t", delete_when="op = 'D'", exclude="op")

    @daily(reads=files("id long, t long, op string"), writes=pattern)
    def upsert(files):
        return files

    return upsert


def update(time):
    return {"id": 1, "t": time, "op": "U"}


DELETE = {"id": 1, "t": 50, "op": "D"}


def test_tombstones_of_a_work_that_a_restore_undid_do_not_count(project, tmp_path):
    opened = project(merged())
    land(tmp_path, 14, update(10))
    land(tmp_path, 15, DELETE)
    opened.run(now=ts(16))
    deleted = opened.history("m")[0].version
    opened.restore("m", deleted - 1)
    land(tmp_path, 15, update(30))
    opened.run(now=ts(16))
    assert rows(tmp_path, "m", "id", "t") == [(1, 30)]


def test_tombstones_count_again_when_the_restore_is_undone(project, tmp_path):
    opened = project(merged())
    land(tmp_path, 14, update(10))
    land(tmp_path, 15, DELETE)
    opened.run(now=ts(16))
    deleted = opened.history("m")[0].version
    opened.restore("m", deleted - 1)
    opened.restore("m", deleted)
    land(tmp_path, 16, update(40))
    opened.run(now=ts(17))
    assert rows(tmp_path, "m", "id", "t") == []


def test_tombstones_of_a_crashed_attempt_do_not_count_however_the_work_was_completed(project, tmp_path, monkeypatch):
    opened = project(merged())
    land(tmp_path, 14, update(10))
    opened.run(now=ts(15))
    land(tmp_path, 15, DELETE)

    def killed(*args, **kwargs):
        raise OSError("killed between the tombstones and the commit")

    with monkeypatch.context() as patched:
        patched.setattr(writes, "merge", killed)
        assert opened.run(now=ts(16)).outcome == "failed"
    land(tmp_path, 15, update(30))
    opened.run(now=ts(16))
    opened.restate("upsert", date="2024-03-15", now=ts(16))
    land(tmp_path, 16, update(40))
    opened.run(now=ts(17))
    assert rows(tmp_path, "m", "id", "t") == [(1, 40)]


def test_tombstones_of_a_dropped_table_do_not_count_for_the_next_one_of_its_name(project, tmp_path, monkeypatch):
    monkeypatch.setattr("oncelake.delta.prepared._MANY", 1)
    opened = project(merged())
    land(tmp_path, 14, DELETE)
    land(tmp_path, 15, update(60))
    opened.run(now=ts(16))
    assert rows(tmp_path, "m", "id", "t") == [(1, 60)]
    shutil.rmtree(tmp_path / "lake/m")
    land(tmp_path, 14, update(10))
    land(tmp_path, 15, update(20))
    project(merged()).run(now=ts(16))
    assert rows(tmp_path, "m", "id", "t") == [(1, 20)]


def test_settled_tombstones_still_count(project, tmp_path, monkeypatch):
    monkeypatch.setattr("oncelake.delta.prepared._MANY", 1)
    opened = project(merged())
    land(tmp_path, 14, update(60))
    land(tmp_path, 15, {"id": 1, "t": 70, "op": "D"})
    land(tmp_path, 16, {"id": 2, "t": 5, "op": "U"})
    opened.run(now=ts(17))
    land(tmp_path, 17, update(65))
    opened.run(now=ts(18))
    assert rows(tmp_path, "m", "id", "t") == [(2, 5)]
    (folder,) = Path(tmp_path / "lake/_oncelake/tombstones/m").iterdir()
    settled = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    assert [row["__once_attempt"] for row in settled] == [None]
    assert all(row["__once_version"] is not None for row in settled)


def test_a_second_target_whose_input_was_redelivered_has_two_ways_out(project, tmp_path, monkeypatch):
    @daily(reads=files("id long, v long"), writes=[once.append("x"), once.append("y")])
    def load(files):
        return {"x": files, "y": files}

    opened = project(load)
    land(tmp_path, 14, {"id": 1, "v": 1})
    real = writes.append

    def killed(frame, path, *rest):
        if str(path).endswith("/y"):
            raise OSError("killed")
        return real(frame, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(writes, "append", killed)
        opened.run(now=ts(15))
    land(tmp_path, 14, {"id": 2, "v": 1})
    failed = next(work for work in opened.run(now=ts(15)).works if work.outcome == "failed")
    assert (failed.target, failed.code) == ("y", "pinned_input_gone")
    assert "--accept-new-input" in failed.error
    assert opened.run(now=ts(15), accept_new_input=True).outcome == "done"
    assert (rows(tmp_path, "x", "id"), rows(tmp_path, "y", "id")) == ([(1,)], [(2,)])


def test_a_second_target_whose_input_was_redelivered_can_be_restated_with_the_first(project, tmp_path, monkeypatch):
    first, second = once.replace_partitions("x", by="day"), once.replace_partitions("y", by="day")

    @daily(reads=files("id long, day date"), writes=[first, second])
    def load(files):
        return {"x": files, "y": files}

    opened = project(load)
    land(tmp_path, 14, {"id": 1, "day": "2024-03-14"})
    real = writes.replace

    def killed(frame, path, *rest):
        if str(path).endswith("/y"):
            raise OSError("killed")
        return real(frame, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(writes, "replace", killed)
        opened.run(now=ts(15))
    land(tmp_path, 14, {"id": 2, "day": "2024-03-14"})
    assert opened.run(now=ts(15)).outcome == "failed"
    opened.restate("load", date="2024-03-14", now=ts(15))
    assert opened.run(now=ts(15)).outcome == "done"
    assert rows(tmp_path, "x", "id") == rows(tmp_path, "y", "id") == [(2,)]
