"""Streams whose checkpoint is gone: it is rebuilt from the targets' own commits, or everything is read again."""

import json
import shutil
from importlib import import_module

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once
from oncelake.errors import CannotRestart, CheckpointLost, RestartUnfinished, StreamChanged, TableBusy
from oncelake.storage.stream_lock import hold_stream


def numbers(*values):
    return [json.dumps({"id": value, "amount": value * 10}) for value in values]


class Payments:
    """A stream of payments, two in a batch, into a table that is added to, one that is merged, and added totals."""

    def __init__(self, root, spark, kafka, topic=None):
        self.root, self.spark, self.kafka = root, spark, kafka
        self.topic = topic or kafka.new_topic()

    def project(self, writes=None, name="payments", **options):
        source = once.kafka(
            self.topic,
            servers=self.kafka.servers,
            value="json",
            schema="id bigint, amount bigint",
            max_messages=2,
            **options,
        )
        writes = writes or [once.append("bronze"), once.merge("silver", keys="id")]
        targets = [pattern.target for pattern in writes]

        def split(messages):
            rows = messages.select("value.*")
            if len(targets) == 1:  # a stream with state
                return rows.groupBy("id").agg(F.max("amount").alias("amount"))
            total = rows.groupBy((F.col("id") % 2).alias("parity")).agg(F.sum("amount").alias("amount"))
            return {target: total if target == "total" else rows for target in targets}

        declared = once.pipeline(name=name, reads=source, writes=writes)(split)
        return once.Project.of(declared, lake=self.root / "lake", spark=self.spark)

    def send(self, *ids):
        self.kafka.produce(self.topic, *numbers(*ids))

    def ids(self, target="bronze"):
        rows = self.spark.read.format("delta").load(str(self.root / "lake" / target)).collect()
        return sorted(row["id"] for row in rows)

    def folder(self, epoch=1):
        return self.root / "lake" / "_oncelake" / "streams" / "payments" / str(epoch)

    def checkpoint(self, epoch=1):
        return self.folder(epoch) / "checkpoint"


@pytest.fixture
def payments(tmp_path, spark, kafka):
    return Payments(tmp_path, spark, kafka)


@pytest.fixture(scope="module")
def _completed(tmp_path_factory, spark, kafka):
    made = Payments(tmp_path_factory.mktemp("completed"), spark, kafka)
    made.send(1)
    run(made.project())
    return made


@pytest.fixture
def completed(tmp_path, _completed):
    """A copy of a lake in which one payment was taken in; nothing is sent to its topic."""
    shutil.copytree(_completed.root, tmp_path, dirs_exist_ok=True)
    return Payments(tmp_path, _completed.spark, _completed.kafka, _completed.topic)


def run(project, name="payments"):
    report = project.run(name)
    assert report.outcome == "done", [work.error for work in report.works]
    return report


def refusal(project):
    return next(item.refusal for item in project.plan("payments").works)


def test_a_lost_checkpoint_is_adopted_from_the_commits_exactly(payments):
    payments.send(1, 2, 3, 4, 5)
    project = payments.project()
    run(project)
    before = {name: (payments.checkpoint() / name).read_text() for name in ("offsets/1", "offsets/2", "commits/2")}
    shutil.rmtree(payments.folder())
    assert isinstance(refusal(project), CheckpointLost)
    assert project.restart("payments", adopt=True, dry_run=True).outcome == "planned"
    adopted = project.restart("payments", adopt=True)
    assert (adopted.outcome, adopted.next_batch, adopted.moved_to) == ("done", 3, None)
    after = {name: (payments.checkpoint() / name).read_text() for name in before}
    assert after["offsets/2"] == before["offsets/2"]
    assert [text.splitlines()[2:] for text in after.values()] == [text.splitlines()[2:] for text in before.values()]
    assert project.restart("payments", adopt=True).outcome == "already_done"
    payments.send(6, 7)
    assert [work.slice for work in run(project).works] == ["batch 3"] * 2
    assert (payments.ids(), payments.ids("silver")) == ([1, 2, 3, 4, 5, 6, 7],) * 2


def test_the_batch_that_only_some_targets_have_is_written_to_the_others_only(payments, stopped_at):
    payments.send(1, 2, 3, 4, 5, 6)
    project = payments.project()
    run(project)
    project.restore("silver", to=project.history("silver")[0].version - 2)
    assert payments.ids("silver") == [1, 2]
    shutil.rmtree(payments.checkpoint())
    adopted = project.restart("payments", adopt=True)
    assert (adopted.outcome, adopted.next_batch) == ("done", 2)
    payments.send(7)
    works = run(project).works
    assert [(work.slice, work.target, work.outcome) for work in works] == [
        ("batch 1", "bronze", "already_done"),
        ("batch 1", "silver", "committed"),
        ("batch 2", "bronze", "already_done"),
        ("batch 2", "silver", "committed"),
        ("batch 3", "bronze", "committed"),
        ("batch 3", "silver", "committed"),
    ]
    assert (payments.ids(), payments.ids("silver")) == ([1, 2, 3, 4, 5, 6, 7],) * 2


def test_the_first_batch_is_rebuilt_from_where_it_began(payments):
    payments.send(1, 2)
    project = payments.project()
    run(project)
    recorded = (payments.checkpoint() / "sources/0/0").read_bytes()
    project.restore("silver", to=0)
    shutil.rmtree(payments.folder())
    assert project.restart("payments", adopt=True).next_batch == 0
    assert (payments.checkpoint() / "sources/0/0").read_bytes() == recorded
    payments.send(3)
    run(project)
    assert (payments.ids(), payments.ids("silver")) == ([1, 2, 3],) * 2


@pytest.mark.long  # without Spark in tests/unit/restart_test.py
def test_an_old_checkpoint_is_moved_aside_and_a_killed_adoption_is_resumed(payments, stopped_at):
    payments.send(1, 2, 3)
    project = payments.project()
    run(project)
    shutil.copytree(payments.checkpoint(), payments.root / "old")
    payments.send(4, 5)
    run(project)
    shutil.rmtree(payments.checkpoint())
    shutil.copytree(payments.root / "old", payments.checkpoint())
    assert refusal(project).code == "checkpoint_behind"
    with stopped_at("moved"):
        project.restart("payments", adopt=True)
    assert not payments.checkpoint().exists()
    assert (payments.folder() / "checkpoint-1.old" / "metadata").is_file()
    assert project.restart("payments", adopt=True).outcome == "done"
    payments.send(6)
    run(project)
    assert payments.ids() == [1, 2, 3, 4, 5, 6]


def test_reading_from_the_beginning_gives_the_same_rows(payments):
    totals = once.aggregate("total", keys="parity", add="amount")
    writes = [once.append("bronze"), once.merge("silver", keys="id"), totals]
    payments.send(1, 2, 3)
    project = payments.project(writes)
    run(project)
    restarted = project.restart("payments", from_beginning=True)
    assert (restarted.outcome, restarted.epoch) == ("done", 2)
    assert [(each.target, each.rows) for each in restarted.clears] == [("bronze", 3), ("total", 2)]
    assert (payments.ids(), payments.ids("silver")) == ([], [1, 2, 3])
    assert project.restart("payments", from_beginning=True).outcome == "already_done"
    payments.send(4)
    assert [work.slice for work in run(project).works][::3] == ["batch 0", "batch 1"]
    assert (payments.ids(), payments.ids("silver")) == ([1, 2, 3, 4],) * 2
    lake = payments.root / "lake"
    total = payments.spark.read.format("delta").load(str(lake / "total")).collect()
    assert {row["parity"]: row["amount"] for row in total} == {0: 60, 1: 40}


@pytest.mark.long  # without Spark in tests/unit/restart_test.py
@pytest.mark.parametrize("point", ["restarted", "committing", "cleared"])
def test_a_killed_restart_is_resumed_and_nothing_is_read_before(payments, stopped_at, point):
    payments.send(1, 2, 3)
    project = payments.project([once.append("bronze"), once.append("gold")])
    run(project)
    with stopped_at(point):
        project.restart("payments", from_beginning=True)
    assert isinstance(refusal(project), RestartUnfinished)
    assert project.run("payments").outcome == "failed"
    assert project.restart("payments", from_beginning=True).epoch == 2
    run(project)
    assert (payments.ids(), payments.ids("gold")) == ([1, 2, 3],) * 2


@pytest.mark.long  # without Spark in tests/unit/restart_test.py
def test_a_restore_to_before_the_restart_is_cleared_again(payments):
    payments.send(1, 2, 3)
    project = payments.project([once.append("bronze"), once.append("gold")])
    run(project)
    before = project.history("bronze")[0].version
    project.restart("payments", from_beginning=True)
    project.restore("bronze", to=before)
    assert isinstance(refusal(project), RestartUnfinished)
    assert project.restart("payments", from_beginning=True).epoch == 2
    run(project)
    project.restore("bronze", to=before)
    assert isinstance(refusal(project), RestartUnfinished)
    project.restart("payments", from_beginning=True)
    payments.send(4)
    run(project)
    assert (payments.ids(), payments.ids("gold")) == ([1, 2, 3, 4],) * 2


def test_a_stream_that_began_late_begins_at_the_same_place_again(payments):
    payments.send(1, 2)
    project = payments.project(start="latest")
    run(project)
    payments.send(3, 4, 5)
    run(project)
    project.restart("payments", from_beginning=True)
    run(project)
    assert (payments.ids(), payments.ids("silver")) == ([3, 4, 5],) * 2


def test_lost_messages_are_counted_and_must_be_accepted(payments, kafka):
    payments.send(1, 2, 3, 4)
    project = payments.project()
    run(project)
    kafka.delete_before(payments.topic, {0: 3})
    with pytest.raises(CannotRestart, match=f"3 offsets of {payments.topic}/0"):
        project.restart("payments", from_beginning=True)
    assert payments.ids() == [1, 2, 3, 4]
    restarted = project.restart("payments", from_beginning=True, accept_loss=True)
    assert "3 offsets" in restarted.lost
    run(project)
    assert (payments.ids(), payments.ids("silver")) == ([4], [1, 2, 3, 4])


def test_a_broker_that_does_not_answer_must_be_accepted(completed, monkeypatch):
    monkeypatch.setattr(import_module("oncelake.spark.kafka_client"), "TIMEOUT", 0.2)
    completed.kafka = type(completed.kafka)("127.0.0.1:1")
    with pytest.raises(CannotRestart, match="no broker"):
        completed.project().restart("payments", from_beginning=True)


def test_rows_of_others_are_never_removed(completed):
    rows = completed.spark.createDataFrame([(100, 1)], "id bigint, amount bigint")
    rows.write.format("delta").mode("append").save(str(completed.root / "lake" / "bronze"))
    with pytest.raises(CannotRestart, match="others wrote rows there too: version 2"):
        completed.project().restart("payments", from_beginning=True)
    assert not completed.folder(2).exists()
    assert completed.ids() == [1, 100]


def test_a_stream_with_state_is_not_adopted_and_reads_again(payments):
    project = payments.project([once.aggregate("gold", keys="id")])
    payments.send(1, 2, 3)
    run(project)
    shutil.rmtree(payments.checkpoint())
    with pytest.raises(CannotRestart, match="keeps state"):
        project.restart("payments", adopt=True)
    project.restart("payments", from_beginning=True)
    run(project)
    assert payments.ids("gold") == [1, 2, 3]


def test_state_that_is_gone_is_named_with_the_way_out(payments):
    project = payments.project([once.aggregate("gold", keys="id")])
    payments.send(1, 2, 3)
    run(project)
    shutil.rmtree(payments.checkpoint() / "state")
    payments.send(4)
    (failed,) = project.run("payments").works
    assert failed.code == "state_damaged"
    assert "oncelake restart payments --from-beginning" in failed.error
    project.restart("payments", from_beginning=True)
    run(project)
    assert payments.ids("gold") == [1, 2, 3, 4]


def test_partitions_that_keep_their_last_batch_are_not_read_again(payments):
    writes = [once.append("bronze"), once.replace_partitions("latest", by="id")]
    payments.send(1, 2, 3)
    project = payments.project(writes)
    run(project)
    with pytest.raises(CannotRestart, match="keeps the rows of the last batch"):
        project.restart("payments", from_beginning=True)
    shutil.rmtree(payments.root / "lake" / "latest")
    project.restart("payments", from_beginning=True)
    run(project)
    assert (payments.ids(), payments.ids("latest")) == ([1, 2, 3],) * 2


def test_a_second_restart_at_once_is_busy(completed):
    project = completed.project()
    with hold_stream(str(completed.root / "lake"), "payments", 1, "wait"), pytest.raises(TableBusy):
        project.restart("payments", from_beginning=True)
    assert not completed.folder(2).exists()


def test_another_source_is_not_adopted(completed):
    shutil.rmtree(completed.folder())
    completed.topic = "another"
    with pytest.raises(StreamChanged):
        completed.project().restart("payments", adopt=True)


def test_without_the_commit_of_the_newest_batch_nothing_is_adopted(completed):
    shutil.rmtree(completed.folder())
    for target in ("bronze", "silver"):
        DeltaTable(str(completed.root / "lake" / target)).create_checkpoint()
        for commit in (completed.root / "lake" / target / "_delta_log").glob("*.json"):
            commit.unlink()
    project = completed.project()
    assert isinstance(refusal(project), CheckpointLost)
    with pytest.raises(CannotRestart, match="no longer have the commit of batch 0"):
        project.restart("payments", adopt=True)
    with pytest.raises(CannotRestart, match="not recorded any more"):
        project.restart("payments", from_beginning=True)
