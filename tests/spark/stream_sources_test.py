"""How messages are decoded, and where a stream of them starts."""

import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import fastavro
import pytest

import oncelake as once
from oncelake.spark.avro_column import CONFLUENT_HEADER, decode_avro, decode_value
from support.kafka import Message

FIELDS = {
    "int": ("int", -5),
    "long": ("long", 1 << 40),
    "float": ("float", 0.5),
    "double": ("double", 1e300),
    "boolean": ("boolean", True),
    "string": ("string", "née"),
    "bytes": ("bytes", b"\x00\xff"),
    "missing": (["null", "string"], None),
    "present": (["null", "long"], 7),
    "enum": ({"type": "enum", "name": "colour", "symbols": ["red", "blue"]}, "blue"),
    "fixed": ({"type": "fixed", "name": "two", "size": 2}, b"ab"),
    "date": ({"type": "int", "logicalType": "date"}, date(2024, 3, 15)),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2024, 3, 15, 1, 2, 3, 4000, UTC)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2024, 3, 15, 1, 2, 3, 4, UTC)),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2024, 3, 15, 1, 2, 3, 4)),
    "time": ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000)),
    "uuid": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, Decimal("-1.25")),
    "none": (
        {"type": "array", "items": {"type": "record", "name": "point", "fields": [{"name": "x", "type": "long"}]}},
        [],
    ),
    "named": ("point", {"x": 3}),
    "many": ({"type": "array", "items": "point"}, [{"x": 1}, {"x": 2}]),
    "map": ({"type": "map", "values": ["null", "point"]}, {"a": {"x": 1}, "b": None}),
}
RECORD = {
    "type": "record",
    "name": "all",
    "fields": [{"name": name, "type": kind} for name, (kind, _) in FIELDS.items()],
}
VALUES = {name: value for name, (_, value) in FIELDS.items()}


def written(schema, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def test_avro_values_of_every_type_become_columns(spark):
    content = written(RECORD, VALUES)
    rows = [(0, content), (1, content[:-1]), (2, None), (3, content + b"x")]
    frame = spark.createDataFrame(rows, "id int, value binary")
    value, reason = decode_avro(frame["value"], json.dumps(RECORD), "value")
    good, cut, null, more = frame.select("id", value.alias("value"), reason.alias("reason")).orderBy("id").collect()
    found = good["value"].asDict(recursive=True)
    moments = {name: found[name].astimezone(UTC) for name in ("millis", "micros")}
    assert {**found, **moments} == {**VALUES, "uuid": str(VALUES["uuid"]), "time": 3_723_004}
    assert good["reason"] is None
    assert (cut["value"], null["value"], null["reason"], more["value"]) == (None, None, None, None)
    assert cut["reason"].startswith("value: the bytes are not Avro of the schema")
    assert more["reason"] == "value: the bytes are not Avro of the schema: bytes are left"


def test_damaged_avro_is_never_a_value():
    schema, content = json.dumps(RECORD), written(RECORD, VALUES)
    assert decode_value(content, schema)[1] is None
    assert all(decode_value(content[:length], schema)[1] for length in range(len(content)))
    # Spark would make another number of the first, and null of the second.
    assert decode_value(written("long", 1 << 40), '"int"')[1]
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    assert decode_value(written({**decimal, "precision": 5}, Decimal(12345)), json.dumps(decimal))[1]


def test_a_header_with_the_id_of_a_schema_comes_first():
    content = b"\x00\x00\x00\x00\x07" + written("long", 9)
    assert decode_value(content, '"long"', CONFLUENT_HEADER) == (9, None)
    assert decode_value(b"\x01" + content[1:], '"long"', CONFLUENT_HEADER)[1]
    assert decode_value(content[:3], '"long"', CONFLUENT_HEADER)[1]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (None, "needs the Avro schema"),
        ("{", "JSONDecodeError"),
        ('["int", "string"]', "a union of several types"),
        ('{"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}', "holds itself"),
    ],
)
def test_an_avro_schema_is_checked_where_it_is_declared(schema, problem):
    for kind in ("avro", "confluent_avro"):
        with pytest.raises(once.OncelakeError, match=problem):
            once.kafka("topic", servers="host:1", value=kind, schema=schema)


def read(spark, source, kafka):
    """Return what the function would get of all messages of the topics, and the reasons of the others."""
    ends = {topic: {str(part): end for part, end in kafka.end_offsets(topic).items()} for topic in source.topics}
    decoded = source.decode(source.read_between(spark, None, json.dumps(ends)))
    return sorted(decoded.collect(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_keys_headers_and_several_topics(spark, kafka):
    topics = sorted([kafka.new_topic(partitions=2), kafka.new_topic()])
    content = b"\x00\x00\x00\x00\x07" + written("long", 9)
    kafka.produce(topics[0], Message(content, '{"k": 1}', (("h", b"1"),), 0, 1_700_000_000_000))
    kafka.produce(
        topics[1], Message(b"\x01" + content[1:], '{"k": 2}', partition=0), Message(content, '{"k": "x"}', partition=0)
    )
    codings = {"value": "confluent_avro", "schema": '"long"', "key": "json", "key_schema": "k int"}
    first, second, third = read(spark, once.kafka(topics, servers=kafka.servers, headers=True, **codings), kafka)
    assert (first["topic"], first["key"]["k"], first["value"]) == (topics[0], 1, 9)
    assert [tuple(header) for header in first["headers"]] == [("h", b"1")]
    assert first["timestamp"].timestamp() == 1_700_000_000
    assert second["__once_reason"] == "value: the bytes have no header with the id of a schema"
    assert (third["__once_reason"], third["__once_value"]) == ("key: the JSON text does not fit the schema", content)


def test_bytes_are_passed_as_they_are(spark, kafka):
    topic = kafka.new_topic()
    kafka.produce(topic, Message(b"\xff", b"\xfe"), Message(None))
    source = once.kafka(topic, servers=kafka.servers, value="bytes", key="bytes")
    assert [(row["key"], row["value"]) for row in read(spark, source, kafka)] == [(b"\xfe", b"\xff"), (None, None)]
    assert not source.may_fail


@pytest.mark.parametrize(("start", "expected"), [("latest", ["late"]), ("2023-11-14T22:13:20Z", ["new", "late"])])
def test_a_stream_starts_where_it_is_declared(tmp_path, spark, kafka, start, expected):
    topic = kafka.new_topic()
    kafka.produce(topic, Message("old", timestamp=1_600_000_000_000), Message("new", timestamp=1_700_000_000_000))
    source = once.kafka(topic, servers=kafka.servers, start=start)
    declared = once.pipeline(name="texts", reads=source, writes=once.append("texts"))(
        lambda texts: texts.select("value")
    )
    project = once.Project.of(declared, lake=tmp_path / "lake", spark=spark)
    assert project.run().outcome == "done"
    kafka.produce(topic, Message("late", timestamp=1_700_000_001_000))
    assert project.run().outcome == "done"
    rows = spark.read.format("delta").load(str(tmp_path / "lake/texts")).collect()
    assert sorted(row["value"] for row in rows) == sorted(expected)
