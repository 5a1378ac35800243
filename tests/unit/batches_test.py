"""Numbered batches over a log in memory: plan, done, restart. Arrivals and streams build on this."""

import pytest

from oncelake.declare.pipelines import Schedule, build
from oncelake.model.markers import Marker, marker, stream_app_id
from oncelake.model.slices import Batch, parse_slice
from oncelake.patterns import append, merge
from oncelake.planning.batches import last_batch, next_number, plan_batches
from oncelake.sources import files, table
from oncelake.testing import MemoryLog

STREAM = "checkpoint-7f3a"


def pipeline(*patterns):
    schedule = Schedule("day", "2024-01-01", "UTC")
    return build(lambda frame: frame, table("landing", time="at"), patterns, schedule, name="load", where="load.py:1")


def batches(*numbers):
    return [Batch(STREAM, number) for number in numbers]


def planned(load, logs, *numbers):
    return [(item.target, item.slice, item.action) for item in plan_batches(load, batches(*numbers), logs)]


def commit(load, target, log, number):
    """Commit a batch to one target, as Delta would."""
    log.add(load.pattern(target).marker(load.name, Batch(STREAM, number), 1))


def test_batches_of_a_stream_share_one_app_id_and_their_number_is_the_version():
    one, two = (marker("load", "bronze", batch, 1) for batch in batches(1, 2))
    assert one == Marker(stream_app_id("load", "bronze", STREAM), 1)
    assert (two.app_id, two.version) == (one.app_id, 2)


def test_another_stream_identity_is_another_app_id():
    assert stream_app_id("load", "bronze", "a") != stream_app_id("load", "bronze", "b")
    assert stream_app_id("load", "bronze", "a/b") != stream_app_id("load", "bronze/a", "b")


def test_batches_are_planned_in_the_order_of_their_numbers():
    assert planned(pipeline(append("bronze")), {}, 2, 0, 1) == [
        ("bronze", "batch 0", "run"),
        ("bronze", "batch 1", "run"),
        ("bronze", "batch 2", "run"),
    ]


def test_a_committed_batch_and_all_before_it_are_done():
    load, log = pipeline(append("bronze")), MemoryLog()
    commit(load, "bronze", log, 1)
    assert [action for *_, action in planned(load, {"bronze": log}, 0, 1, 2)] == ["skip", "skip", "run"]


def test_a_million_batches_leave_one_marker():
    load, log = pipeline(append("bronze")), MemoryLog()
    for number in range(1000):
        commit(load, "bronze", log, number)
    assert len(log.markers) == 1


def test_a_restart_between_two_targets_writes_only_the_missing_one():
    load = pipeline(append("bronze"), merge("customers", keys="id"))
    logs = {"bronze": MemoryLog(), "customers": MemoryLog()}
    commit(load, "bronze", logs["bronze"], 5)
    commit(load, "customers", logs["customers"], 4)
    assert planned(load, logs, 5) == [("bronze", "batch 5", "skip"), ("customers", "batch 5", "run")]
    commit(load, "customers", logs["customers"], 5)
    assert [action for *_, action in planned(load, logs, 5)] == ["skip", "skip"]


def test_a_replayed_batch_does_not_commit_twice():
    load, log = pipeline(append("bronze")), MemoryLog()
    commit(load, "bronze", log, 3)
    before = log.version
    commit(load, "bronze", log, 3)
    commit(load, "bronze", log, 2)
    assert log.version == before


@pytest.mark.parametrize(("committed", "expected"), [((), 0), ((0,), 1), ((4,), 5)])
def test_the_next_number_comes_after_the_last_batch_that_any_target_has(committed, expected):
    load = pipeline(append("bronze"), append("audit"))
    logs = {"bronze": MemoryLog(), "audit": None}
    for number in committed:
        commit(load, "bronze", logs["bronze"], number)
    assert next_number(load, STREAM, logs) == expected


def test_a_batch_is_read_back_from_its_text():
    batch = Batch("a stream with spaces", 17)
    assert parse_slice(batch.text) == batch
    assert str(batch) == "batch 17"


def test_a_batch_that_was_overtaken_is_not_done():
    load, log = pipeline(merge("silver", keys="id")), MemoryLog()
    for number in (0, 1):
        commit(load, "silver", log, number)
    log.overtaken[stream_app_id("load", "silver", STREAM)] = log.version
    assert planned(load, {"silver": log}, 0, 1) == [("silver", "batch 0", "skip"), ("silver", "batch 1", "run")]


@pytest.mark.parametrize(("number", "done"), [(0, None), (3, 2)])
def test_files_of_a_batch_that_was_overtaken_are_read_again(number, done):
    arriving = build(
        lambda rows: rows,
        files("landing", "json"),
        merge("silver", keys="id"),
        Schedule(None, None, "UTC"),
        name="load",
        where="load.py:1",
    )
    log = MemoryLog().add(arriving.writes[0].marker("load", Batch(arriving.arrival.stream, number), 1))
    assert last_batch(arriving, {"silver": log}) == number
    log.overtaken[stream_app_id("load", "silver", arriving.arrival.stream)] = log.version
    assert last_batch(arriving, {"silver": log}) == done
