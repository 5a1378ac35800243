"""Restarts of streams, without Spark and without a broker: tables and checkpoints written by hand, on disk and in S3."""

import json
from importlib import import_module

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

import oncelake as once
from oncelake.errors import CannotRestart, CheckpointBehind, CheckpointLost, RestartUnfinished
from oncelake.model.markers import stream_app_id
from oncelake.model.slices import Batch
from oncelake.model.streams import BatchOffsets, StreamId
from oncelake.planning.streams import DECLARED, declared_content, read_stream_state
from oncelake.storage.objects import storage, write_file
from oncelake.storage.options import delta_rs_options
from oncelake.storage.stream_checkpoint import load_checkpoint, write_checkpoint
from support.s3 import REGION, new_bucket, s3_server

METADATA = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}}
SOURCE = {"kafka": ["payments"]}


def end(number):
    return json.dumps({"payments": {"0": 2 * number + 2}})


class Stream:
    """A stream of payments into a table that is added to and one that is merged; batches are written by delta-rs."""

    def __init__(self, lake, name="payments", **options):
        self.lake, self.name = lake, name
        self.writes = [once.append("bronze"), once.merge("silver", keys="id")]
        self.declare(name, **options)

    def declare(self, name, writes=None, **options):
        source = once.kafka("payments", servers="127.0.0.1:1")
        declared = once.pipeline(name=name, reads=source, writes=writes or self.writes, **options)
        self.pipeline = declared(lambda messages: messages)
        self.project = once.Project.of(self.pipeline, lake=self.lake)

    def commit(self, target, number, epoch=1):
        stream = StreamId.of(self.name, epoch)
        pins = {
            "stream": stream.text,
            "batch": number,
            "offsets": {"sources": [end(number)], "metadata": METADATA},
            "from": [end(number - 1)],
            "source": SOURCE,
        }
        facts = {"pipeline": self.name, "target": target, "slice": Batch(stream.text, number).text, "generation": 1}
        marker = Transaction(stream_app_id(self.name, target, stream.text), number)
        metadata = {"userMetadata": json.dumps({"oncelake": {**facts, "pins": {"messages": pins}}})}
        properties = CommitProperties(custom_metadata=metadata, app_transactions=[marker])
        options, path = delta_rs_options(f"{self.lake}/{target}"), f"{self.lake}/{target}"
        rows = pa.table({"id": [number]})
        write_deltalake(path, rows, mode="append", storage_options=options, commit_properties=properties)

    def batches(self, bronze, silver, epoch=1):
        for number in range(bronze + 1):
            self.commit("bronze", number, epoch)
        for number in range(silver + 1):
            self.commit("silver", number, epoch)

    @property
    def state(self):
        logs = {target: self.project.lake.table(target).log() for target in self.pipeline.writes_tables}
        return read_stream_state(self.pipeline, logs, self.project.lake)

    def restart(self, **options):
        return self.project.restart(self.pipeline.name, **options)

    def again(self):
        return self.restart(from_beginning=True, accept_loss=True)

    def rows(self, target="bronze"):
        return self.project.lake.table(target).log().rows()


@pytest.fixture(params=["local", "s3"])
def stream(request, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("oncelake.spark.kafka_client"), "TIMEOUT", 0.05)
    if request.param == "local":
        yield Stream(f"{tmp_path}/lake")
        return
    with s3_server() as server:
        settings = {"AWS_ENDPOINT_URL": server, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
        for name, value in {**settings, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "key"}.items():
            monkeypatch.setenv(name, value)
        yield Stream(f"s3://{new_bucket(server)}/lake")


@pytest.fixture
def local(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("oncelake.spark.kafka_client"), "TIMEOUT", 0.05)
    return Stream(f"{tmp_path}/lake")


def test_an_older_checkpoint_is_moved_aside_and_rebuilt_from_the_commits(stream, stopped_at):
    stream.batches(2, 2)
    old = {0: BatchOffsets((end(0),), METADATA)}
    write_checkpoint(stream.state.checkpoint_folder, stream.state.id.query, old, [0])
    assert isinstance(stream.state.problem, CheckpointBehind)
    with stopped_at("moved"):
        stream.restart(adopt=True)
    assert isinstance(stream.state.problem, CheckpointLost)
    assert stream.restart(adopt=True).outcome == "done"
    found = load_checkpoint(stream.state.checkpoint_folder)
    assert (found.offsets, found.commits, found.query) == ((1, 2), (2,), stream.state.id.query)
    assert (found.read_offsets(2), found.read_offsets(1).sources) == (
        BatchOffsets((end(2),), METADATA),
        (end(1),),
    )
    assert "checkpoint-1.old" in storage(stream.state.folder).names()
    assert load_checkpoint(f"{stream.state.folder}/checkpoint-1.old").offsets == (0,)
    assert stream.restart(adopt=True).outcome == "already_done"


@pytest.mark.parametrize(
    ("silver", "commits", "missing"), [(3, (3,), []), (2, (2,), []), (1, (2,), [2]), (-1, (2,), [0, 1, 2])]
)
def test_the_newest_batch_is_run_again_unless_every_target_has_it(local, silver, commits, missing):
    local.batches(3, silver)
    adopted = local.restart(adopt=True)
    assert adopted.next_batch == commits[0] + 1
    assert load_checkpoint(local.state.checkpoint_folder).commits == commits
    assert (local.state.missing, local.state.unfinished) == (missing, silver < 3)
    # Where the first batch began is known from its commit.
    assert load_checkpoint(local.state.checkpoint_folder).first == end(-1)


def test_an_epoch_wins_before_anything_is_removed_and_is_resumed(stream, stopped_at):
    stream.batches(2, 2)
    with stopped_at("restarted"):
        stream.again()
    assert (stream.state.id.epoch, stream.rows()) == (2, 3)
    assert isinstance(stream.state.problem, RestartUnfinished)
    assert stream.state.checkpoint.first == end(-1)
    with stopped_at("cleared"):
        stream.again()
    assert (stream.state.problem, stream.rows(), stream.rows("silver")) == (None, 0, 3)
    assert stream.again().outcome == "already_done"
    assert stream.state.checkpoint.query == StreamId.of("payments", 2).query


def test_a_restore_to_before_it_is_cleared_again_and_one_to_after_it_is_not(local):
    local.batches(2, 2)
    assert [each.version for each in local.again().clears] == [3]
    local.project.restore("bronze", to=2)
    assert isinstance(local.state.problem, RestartUnfinished)
    assert (local.again().epoch, local.rows()) == (2, 0)
    local.batches(1, 1, epoch=2)
    assert (local.state.batches, local.rows()) == ({"bronze": 1, "silver": 1}, 2)
    local.project.restore("bronze", to=6)  # after its first batch
    assert (local.state.batches["bronze"], local.state.uncleared, local.rows()) == (0, (), 1)
    local.project.restore("bronze", to=1)  # in the epoch before
    assert local.state.uncleared == ("bronze",)
    local.again()
    assert (local.state.uncleared, local.rows(), local.state.batches) == ((), 0, {"bronze": -1, "silver": 1})


def test_a_lost_folder_of_a_new_epoch_does_not_begin_elsewhere(local):
    from oncelake.storage.objects import remove_folder

    local.batches(2, 2)
    local.again()
    remove_folder(local.state.folder)
    assert isinstance(local.state.problem, RestartUnfinished)
    local.again()
    assert (local.state.problem, local.state.id.epoch) == (None, 2)


def test_an_epoch_that_was_read_is_followed_by_the_next(local):
    local.batches(1, 1)
    local.again()
    local.batches(0, 0, epoch=2)
    write_checkpoint(
        local.state.checkpoint_folder, local.state.id.query, {0: BatchOffsets((end(0),), METADATA)}, [0], end(-1)
    )
    assert local.state.problem is None
    assert local.again().epoch == 3
    assert (local.rows(), local.rows("silver"), local.state.checkpoint.first) == (0, 3, end(-1))


def test_a_renamed_pipeline_is_restarted_under_its_new_name(local):
    local.batches(2, 2)
    local.declare("renamed", formerly="payments")
    assert local.restart(adopt=True).next_batch == 3
    assert local.state.id == StreamId.of("payments", 1)
    assert local.again().epoch == 2
    assert (local.state.id, local.state.problem, local.rows()) == (StreamId.of("renamed", 2), None, 0)


def test_the_rows_of_another_pipeline_and_of_once_write_are_not_removed(local):
    local.batches(1, 1)
    other = Stream(local.lake, "others")
    other.commit("bronze", 0)
    with pytest.raises(CannotRestart, match="the stream others"):
        local.again()
    assert local.state.id.epoch == 1


def test_targets_that_disagree_are_not_adopted(local):
    local.batches(1, 1)
    local.commit("bronze", 2)
    changed = end
    globals()["end"] = lambda number: changed(number + 5)
    try:
        local.commit("silver", 2)
    finally:
        globals()["end"] = changed
    with pytest.raises(CannotRestart, match="different offsets"):
        local.restart(adopt=True)


def test_a_stream_that_never_ran_has_nothing_to_adopt_or_to_read_again(local):
    with pytest.raises(CannotRestart, match="none of its targets has a batch"):
        local.restart(adopt=True)
    assert local.again().outcome == "already_done"
    with pytest.raises(ValueError, match="either"):
        local.restart()


def test_changed_code_of_a_stream_with_state_is_said(local):
    def declare(function):
        source = once.kafka("payments", servers="127.0.0.1:1")
        local.pipeline = once.pipeline(name="payments", reads=source, writes=once.aggregate("gold", keys="id"))(
            function
        )
        local.project = once.Project.of(local.pipeline, lake=local.lake)

    declare(lambda messages: messages.groupBy("id").count())
    local.commit("gold", 0)
    state = local.state
    write_checkpoint(state.checkpoint_folder, state.id.query, {0: BatchOffsets((end(0),), METADATA)}, [0])
    write_file(state.folder, DECLARED, declared_content(local.pipeline))
    assert (local.state.problem, local.state.notes) == (None, ())
    declare(lambda messages: messages.groupBy("id").max("amount"))
    (note,) = local.state.notes
    assert "oncelake restart payments --from-beginning" in note
