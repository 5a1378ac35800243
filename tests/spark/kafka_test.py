"""The session that oncelake opens reads Kafka, and what `support.kafka` produces is what Spark reads."""

import json

from support.kafka import Message


def read(spark, kafka, topic, **options):
    options = {"subscribe": topic, "startingOffsets": "earliest", "endingOffsets": "latest", **options}
    options = {"kafka.bootstrap.servers": kafka.servers, "kafka.isolation.level": "read_committed", **options}
    return spark.read.format("kafka").option("includeHeaders", "true").options(**options).load()


def test_a_session_reads_the_committed_messages_of_a_topic(spark, kafka):
    topic = kafka.new_topic(partitions=2, retention_ms=-1)
    first = Message("one", key="k", headers=(("h", b"1"),), partition=0, timestamp=1_700_000_000_000)
    assert kafka.produce(topic, first, Message(None, key="k", partition=1)) == [(0, 0), (1, 0)]
    kafka.produce_aborted(topic, Message("never", partition=0))
    kafka.produce_committed(topic, Message("two", partition=0))
    rows = sorted(read(spark, kafka, topic).collect(), key=lambda row: (row["partition"], row["offset"]))
    # An aborted message and the marks of two transactions have offsets.
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 0, b"one"),
        (0, 3, b"two"),
        (1, 0, None),
    ]
    assert (rows[0]["key"], rows[0]["headers"][0].asDict()) == (b"k", {"key": "h", "value": b"1"})
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000
    assert kafka.end_offsets(topic) == {0: 5, 1: 1}
    seen = [(message.partition(), message.value()) for message in kafka.messages(topic)]
    assert seen == [(row["partition"], row["value"]) for row in rows]
    ending = json.dumps({topic: {"0": 1, "1": 0}})
    assert [row["value"] for row in read(spark, kafka, topic, endingOffsets=ending).collect()] == [b"one"]
