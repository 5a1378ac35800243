"""Proofs of streams: a run of several batches into three tables, crashed at every file call, those of its checkpoint included."""

import pytest

import oncelake as once
from oncelake.proving.calls import compiler
from support.processes import all_files
from support.streams import changes_source, expected, kafka_source, order, orders, write_project
from support.variants import number_of

needs_calls = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
# Of a stream; the others need intervals, or input that changes, and the verdict says so.
PLAIN = ("clean", "twice", "checkpoint", "layout", "restored", "second_target", "renamed", "no_lock", "race")
RECORDED = ("crash", "recovery", "lost", "fault", "zombie", "kill", "lost_jvm")
NOT_TRIED = {"order", "combine_intervals", "other_time", "grid_changed", "restate", "late", "corrected", "reader"}


@pytest.fixture
def topic(kafka):
    """A topic with more messages than the batches of a proof take."""
    made = kafka.new_topic()
    kafka.produce(made, *orders(*range(9)))
    return made


@pytest.fixture
def table(tmp_path, spark):
    """The folder of a project whose stream reads a table of three files."""
    for number in range(0, 6, 2):
        rows = [tuple(order(each).values()) for each in (number, number + 1)]
        frame = spark.createDataFrame(rows, "id bigint, customer bigint, cents bigint, at bigint, day string").coalesce(
            1
        )
        frame.write.format("delta").mode("append").save(str(tmp_path / "project/lake/orders_in"))
    return tmp_path / "project"


def proven(root, prover, states, scenarios, **more):
    """Prove a stream on some of its states, and check that nothing of the project was touched."""
    before = all_files(root)
    effort = {"points": states, "faults": 1, "recoveries": 1, "changes": 2, "lost_jvms": 1, "threads": (2,), **more}
    verdict = prover.prove(root, "orders", seed=number_of(root.name), scenarios=scenarios, **effort)
    assert verdict.violation is None
    assert all_files(root) == before
    return verdict


@needs_calls
@pytest.mark.long
def test_a_stream_into_three_tables_is_proven_on_a_sample_of_its_states(tmp_path, prover, kafka, topic):
    root = write_project(tmp_path / "three", kafka_source(kafka, topic), "three")
    verdict = proven(root, prover, 2, ("crash", "order"))
    assert set(verdict.counts) == {"crash"}
    assert set(verdict.not_tried) == {"order"}
    assert verdict.counts["crash"].there > 100
    # Three batches of two messages; the topic has more.
    assert verdict.fingerprints["append"]["rows"] == len(expected("append", range(6))["append"])


@needs_calls
@pytest.mark.long
@pytest.mark.parametrize("scenarios", [PLAIN, RECORDED], ids=["plain", "recorded"])
@pytest.mark.parametrize("shape", ["three", "state", "scd2"])
def test_a_stream_of_a_topic_is_proven(tmp_path, prover, kafka, topic, shape, scenarios):
    root = write_project(tmp_path / shape, kafka_source(kafka, topic), shape)
    verdict = proven(root, prover, 22, scenarios)
    left_out = {"restored", "second_target"} if shape == "state" else set()
    assert set(verdict.counts) == set(scenarios) - left_out
    assert set(verdict.not_tried) == left_out & set(scenarios)


@needs_calls
@pytest.mark.long
@pytest.mark.parametrize("feed", [False, True], ids=["appended rows", "feed"])
def test_a_stream_of_a_table_is_proven_and_the_table_is_left_as_it_is(table, prover, feed):
    root = write_project(table, changes_source(feed=feed), "three")
    verdict = proven(root, prover, 8, None)
    assert set(verdict.not_tried) == NOT_TRIED
    assert set(verdict.counts) == {*PLAIN, *RECORDED}


@pytest.mark.long
def test_a_stream_is_proven_at_its_failpoints_without_a_compiler(tmp_path, kafka, topic):
    root = write_project(tmp_path / "project", kafka_source(kafka, topic), "append")
    verdict = once.prove(root, "orders", level="steps", scenarios=("step", "checkpoint"))
    assert verdict.violation is None
    assert verdict.counts["step"].tried == verdict.counts["step"].there > 10
    assert verdict.counts["checkpoint"].tried == 4
