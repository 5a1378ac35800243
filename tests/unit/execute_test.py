"""What a run does where nothing has to be computed: no session is started, logs are read once, blocked work is recorded."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

import oncelake as once
from oncelake.delta import log as delta_log
from oncelake.delta.tables import Lake
from oncelake.model.events import RunEnded, RunPlanned, WorkEnded, WorkStarted
from oncelake.model.intervals import Grid, Interval
from oncelake.model.work import InputSize, Work
from oncelake.running.context import RunContext
from oncelake.running.execute import _cut_unless_fenced, packed
from oncelake.spark.jars import LOG_STORE
from oncelake.storage import objects
from oncelake.testing import RecordingListener
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 7, 19, 1, tzinfo=UTC)
DAYS = 200


def declared(name, reads, target, start="2024-01-01"):
    def function(**frames):
        raise AssertionError("nothing is computed here")

    function.__name__ = name
    parameters = reads if isinstance(reads, dict) else {"frame": reads}
    function = eval(f"lambda {', '.join(parameters)}: None")
    writes = once.replace_interval(target, time="at")
    return once.pipeline(reads=reads, writes=writes, every="day", start=start, name=name)(function)


def source(name):
    return once.table(name, time="at")


def mark_done(lake: Path, pipeline, days: int, per_commit: int = 1):
    """Write the log of a pipeline's target as it is after so many days."""
    (pattern,) = pipeline.writes
    cells = [Grid("day").cell(Grid("day").step(pipeline.start, number)) for number in range(days)]
    table = lake / Path(*pattern.target.split("."))
    for version, first in enumerate(range(0, days, per_commit)):
        markers = [pattern.marker(pipeline.name, cell, 1) for cell in cells[first : first + per_commit]]
        write_commit(table, version, *map(txn, markers))


@pytest.fixture
def counted(monkeypatch):
    """How often logs are replayed and files are read."""
    counts = {"replays": 0, "reads": 0}
    replay, read = delta_log._replay, objects._Local.read

    def counting_replay(*args):
        counts["replays"] += 1
        return replay(*args)

    def counting_read(self, name):
        counts["reads"] += 1
        return read(self, name)

    monkeypatch.setattr(delta_log, "_replay", counting_replay)
    monkeypatch.setattr(objects._Local, "read", counting_read)
    return counts


def no_session():
    raise AssertionError("nothing is computed, so no session is started")


def project(tmp_path, *pipelines):
    made = once.Project.of(*pipelines, lake=tmp_path / "lake")
    made.session = no_session
    return made


def test_a_rerun_over_200_done_days_reads_the_log_once(tmp_path, counted):
    orders = declared("orders", source("bronze.orders"), "silver.orders")
    mark_done(tmp_path / "lake", orders, DAYS)
    report = project(tmp_path, orders).run(now=NOW)
    assert report.outcome == "done"
    assert len(report.works) == DAYS
    assert {work.outcome for work in report.works} == {"already_done"}
    assert [work.version for work in report.works] == list(range(DAYS))
    assert counted == {"replays": 1, "reads": DAYS}


def test_a_second_run_of_an_open_project_reads_nothing_again(tmp_path, counted):
    orders = declared("orders", source("bronze.orders"), "silver.orders")
    mark_done(tmp_path / "lake", orders, DAYS)
    opened = project(tmp_path, orders)
    opened.run(now=NOW)
    before = dict(counted)
    assert opened.run(now=NOW).outcome == "done"
    assert counted == before


def joined_project(tmp_path):
    one, two = (declared(name, source(f"raw.{name}"), f"a.{name}") for name in ("one", "two"))
    three = declared("three", {"first": source("a.one"), "second": source("a.two")}, "a.three")
    mark_done(tmp_path / "lake", one, 3)
    mark_done(tmp_path / "lake", two, 2)
    return project(tmp_path, one, two, three)


def test_a_blocked_work_names_the_upstream_that_it_waits_for(tmp_path):
    opened = joined_project(tmp_path)
    (item,) = opened.plan("three", date="2024-01-03", now=NOW).works
    assert (item.action, item.waits_for.pipeline, item.waits_for.table) == ("wait", "two", "a.two")
    (work,) = opened.run("three", date="2024-01-03", now=NOW).works
    assert work.outcome == "blocked"
    assert "two has not" in work.error
    assert "next: oncelake run two three" in work.error


def test_blocked_work_reaches_the_ledger_so_that_failed_finds_it(tmp_path):
    opened = joined_project(tmp_path)
    opened.run("three", date="2024-01-03", now=NOW)
    assert [(entry["event"], entry["outcome"], entry["target"]) for entry in opened.ledger()] == [
        ("ended", "blocked", "a.three")
    ]
    plan = opened.plan("three", failed=True, now=NOW)
    assert [item.slice for item in plan.works] == ["[2024-01-03, 2024-01-04)"]


def test_work_that_was_done_before_the_run_is_not_written_to_the_ledger(tmp_path):
    orders = declared("orders", source("bronze.orders"), "silver.orders")
    mark_done(tmp_path / "lake", orders, DAYS)
    opened = project(tmp_path, orders)
    opened.run(now=NOW)
    assert opened.ledger() == []
    assert not (tmp_path / "lake/_oncelake/ledger").exists()


def test_a_listener_hears_every_event_of_a_run_in_order(tmp_path):
    opened, listener = joined_project(tmp_path), RecordingListener()
    report = opened.run("one", "three", date="2024-01-03", now=NOW, listener=listener)
    assert [type(event) for event in listener.events] == [RunPlanned, WorkEnded, WorkEnded, RunEnded]
    assert listener.of(WorkStarted) == []
    assert [outcome.outcome for outcome in listener.outcomes] == ["already_done", "blocked"]
    assert listener.of(RunEnded)[0].report == report


def test_a_listener_that_fails_is_reported_once_and_fails_no_run(tmp_path, caplog):
    class Broken:
        def on(self, event):
            raise OSError("no space left")

    orders = declared("orders", source("bronze.orders"), "silver.orders")
    mark_done(tmp_path / "lake", orders, DAYS)
    assert project(tmp_path, orders).run(now=NOW, listener=Broken()).outcome == "done"
    assert [record.getMessage() for record in caplog.records] == ["Broken failed on RunPlanned: no space left"]


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
def test_slices_that_fill_the_cores_are_not_written_concurrently(sizes, batches):
    slices = [[SimpleNamespace(size=InputSize(bytes=size))] for size in sizes]
    assert [len(batch) for batch in packed(slices, jobs=3, room=10)] == batches


def test_a_range_on_s3_is_cut_where_the_session_does_not_say_that_it_fences_ranges():
    pipeline, days = declared("orders", source("bronze.orders"), "silver.orders"), Grid("day")
    span = Interval(days.parse("2024-01-01"), days.parse("2024-01-04"), "UTC")
    (pattern,) = pipeline.writes
    work = Work("orders", "silver.orders", span, 1, pattern.marker("orders", span, 1))
    warned = []

    def dead():
        raise ConnectionRefusedError("Spark is gone")

    def cut(lake, session):
        context = RunContext(Lake(lake, "/"), session, (), 1.0)
        listening = replace(context, listeners=(SimpleNamespace(on=warned.append),))
        return [str(works[0].slice) for works in _cut_unless_fenced(pipeline, [work], listening)]

    own = lambda **settings: lambda: SimpleNamespace(conf=settings)  # noqa: E731
    fenced = {"spark.delta.logStore.s3a.impl": LOG_STORE}
    each = ["[2024-01-01, 2024-01-02)", "[2024-01-02, 2024-01-03)", "[2024-01-03, 2024-01-04)"]
    assert cut("s3a://bucket/lake", own(**fenced)) == [str(span)]
    assert cut("s3a://bucket/lake", own()) == each
    assert not warned
    assert cut("s3a://bucket/lake", dead) == each
    assert len(warned) == 1
    # No other store is fenced; on local disk the lock is exclusive, and the session is not asked.
    assert cut("gs://bucket/lake", own(**fenced)) == each
    assert cut("/lake", dead) == [str(span)]
