"""Streams of Kafka and of tables: each row once, whatever happens between two runs."""

import json
import shutil

import pytest
from pyspark.sql import functions as F

import oncelake as once
from oncelake.testing import RecordingListener
from support.kafka import Message


def numbers(*values):
    return [json.dumps({"id": value, "amount": value * 10}) for value in values]


class Payments:
    """A stream of payments from a topic of its own into bronze and silver."""

    def __init__(self, root, spark, kafka, topic=None, **options):
        self.root, self.spark, self.kafka = root, spark, kafka
        self.topic = topic or kafka.new_topic()
        self.options = {"value": "json", "schema": "id bigint, amount bigint", "max_messages": 2, **options}

    def project(self, function=None, writes=None, name="payments", formerly=None, **options):
        source = once.kafka(self.topic, servers=self.kafka.servers, **{**self.options, **options})
        writes = writes or [once.append("bronze"), once.merge("silver", keys="id")]
        declared = once.pipeline(name=name, formerly=formerly, reads=source, writes=writes)(function or self.split)
        return once.Project.of(declared, lake=self.root / "lake", spark=self.spark)

    @staticmethod
    def split(messages):
        rows = messages.select("value.*")
        return {"bronze": rows, "silver": rows}

    def send(self, *values):
        self.kafka.produce(self.topic, *values)

    def ids(self, target="bronze"):
        return sorted(row["id"] for row in self.rows(target))

    def rows(self, target="bronze"):
        return self.spark.read.format("delta").load(str(self.root / "lake" / target)).collect()

    @property
    def folder(self):
        return self.root / "lake" / "_oncelake" / "streams" / "payments" / "1"

    @property
    def checkpoint(self):
        return self.folder / "checkpoint"

    def forget(self, part="commits"):
        """Remove the newest entry of the checkpoint, as a kill before it was written leaves it."""
        last = max((self.checkpoint / part).glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def payments(tmp_path, spark, kafka):
    return lambda **options: Payments(tmp_path, spark, kafka, **options)


def outcomes(report):
    return [(work.slice, work.target, work.outcome) for work in report.works]


def failed(report, code):
    assert report.outcome == "failed"
    assert {work.code for work in report.works} == {code}, [work.error for work in report.works]


def test_what_is_available_is_taken_in_once(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    project = stream.project()
    report = project.run("payments")
    assert outcomes(report) == [
        ("batch 0", "bronze", "committed"),
        ("batch 0", "silver", "committed"),
        ("batch 1", "bronze", "committed"),
        ("batch 1", "silver", "committed"),
    ]
    assert (stream.ids(), stream.ids("silver")) == ([1, 2, 3], [1, 2, 3])
    assert project.run("payments").works == ()
    # Nothing is new: the answer comes from the broker and the checkpoint.
    assert project.plan("payments").works == ()
    stream.send(*numbers(4))
    assert project.run("payments").outcome == "done"
    assert stream.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("point", ["batch", "writing", "written"])
def test_a_stream_that_is_stopped_goes_on_with_the_same_batch(payments, stopped_at, point):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    with stopped_at(point):
        stream.project().run("payments")
    stream.send(*numbers(4))
    assert stream.project().run("payments").outcome == "done"
    assert (stream.ids(), stream.ids("silver")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_batch_that_spark_repeats_is_already_done(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    stream.project().run("payments")
    stream.forget("commits")
    assert outcomes(stream.project().run("payments")) == [
        ("batch 1", "bronze", "already_done"),
        ("batch 1", "silver", "already_done"),
    ]
    assert stream.ids() == [1, 2, 3]


def test_a_lost_checkpoint_stops_the_stream(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    stream.project().run("payments")
    shutil.rmtree(stream.checkpoint)
    heard = RecordingListener()
    failed(stream.project().run("payments", listener=heard), "checkpoint_lost")
    assert {outcome.code for outcome in heard.outcomes} == {
        "checkpoint_lost"
    }  # the terminal prints what listeners hear
    assert stream.ids() == [1, 2, 3]


def test_an_older_checkpoint_stops_the_stream(payments, tmp_path):
    stream = payments()
    stream.send(*numbers(1, 2))
    stream.project().run("payments")
    shutil.copytree(stream.checkpoint, tmp_path / "backup")
    stream.send(*numbers(3, 4, 5, 6))
    stream.project().run("payments")
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "backup", stream.checkpoint)
    failed(stream.project().run("payments"), "checkpoint_behind")
    assert stream.ids() == [1, 2, 3, 4, 5, 6]


def test_a_restored_target_gets_the_undone_batches_again(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3, 4, 5))
    project = stream.project()
    project.run("payments")
    project.restore("bronze", to=1)
    assert stream.ids() == [1, 2]
    stream.send(*numbers(6))
    assert project.run("payments").outcome == "done"
    assert (stream.ids(), stream.ids("silver")) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])


def test_a_target_that_is_added_later_gets_all_batches(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    stream.project(lambda messages: messages.select("value.*"), once.append("bronze")).run("payments")
    stream.send(*numbers(4))
    assert stream.project().run("payments").outcome == "done"
    assert (stream.ids(), stream.ids("silver")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_target_whose_batches_the_topic_no_longer_has_is_named_with_the_way_out(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3, 4))
    only_bronze = stream.project(lambda messages: messages.select("value.*"), once.append("bronze"))
    only_bronze.run("payments")
    stream.kafka.delete_before(stream.topic, {0: 3})
    report = stream.project().run("payments")
    assert [(work.target, work.code) for work in report.works] == [("bronze", None), ("silver", "messages_lost")]
    (finding,) = stream.project().doctor("payments", streams=True).findings
    assert (finding.code, finding.severity) == ("targets_behind", "error")
    assert "silver: batches 0 to 1 cannot be read again" in finding.message
    assert f"3 offsets of {stream.topic}/0" in finding.message
    assert only_bronze.run("payments").outcome == "done"
    assert stream.ids() == [1, 2, 3, 4]


def test_the_last_message_of_a_key_wins_without_latest_by(payments):
    stream = payments(max_messages=1000)
    sent = [(number % 7, (number * 31) % 200) for number in range(200)]
    stream.send(*(json.dumps({"id": key, "amount": amount}) for key, amount in sent))
    stream.project().run("payments")
    assert {row["id"]: row["amount"] for row in stream.rows("silver")} == dict(sent)


def test_what_cannot_be_decoded_is_quarantined_and_accounted_for(payments):
    stream = payments(max_messages=100)
    bad = [b"\xff\xfe", "no json", '{"id": "text"}', "[1]", '{"id": 7} and more', Message(None)]
    stream.send(*numbers(1), *bad, *numbers(2))
    project = stream.project(lambda messages: messages.selectExpr("offset", "value.id"), once.append("bronze"))
    report = project.run("payments")
    assert report.outcome == "done", report.works[0].error
    # A null value is no damage: it is a row.
    assert sorted((row["offset"], row["id"]) for row in stream.rows()) == [(0, 1), (6, None), (7, 2)]
    assert (report.works[0].rows.read, report.works[0].rows.quarantined) == (8, 5)
    kept = project.arrivals("payments").quarantine()
    assert [(row.file, row.offset, row.raw) for row in kept] == [
        (f"{stream.topic}/0", 1, b"\xff\xfe"),
        (f"{stream.topic}/0", 2, b"no json"),
        (f"{stream.topic}/0", 3, b'{"id": "text"}'),
        (f"{stream.topic}/0", 4, b"[1]"),
        (f"{stream.topic}/0", 5, b'{"id": 7} and more'),
    ]


def test_aborted_messages_are_not_read(payments):
    stream = payments()
    stream.kafka.produce_aborted(stream.topic, *numbers(9))
    stream.kafka.produce_committed(stream.topic, *numbers(1))
    stream.project().run("payments")
    assert stream.ids() == [1]


def test_more_partitions_and_large_messages(payments):
    stream = payments(value="string", schema=None)
    stream.send("1")
    project = stream.project(lambda messages: messages.selectExpr("length(value) AS id"), once.append("bronze"))
    project.run("payments")
    stream.kafka.add_partitions(stream.topic, 3)
    stream.kafka.produce(stream.topic, Message("x" * 900_000, partition=2), Message("xx", partition=1))
    assert project.run("payments").outcome == "done"
    assert stream.ids() == [1, 2, 900_000]


def test_messages_that_are_gone_stop_the_stream(payments):
    stream = payments(max_messages=100)
    stream.send(*numbers(1, 2))
    stream.project().run("payments")
    stream.send(*numbers(3, 4, 5))
    stream.kafka.delete_before(stream.topic, {0: 4})
    report = stream.project().run("payments")
    failed(report, "messages_lost")
    assert stream.ids() == [1, 2]


def test_a_renamed_pipeline_goes_on(payments):
    stream = payments()
    stream.send(*numbers(1, 2, 3))
    stream.project().run("payments")
    stream.send(*numbers(4))
    with pytest.raises(once.OncelakeError, match="formerly"):
        stream.project(name="renamed").run("renamed")
    assert stream.project(name="renamed", formerly="payments").run("renamed").outcome == "done"
    assert stream.ids() == [1, 2, 3, 4]


def test_another_topic_under_the_same_checkpoint_is_refused(payments):
    stream = payments()
    stream.send(*numbers(1))
    stream.project().run("payments")
    other = payments()
    other.send(*numbers(2))
    failed(other.project().run("payments"), "stream_changed")


def test_a_topic_that_was_created_anew_is_not_read_from_the_former_offsets(payments):
    stream = payments()
    stream.send(*numbers(1, 2))
    stream.project().run("payments")
    stream.kafka.delete_topic(stream.topic)
    stream.kafka.create_topic(stream.topic)
    stream.send(*numbers(3, 4, 5))
    failed(stream.project().run("payments"), "stream_changed")
    with pytest.raises(once.OncelakeError, match=f"the former topic {stream.topic}"):
        stream.project().restart("payments", from_beginning=True)
    assert stream.ids() == [1, 2]


def test_code_may_change_and_others_may_write(payments, spark):
    stream = payments()
    stream.send(*numbers(1, 2))
    stream.project().run("payments")
    spark.sql("SELECT 100L AS id, 0L AS amount").write.format("delta").mode("append").save(
        str(stream.root / "lake/bronze")
    )
    stream.send(*numbers(3))

    def changed(messages):
        rows = messages.select("value.*").withColumn("amount", F.lit(0).cast("long"))
        return {"bronze": rows, "silver": rows}

    assert stream.project(changed).run("payments").outcome == "done"
    assert stream.ids() == [1, 2, 3, 100]


def test_a_function_that_fails_is_reported_with_its_batch(payments):
    stream = payments()
    stream.send(*numbers(1))

    def broken(messages):
        raise RuntimeError("out of order")

    report = stream.project(broken).run("payments")
    failed(report, "function_failed")
    assert {work.slice for work in report.works} == {"batch 0"}
    assert stream.project().run("payments").outcome == "done"
    assert stream.ids() == [1]
