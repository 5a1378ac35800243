"""The quarantine of streams: what is in it, what a retry writes after a fix, and that every message is written once."""

import json

import pytest
from pyspark.sql import functions as F

import oncelake as once
from oncelake.model.events import Warned
from support.kafka import Message

NARROW, WIDE = "id bigint", "id string"


class Stream:
    """Messages of a topic, by default into bronze and silver, with a schema that does not fit all of them."""

    def __init__(self, root, spark, kafka):
        self.lake, self.spark, self.kafka, self.topic = root / "lake", spark, kafka, kafka.new_topic()

    def project(self, schema=NARROW, writes=None, function=None):
        source = once.kafka(self.topic, servers=self.kafka.servers, value="json", schema=schema)
        writes = writes or [once.append("bronze"), once.merge("silver", keys="offset", latest_by="timestamp")]
        targets = [pattern.target for pattern in writes]

        def payments(messages):
            rows = messages.selectExpr("offset", "timestamp", "key", "CAST(value.id AS string) AS id")
            return dict.fromkeys(targets, rows)

        declared = once.pipeline(name="payments", reads=source, writes=writes)(function or payments)
        return once.Project.of(declared, lake=self.lake, spark=self.spark)

    def send(self, *ids):
        texts = [each if isinstance(each, Message) else Message(json.dumps({"id": each}), key="k") for each in ids]
        self.kafka.produce(self.topic, *texts)

    def ids(self, target="bronze"):
        rows = self.spark.read.format("delta").load(str(self.lake / target)).collect()
        assert {row["key"] for row in rows} == {"k"}
        return sorted(row["id"] for row in rows)


class Warnings(list):
    def on(self, event):
        if isinstance(event, Warned):
            self.append(event.text)


@pytest.fixture
def stream(tmp_path, spark, kafka):
    return Stream(tmp_path, spark, kafka)


def outcomes(report):
    return [(work.target, work.outcome) for work in report.works]


def offsets(project, state="quarantined"):
    return [row.offset for row in project.arrivals("payments").quarantine(state)]


def test_a_retry_that_is_killed_between_two_targets_is_finished_by_the_next(stream, stopped_at):
    stream.send(1, "a", "b", Message("no json", key="k"))
    assert stream.project().run("payments").outcome == "done"
    fixed = stream.project(WIDE)
    documents = [row.document() for row in fixed.arrivals("payments").quarantine()]
    assert [(each["topic"], each["partition"], each["offset"]) for each in documents] == [
        (stream.topic, 0, offset) for offset in (1, 2, 3)
    ]
    with stopped_at("settled"):
        fixed.retry_quarantine("payments", [1, 2])
    assert (stream.ids(), stream.ids("silver")) == (["1", "a", "b"], ["1"])
    assert offsets(fixed) == [1, 2, 3]
    # The next one asks for others: what was begun is finished with the same messages, and what is written is left alone.
    warnings = Warnings()
    report = fixed.retry_quarantine("payments", [2, 3], warnings)
    assert outcomes(report) == [("bronze", "already_done"), ("silver", "committed")]
    assert (stream.ids(), stream.ids("silver")) == (["1", "a", "b"], ["1", "a", "b"])
    assert offsets(fixed) == [3]
    assert "1 messages stay in quarantine: they still cannot be decoded" in warnings[0]
    assert fixed.retry_quarantine("payments").works == ()


def test_a_retry_counts_by_the_logs_of_the_targets(stream, stopped_at):
    only = [once.append("bronze")]
    stream.send(1, "a", "b", "c")
    stream.project(writes=only).run("payments")
    fixed = stream.project(WIDE, only)
    fixed.arrivals("payments").drop(fixed.arrivals("payments").quarantine()[2:])
    with stopped_at("frozen"):
        fixed.retry_quarantine("payments")
    assert stream.ids() == ["1"]
    # Nothing was written of it: others may be chosen. This one is killed after its commit.
    with stopped_at("recorded"):
        fixed.retry_quarantine("payments", [1])
    assert (stream.ids(), offsets(fixed), offsets(fixed, "retried")) == (["1", "a"], [2], [1])
    facts = fixed.history("bronze", 1)[0]
    assert facts.rows.read == 1
    assert outcomes(fixed.retry_quarantine("payments")) == [("bronze", "committed")]
    assert (stream.ids(), offsets(fixed), offsets(fixed, "dropped")) == (["1", "a", "b"], [], [3])
    # A restore takes both out again.
    fixed.restore("bronze", to=1)
    assert offsets(fixed) == [1, 2]
    fixed.retry_quarantine("payments")
    assert (stream.ids(), offsets(fixed, "retried")) == (["1", "a", "b"], [1, 2])


def test_a_stream_with_retries_is_read_from_the_beginning(stream):
    only = [once.append("bronze")]
    stream.send(1, "a", Message("no json", key="k"))
    stream.project(writes=only).run("payments")
    fixed = stream.project(WIDE, only)
    fixed.retry_quarantine("payments", [1])
    assert (stream.ids(), offsets(fixed)) == (["1", "a"], [2])
    narrow = stream.project(writes=only)
    narrow.restart("payments", from_beginning=True)
    narrow.run("payments")
    assert (stream.ids(), offsets(narrow)) == (["1"], [1, 2])
    # The same message, retried in the new epoch: it is not the retry of the former one.
    fixed.retry_quarantine("payments", [1])
    assert (stream.ids(), offsets(fixed)) == (["1", "a"], [2])


def test_messages_that_are_gone_stay_in_quarantine(stream):
    only = [once.append("bronze")]
    stream.send("a", "b", 1)
    stream.project(writes=only).run("payments")
    stream.kafka.delete_before(stream.topic, {0: 1})
    warnings, fixed = Warnings(), stream.project(WIDE, only)
    fixed.retry_quarantine("payments", listener=warnings)
    assert (stream.ids(), offsets(fixed)) == (["1", "b"], [0])
    assert warnings == [f"1 messages stay in quarantine: they are gone from Kafka ({stream.topic}/0 offset 0)"]


def test_a_target_that_is_added_after_a_fix_gets_the_rows_that_the_others_have(stream):
    stream.send(1, "a")
    stream.project(writes=[once.append("bronze")]).run("payments")
    fixed = stream.project(WIDE)
    assert fixed.run("payments").outcome == "done"
    assert (stream.ids(), stream.ids("silver"), offsets(fixed)) == (["1"], ["1"], [1])
    fixed.retry_quarantine("payments")
    assert (stream.ids(), stream.ids("silver"), offsets(fixed)) == (["1", "a"], ["1", "a"], [])


def test_a_stream_with_state_accounts_for_what_it_cannot_decode(stream):
    def counted(messages):
        return messages.groupBy("value.id").agg(F.count("*").alias("payments"))

    writes = once.aggregate("gold", keys="id")
    project = stream.project(writes=[writes], function=counted)
    stream.send(1, "a", 1)
    report = project.run("payments")
    assert report.outcome == "done", report.works[0].error
    assert (report.works[0].rows.read, report.works[0].rows.quarantined) == (3, 1)
    stream.send(2, "b")
    report = project.run("payments")
    assert (report.works[0].rows.read, report.works[0].rows.quarantined) == (2, 1)
    assert offsets(project) == [1, 4]
    with pytest.raises(once.OncelakeError, match="keeps state"):
        project.retry_quarantine("payments")
