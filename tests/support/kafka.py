"""A Kafka broker of the test process, topics in it, and messages: plain, in transactions that are committed, or aborted."""

import uuid
from contextlib import contextmanager
from dataclasses import dataclass

from oncelake.spark.kafka_broker import KafkaBroker

# Without a word of librdkafka about brokers that tests kill; it tries again soon after they are back.
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}
SECONDS = 60


@dataclass(frozen=True)
class Message:
    """A message to produce. Without a partition the key decides; the timestamp is in milliseconds."""

    value: bytes | str | None
    key: bytes | str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True)
class Kafka:
    """What tests do with a broker, by its address."""

    servers: str

    def new_topic(self, partitions=1, name="topic", **config):
        """Create a topic with a name of its own, and return it. Its config has `_` for `.`: `retention_ms=1000`."""
        topic = f"{name}-{uuid.uuid4().hex[:12]}"
        self.create_topic(topic, partitions, **config)
        return topic

    def create_topic(self, topic, partitions=1, **config):
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): str(value) for key, value in config.items()}
        self._admin(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def delete_topic(self, topic):
        self._admin(lambda admin: admin.delete_topics([topic]))

    def add_partitions(self, topic, total):
        from confluent_kafka.admin import NewPartitions

        self._admin(lambda admin: admin.create_partitions([NewPartitions(topic, total)]))

    def delete_before(self, topic, offsets):
        """Delete the messages of a topic before these offsets by partition, as its retention would."""
        from confluent_kafka import TopicPartition

        before = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self._admin(lambda admin: admin.delete_records(before))

    def produce(self, topic, *messages):
        """Produce messages (or values) and wait until the broker has them; return the partition and offset of each."""
        return self._send(self._producer(), topic, messages)

    @contextmanager
    def transaction(self, transactional_id=None):
        """Yield `produce(topic, *messages)` of one transaction: committed at the end, aborted if the block raises."""
        producer = self._producer({"transactional.id": transactional_id or uuid.uuid4().hex})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        try:
            yield lambda topic, *messages: self._send(producer, topic, messages)
        except BaseException:
            producer.abort_transaction(SECONDS)
            raise
        producer.commit_transaction(SECONDS)

    def produce_committed(self, topic, *messages):
        """Produce messages in a transaction that is committed."""
        with self.transaction() as produce:
            return produce(topic, *messages)

    def produce_aborted(self, topic, *messages):
        """Produce messages in a transaction that is aborted: only `read_uncommitted` sees them, but they have offsets."""
        try:
            with self.transaction() as produce:
                produce(topic, *messages)
                raise _AbortError
        except _AbortError:
            pass

    def open_transaction(self, topic, *messages, transactional_id=None):
        """Produce messages in a transaction that stays open, and return its producer: keep it, then commit or abort."""
        producer = self._producer({"transactional.id": transactional_id or uuid.uuid4().hex})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        self._send(producer, topic, messages)
        return producer

    def end_offsets(self, topic):
        """Return the offset after the last message of each partition, whoever may read it."""
        return {partition: end for partition, (_, end) in self.watermarks(topic).items()}

    def watermarks(self, topic):
        """Return the first offset and the one after the last message of each partition."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer("read_uncommitted")
        try:
            partitions = consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions
            read = {part: TopicPartition(topic, part) for part in sorted(partitions)}
            return {part: consumer.get_watermark_offsets(at, timeout=SECONDS) for part, at in read.items()}
        finally:
            consumer.close()

    def messages(self, topic, isolation="read_committed"):
        """Return all messages of a topic, by partition and offset."""
        from confluent_kafka import TopicPartition

        ends = self.end_offsets(topic)
        consumer, found, left = self._consumer(isolation), [], set(ends)
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            while left:
                message = consumer.poll(SECONDS)
                assert message is not None, f"{topic} did not end in {SECONDS} s"
                if message.error():
                    left.discard(message.partition())  # the end of a partition
                else:
                    found.append(message)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _send(self, producer, topic, messages):
        # The broker answers for each partition when it likes: by the order of the messages, not of the answers.
        placed, errors = [None] * len(messages), []

        def report(number):
            def delivered(error, message):
                if error:
                    errors.append(error)
                placed[number] = (message.partition(), message.offset())

            return delivered

        for number, each in enumerate(messages):
            message = each if isinstance(each, Message) else Message(each)
            options = {name: getattr(message, name) for name in ("partition", "timestamp")}
            options = {name: value for name, value in options.items() if value is not None}
            options["headers"] = list(message.headers)
            producer.produce(topic, message.value, message.key, on_delivery=report(number), **options)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0, f"the broker did not take all messages in {SECONDS} s"
        assert not errors, errors
        return placed

    def _producer(self, more=()):
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.servers, "linger.ms": 0, **QUIET, **dict(more)})

    def _consumer(self, isolation):
        from confluent_kafka import Consumer

        own = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "enable.partition.eof": True}
        return Consumer({"bootstrap.servers": self.servers, "isolation.level": isolation, **own, **QUIET})

    def _admin(self, request):
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        for answer in request(admin).values():
            answer.result(SECONDS)


class _AbortError(Exception):
    pass


@contextmanager
def started_kafka(folder):
    """Start a broker with its data in a folder, and stop it."""
    broker = KafkaBroker(folder)
    try:
        broker.start()
        yield Kafka(broker.address)
    finally:
        broker.stop()
