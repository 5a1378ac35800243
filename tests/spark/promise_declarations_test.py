"""Renamed pipelines, order and a changed grid on real tables: each is the table that one clean run leaves."""

from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

import oncelake as once


def at(day, hour=0):
    return datetime(2024, 3, day, hour, tzinfo=UTC)


def deliver(spark, lake, *rows):
    frame = spark.createDataFrame(rows, "id long, at timestamp, v long").coalesce(1)
    frame.write.format("delta").mode("append").save(f"{lake}/raw")


def project(spark, lake, pattern, name="load", every="day", **more):
    reads = once.table("raw", time="at")
    declared = once.pipeline(every=every, start="2024-03-14", reads=reads, writes=pattern, name=name, **more)
    return once.Project.of(declared(lambda raw: raw), lake=lake, spark=spark)


def rows(lake, *columns):
    table = DeltaTable(f"{lake}/t").to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in table)


def test_a_renamed_append_goes_on_where_its_former_name_ended(spark, tmp_path):
    deliver(spark, tmp_path, (14, at(14, 1), 1), (15, at(15, 1), 1))
    assert project(spark, tmp_path, once.append("t")).run(now=at(15)).outcome == "done"
    renamed = project(spark, tmp_path, once.append("t"), "load_orders", formerly="load")
    report = renamed.run(now=at(16))
    assert [work.outcome for work in report.works] == ["already_done", "committed"]
    assert rows(tmp_path, "id") == [(14,), (15,)]
    assert [work.outcome for work in renamed.run(now=at(16)).works] == ["already_done", "already_done"]


@pytest.mark.parametrize("pattern", [once.append("t"), once.overwrite("t")], ids=["append", "overwrite"])
def test_what_a_restore_undoes_is_done_again_under_the_new_name(spark, tmp_path, pattern):
    deliver(spark, tmp_path, (14, at(14, 1), 1), (15, at(15, 1), 1))
    former = project(spark, tmp_path, pattern)
    former.run(now=at(15))
    former.restore("t", 0)
    former.run(now=at(16))
    before, newest = rows(tmp_path, "id"), former.history("t")[0].version
    renamed = project(spark, tmp_path, pattern, "load_orders", formerly="load")
    planned = renamed.restore("t", 0)
    assert {work.pipeline for work in planned.undone} == {"load_orders"}
    assert planned.elsewhere == ()
    assert rows(tmp_path, "id") == []
    # Undone, the requests under either name are closed.
    assert renamed.restore("t", newest).undone == ()
    assert [work.outcome for work in renamed.run(now=at(16)).works] == ["already_done", "already_done"]
    assert rows(tmp_path, "id") == before
    renamed.restore("t", 0)
    assert renamed.run(now=at(16)).outcome == "done"
    assert rows(tmp_path, "id") == before


def test_the_id_of_the_project_is_in_the_facts(spark, tmp_path):
    (tmp_path / "oncelake.yaml").write_text("lake: lake\nid: one\n")
    (tmp_path / "pipelines.py").write_text(
        "import oncelake as once\n"
        '@once.pipeline(every="day", start="2024-03-14", reads=once.table("raw", time="at"), writes=once.append("t"))\n'
        "def load(raw): return raw\n"
    )
    deliver(spark, tmp_path / "lake", (14, at(14, 1), 1))
    opened = once.open(tmp_path, spark=spark)
    assert opened.run(now=at(15)).outcome == "done"
    ((_, facts),) = opened.lake.table("t").log().newest_facts()
    assert facts["project"] == "one"


def test_after_hours_become_days_a_late_row_redoes_its_whole_day(spark, tmp_path):
    pattern = once.replace_interval("t", time="at")
    deliver(spark, tmp_path, *((hour, at(14, hour), hour) for hour in range(24)))
    hourly = project(spark, tmp_path, pattern, every="hour", combine_intervals=False)
    assert hourly.run(start="2024-03-14", end="2024-03-14T02:00", now=at(15)).outcome == "done"
    daily = project(spark, tmp_path, pattern)
    (work,) = daily.run(now=at(15)).works
    assert (work.outcome, work.slice, work.generation) == ("committed", "[2024-03-14, 2024-03-15)", 2)
    deliver(spark, tmp_path, (99, at(14, 1), 99))
    (work,) = daily.run(stale=True, now=at(15)).works
    assert (work.outcome, work.slice, work.generation) == ("committed", "[2024-03-14, 2024-03-15)", 3)
    assert rows(tmp_path, "id") == [*((hour,) for hour in range(24)), (99,)]
    assert daily.run(now=at(15)).works[0].outcome == "already_done"


def test_an_aggregate_is_written_in_order_or_not_at_all(spark, tmp_path):
    (tmp_path / "landing/2024-03-15").mkdir(parents=True)
    (tmp_path / "landing/2024-03-15/x.json").write_text('{"id": 1, "v": 15}')
    files = once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, v long")
    declared = once.pipeline(
        every="day", start="2024-03-14", reads=files, writes=once.aggregate("t", keys="id"), name="load"
    )(lambda files: files)
    opened = once.Project.of(declared, lake=tmp_path, root=tmp_path, spark=spark)
    assert [work.code for work in opened.run(now=at(16)).works] == ["source_missing", "earlier_not_done"]
    (tmp_path / "landing/2024-03-14").mkdir()
    (tmp_path / "landing/2024-03-14/x.json").write_text('{"id": 1, "v": 14}')
    assert [work.outcome for work in opened.run(now=at(16)).works] == ["committed", "committed"]
    assert rows(tmp_path, "id", "v") == [(1, 15)]
