"""The input of a stream in a sandbox: its messages in a broker of the proof, or its table with a log of its own.

A proof reads the same input hundreds of times, in batches small enough that there are several, and writes nothing outside
of the sandbox: not even the table property that switches on a change feed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.delta.tables import Lake, require_log
from oncelake.errors import KafkaNotStarted, ProverUnavailable
from oncelake.sources.changes import ChangesSource
from oncelake.sources.kafka import KafkaSource, start_instant
from oncelake.spark.kafka_broker import kafka_broker
from oncelake.storage.paths import is_local, local_path

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

    from oncelake.declare.pipelines import Pipeline

# A proof has at least so many batches, if the input has so many messages or files.
BATCHES = 3
_MESSAGES = 3000
_SECONDS = 30.0
_LARGEST = 90 * 2**20
_KAFKA = "kafka."


def copy_stream_input(pipeline: Pipeline, lake: Lake, folder: Path, opened: ExitStack) -> dict[str, Any]:
    """Copy the input of a stream, and return what a worker changes: `stream`, the fields of the source, and `inputs`.

    What must live as long as the proof is entered into `opened`.
    """
    source = pipeline.stream
    if isinstance(source, KafkaSource):
        return {"stream": _copy_topics(source, folder, opened)}
    if isinstance(source, ChangesSource):
        return {"stream": _by_files(source, lake), "inputs": {source.name: str(_copy_table(source, lake, folder))}}
    raise ProverUnavailable(problem=f"{source!r} cannot be copied into a sandbox", next="see docs/proving.md")


def with_stream_input(pipeline: Pipeline, fields: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline with other fields of its stream's source."""
    reads = {
        name: replace(source, **fields) if source is pipeline.stream else source  # type: ignore[type-var]
        for name, source in pipeline.reads.items()
    }
    return replace(pipeline, reads=reads)


def _by_files(source: ChangesSource, lake: Lake) -> dict[str, Any]:
    count = require_log(lake.table(source.name)).files.table.num_rows
    return {"max_files": min(max(count // BATCHES, 1), source.max_files or count), "max_bytes": None}


def _copy_table(source: ChangesSource, lake: Lake, folder: Path) -> Path:
    """Copy the log of a table; its other files never change, so links to them do."""
    path = lake.table(source.name).path
    if not is_local(path):
        problem = f"the stream reads {source.name}, which is at {path}; only a table on this machine can be copied"
        raise ProverUnavailable(problem=problem, next="prove it with a local lake: oncelake prove --profile NAME")
    original, copied = local_path(path), folder / "streamed"
    copied.mkdir(parents=True)
    for entry in original.iterdir():
        if entry.name == "_delta_log":
            shutil.copytree(entry, copied / entry.name)
        else:
            os.symlink(entry.resolve(), copied / entry.name)
    return copied


def _copy_topics(source: KafkaSource, folder: Path, opened: ExitStack) -> dict[str, Any]:
    """Copy the messages from the declared start up to now into a broker of the sandbox."""
    try:
        from confluent_kafka import KafkaException
    except ImportError as error:
        raise ProverUnavailable(problem=str(error), next="pip install 'oncelake[kafka]'") from error
    try:
        servers = opened.enter_context(kafka_broker(folder / "kafka"))[0]
    except KafkaNotStarted as error:
        raise ProverUnavailable(problem=error.message, next=error.next) from error
    try:
        copied = _copy_messages(source, servers)
    except KafkaException as error:
        problem = f"the messages of {source.path} cannot be copied: {error}"
        raise ProverUnavailable(problem=problem, next="check servers= and the options of the topic") from error
    most = -(-copied // BATCHES) or 1
    options = {name: value for name, value in source.options.items() if not name.startswith(_KAFKA)}
    batch = min(most, source.max_messages or most)
    return {"servers": servers, "start": "earliest", "max_messages": batch, "options": options}


def _copy_messages(source: KafkaSource, servers: str) -> int:
    """Copy messages with their partition, key, headers and timestamp, and return how many there were."""
    from confluent_kafka import Consumer, Producer

    settings = {name.removeprefix(_KAFKA): value for name, value in source.options.items() if name.startswith(_KAFKA)}
    level = "read_committed" if source.read_committed else "read_uncommitted"
    own = {"bootstrap.servers": source.servers, "group.id": "oncelake-proof", "enable.auto.commit": False}
    consumer = Consumer({**settings, **own, "isolation.level": level, "enable.partition.eof": True, "log_level": 0})
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "message.max.bytes": _LARGEST, "log_level": 0})
    limit = min(_MESSAGES, BATCHES * (source.max_messages or _MESSAGES))
    copied = 0
    try:
        for topic in source.topics:
            partitions = sorted(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
            _create_topic(servers, topic, len(partitions))
            for partition in partitions:
                share = -(-limit // (len(partitions) * len(source.topics)))
                for message in _messages(consumer, source, topic, partition, share):
                    _produce(producer, message)
                    copied += 1
        producer.flush(_SECONDS)
    finally:
        consumer.close()
    return copied


def _messages(consumer: Consumer, source: KafkaSource, topic: str, partition: int, limit: int) -> Iterator[Message]:
    """Yield the messages of a partition from the declared start; if that is its end, the newest ones."""
    from confluent_kafka import TopicPartition

    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, timeout=_SECONDS)
    first, instant = low, start_instant(source.start)
    if instant is not None:
        found = consumer.offsets_for_times([TopicPartition(topic, partition, instant)], timeout=_SECONDS)[0].offset
        first = found if found >= 0 else high
    elif source.start == "latest":
        first = max(low, high - limit)
    consumer.assign([TopicPartition(topic, partition, first)])
    count = 0
    while count < limit:
        message = consumer.poll(_SECONDS)
        # The end of the partition is reported like an error; what comes after `high` came after the proof began.
        if message is None or message.error() or message.offset() >= high:
            return
        count += 1
        yield message


def _create_topic(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    # A message keeps its time, however old: nothing of the copy expires during the proof.
    config = {"retention.ms": "-1", "max.message.bytes": str(_LARGEST)}
    admin = AdminClient({"bootstrap.servers": servers})  # its answers end with it
    for answer in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        answer.result(_SECONDS)


def _produce(producer: Producer, message: Message) -> None:
    producer.produce(
        message.topic(),
        message.value(),
        message.key(),
        message.partition(),
        timestamp=max(message.timestamp()[1], 0),
        headers=message.headers() or [],
    )
    producer.poll(0)
