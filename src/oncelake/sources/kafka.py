"""`once.kafka`: messages of Kafka topics, as a stream. What cannot be decoded goes to quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oncelake.errors import BadDeclaration
from oncelake.errors.base import did_you_mean
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Grid
from oncelake.model.source_location import declared_at
from oncelake.model.streams import REASON, Beginning, Lag, StreamDefaults
from oncelake.spark.avro_column import CONFLUENT_HEADER, decode_avro, require_fastavro, schema_problem
from oncelake.spark.json_column import decode_json, text_problem
from oncelake.spark.kafka_client import topic_ids, topic_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KINDS = ("string", "json", "avro", "confluent_avro", "bytes")
_AVRO = ("avro", "confluent_avro")
_STARTS = ("earliest", "latest")
_RAW_VALUE = "__once_value"
# What tells one message from all others; and how Spark spells the first offset there is.
_PLACE, _EARLIEST = ("topic", "partition", "offset"), -2
# Options that a batch read does not have.
_OF_STREAMS = ("subscribe", "startingTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger")


def kafka(  # noqa: PLR0913  every option of the source
    topic: str | Iterable[str],
    *,
    servers: str,
    value: str = "string",
    key: str = "string",
    schema: str | None = None,
    key_schema: str | None = None,
    start: str = "earliest",
    max_messages: int | None = None,
    headers: bool = False,
    read_committed: bool = True,
    options: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """Read the messages of a topic, or of several, as a stream: each once.

    The frame has the columns `key`, `value`, `topic`, `partition`, `offset` and `timestamp`; with `headers=True` also
    `headers`. `value` and `key` are "string", "bytes", "json", "avro" or "confluent_avro" (with the id of a schema before
    each value). With a `schema` ("id bigint, amount double") a JSON
    value is a struct, without one the checked text; Avro needs its schema as JSON text. A message that cannot be decoded
    goes to quarantine. A null value (a tombstone) is a row with a null value.

    A new stream starts at "earliest", "latest" or a time like "2024-03-15T00:00:00Z". A batch takes at most
    `max_messages`. `options` are passed to Spark's reader, such as "kafka.security.protocol".
    """
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    source = KafkaSource(
        topics,
        servers,
        Coding(value, schema),
        Coding(key, key_schema),
        start,
        max_messages,
        headers,
        read_committed,
        dict(options or {}),
    )
    if problem := source.declaration_problem():
        raise BadDeclaration(where=declared_at(), problem=problem)
    return source


@dataclass(frozen=True)
class Coding:
    """How keys or values are decoded."""

    kind: str
    schema: str | None = None

    def problem(self, name: str) -> str | None:
        """Return what is wrong with it, or None."""
        if self.kind not in KINDS:
            return f"{name}={self.kind!r} is none of {', '.join(KINDS)}{did_you_mean(str(self.kind), KINDS)}"
        option = "schema" if name == "value" else "key_schema"
        if self.kind in _AVRO:
            if self.schema is None:
                return f'{name}="{self.kind}" needs the Avro schema as JSON text in {option}='
            problem = schema_problem(self.schema)
            return f"{option}= is no Avro schema of a column: {problem}" if problem else None
        if self.kind in ("string", "bytes") and self.schema is not None:
            return f"{name}={self.kind!r} takes no schema"
        return None


@dataclass(frozen=True)
class KafkaSource(StreamDefaults):
    """Declared topics."""

    topics: tuple[str, ...]
    servers: str
    value: Coding
    key: Coding
    start: str = "earliest"
    max_messages: int | None = None
    headers: bool = False
    read_committed: bool = True
    # Options may hold passwords: they are in no message and in no fact.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    tables = ()

    def declaration_problem(self) -> str | None:
        """Return what is wrong with the declaration, or None."""
        if not self.topics or not all(isinstance(topic, str) and topic.strip() for topic in self.topics):
            return f"kafka topics are names, not {list(self.topics)!r}"
        if not isinstance(self.servers, str) or ":" not in self.servers:
            return f'servers={self.servers!r} is not like "host:9092"'
        if self.max_messages is not None and (isinstance(self.max_messages, bool) or int(self.max_messages) < 1):
            return f"max_messages={self.max_messages!r} is not a number of messages, at least 1"
        if self.start not in _STARTS and start_instant(self.start) is None:
            return f'start={self.start!r} is neither "earliest" nor "latest" nor a time like "2024-03-15T00:00:00Z"'
        return self.value.problem("value") or self.key.problem("key")

    @property
    def path(self) -> str:
        """The topics, for drawings and messages."""
        return f"kafka:{','.join(self.topics)}"

    @property
    def stream_identity(self) -> Mapping[str, Any]:
        """The topics: offsets are theirs. Servers may move."""
        return {"kafka": sorted(self.topics)}

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse intervals: messages drive their pipeline."""
        return f"{self.path} is a stream, which does not go with every=" if grid is not None else None

    def open_stream(self, session: SparkSession, reading: Reading) -> DataFrame:  # noqa: ARG002  the contract
        """Return the stream of messages, keys and values as bytes. Messages that are gone fail the batch."""
        reader = session.readStream.format("kafka").options(**self._reader_options())
        return reader.load()

    @property
    def may_fail(self) -> bool:
        """Whether a message can be such that it cannot be decoded: bytes are what they are."""
        return (self.value.kind, self.key.kind) != ("bytes", "bytes")

    def read_between(self, session: SparkSession, start: str | None, end: str) -> DataFrame:
        """Return the messages between two offsets of a checkpoint; of a partition that is not in the first, all."""
        first, last = json.loads(start) if start else {}, json.loads(end)
        places = {(topic, number): at for topic, found in last.items() for number, at in found.items()}
        begins = {place: first.get(place[0], {}).get(place[1], _EARLIEST) for place in places}
        return self._read_batch(session, {place: (begins[place], at) for place, at in places.items()})

    def read_at(self, session: SparkSession, places: Mapping[str, Sequence[int]]) -> DataFrame:
        """Return the messages at some places, as far as they are still there."""
        ranges = {_split(file): (min(offsets), max(offsets) + 1) for file, offsets in places.items()}
        frame = self._read_batch(session, ranges, failOnDataLoss="false")
        return frame.join(_places_frame(session, places), list(_PLACE), "left_semi")

    def leave_out(self, frame: DataFrame, places: Mapping[str, Sequence[int]]) -> DataFrame:
        """Return a frame of messages without those at some places."""
        return frame.join(_places_frame(frame.sparkSession, places), list(_PLACE), "left_anti")

    def _read_batch(
        self, session: SparkSession, ranges: Mapping[tuple[str, str], tuple[int, int]], **more: str
    ) -> DataFrame:
        """Return the messages of ranges of offsets, the last one excluded, by topic and partition."""
        options = {name: value for name, value in self._reader_options().items() if name not in _OF_STREAMS}
        named: dict[str, dict[str, tuple[int, int]]] = {}
        for (topic, number), found in ranges.items():
            named.setdefault(topic, {})[number] = found
        assigned = {topic: [int(number) for number in found] for topic, found in named.items()}
        first, last = (
            {topic: {number: pair[index] for number, pair in found.items()} for topic, found in named.items()}
            for index in (0, 1)
        )
        chosen = {"assign": assigned, "startingOffsets": first, "endingOffsets": last}
        options |= {name: json.dumps(value) for name, value in chosen.items()}
        return session.read.format("kafka").options(**{**options, **more}).load()

    def _reader_options(self) -> dict[str, str]:
        instant = start_instant(self.start)
        start = {"startingOffsets": self.start} if instant is None else {"startingTimestamp": str(instant)}
        # A time after the last message of a partition means its end.
        late = {} if instant is None else {"startingOffsetsByTimestampStrategy": "latest"}
        limit = {} if self.max_messages is None else {"maxOffsetsPerTrigger": str(self.max_messages)}
        return {
            "kafka.isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
            **{name: str(value) for name, value in self.options.items()},
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": str(self.headers).lower(),
            "failOnDataLoss": "true",
            **start,
            **late,
            **limit,
        }

    def decode(self, frame: DataFrame) -> DataFrame:
        """Return the messages with decoded keys and values, and why one cannot be decoded."""
        from pyspark.sql import functions as F

        frame, value, bad_value = _decode(frame, self.value, "value")
        frame, key, bad_key = _decode(frame, self.key, "key")
        names = ["topic", "partition", "offset", "timestamp", *(["headers"] if self.headers else [])]
        return frame.select(
            key.alias("key"),
            value.alias("value"),
            *names,
            F.coalesce(bad_value, bad_key).alias(REASON),
            F.when(F.coalesce(bad_value, bad_key).isNotNull(), F.col("value")).alias(_RAW_VALUE),
        )

    def raw(self, decoded: DataFrame) -> DataFrame:
        """Return the messages that could not be decoded: `file` is topic/partition."""
        from pyspark.sql import functions as F

        return decoded.select(
            F.concat_ws("/", "topic", F.col("partition").cast("string")).alias("file"),
            F.lit(None).cast("long").alias("line"),
            "offset",
            F.col(_RAW_VALUE).alias("raw"),
            F.col(REASON).alias("reason"),
        )

    def lag(self, reading: Reading, offset: str | None) -> Lag:  # noqa: ARG002  the contract
        """Return how many offsets lie between a position and the end of the topics, if the broker can be asked."""
        position = json.loads(offset) if offset else {}
        ends = self._ends()
        if ends is None or (not position and self.start != "earliest"):
            # A stream that begins late must begin once, so that it is known where: until then nothing can be counted.
            return Lag(None, "messages")
        count = 0
        for (topic, partition), (low, high) in ends.items():
            # Partitions that came later are read from their first offset on.
            at = position.get(topic, {}).get(str(partition), low)
            count += max(high - max(at, low), 0)
        return Lag(count, "messages", _lost(position, ends))

    def source_ids(self, reading: Reading) -> Mapping[str, str]:  # noqa: ARG002  the contract
        """Return the ids of the topics."""
        return topic_ids(self.topics, self._client_settings())

    def beginning(self, reading: Reading, first: str | None) -> Beginning:  # noqa: ARG002  the contract
        """Return the first offsets as far as the topics still have them; of partitions that came later their beginning."""
        if first is None:
            return Beginning(doubt=f"where {self.path} was first read from is not recorded any more")
        ends = self._ends()
        if ends is None:
            return Beginning(first, doubt=f"no broker of {self.servers} says what {self.path} still has")
        position = json.loads(first)
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), (low, high) in sorted(ends.items()):
            at = position.get(topic, {}).get(str(partition), low)
            found.setdefault(topic, {})[str(partition)] = at if low <= at <= high else low
        # Partitions that came later were read from their first offset on.
        later = {topic: dict.fromkeys(parts, 0) for topic, parts in found.items() if topic in position}
        all_read = {topic: {**later.get(topic, {}), **offsets} for topic, offsets in position.items()}
        return Beginning(json.dumps(found, separators=(",", ":")), _lost(all_read, ends))

    def notes(self, reading: Reading) -> list[str]:  # noqa: ARG002  the contract
        """Return nothing: the declaration says it all."""
        return []

    def _client_settings(self) -> dict[str, Any]:
        settings = {name.removeprefix("kafka."): value for name, value in self.options.items() if name[:6] == "kafka."}
        return {**settings, "bootstrap.servers": self.servers}

    def _ends(self) -> dict[tuple[str, int], tuple[int, int]] | None:
        """Return the first and the next offset of every partition, if a broker can be asked."""
        level = "read_committed" if self.read_committed else "read_uncommitted"
        return topic_offsets(self.topics, self._client_settings(), level)


def _lost(position: Mapping[str, Any], ends: Mapping[tuple[str, int], tuple[int, int]]) -> str:
    """Return what lies behind a position and cannot be read any more, with counts; empty if that is nothing."""
    lost = []
    for topic, offsets in position.items():
        for partition, at in offsets.items():
            if (topic, int(partition)) not in ends:
                lost.append(f"{topic}/{partition} is gone")
                continue
            low, high = ends[topic, int(partition)]
            if at < low:
                lost.append(f"{low - at:,} offsets of {topic}/{partition} ({at:,} to {low - 1:,})")
            elif at > high:
                lost.append(f"{topic}/{partition} ends at {high:,}, before {at:,}: it was recreated or truncated")
    return ", ".join(lost)


def _split(file: str) -> tuple[str, str]:
    topic, _, partition = file.rpartition("/")
    return topic, partition


def _places_frame(session: SparkSession, places: Mapping[str, Sequence[int]]) -> DataFrame:
    from pyspark.sql import functions as F

    split = ((*_split(file), offsets) for file, offsets in places.items())
    rows = [(topic, int(partition), offset) for topic, partition, offsets in split for offset in offsets]
    return F.broadcast(session.createDataFrame(rows, "topic string, partition int, offset bigint"))


def start_instant(text: str) -> int | None:
    """Return a time in milliseconds since 1970; None if the text is none."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _decode(frame: DataFrame, coding: Coding, name: str) -> tuple[DataFrame, Column, Column]:
    """Return a frame, and of it the decoded column and the reason why a value cannot be decoded; a null value is null and has none."""
    from pyspark.sql import functions as F

    column, none = F.col(name), F.lit(None).cast("string")
    if coding.kind == "bytes":
        return frame, column, none
    if coding.kind in _AVRO:
        require_fastavro()
        header = CONFLUENT_HEADER if coding.kind == "confluent_avro" else 0
        return frame, *decode_avro(column, str(coding.schema), name, header)
    text = column.cast("string")
    no_text = F.when(~F.is_valid_utf8(text), F.lit(f"{name}: the bytes are not valid UTF-8"))
    if coding.kind == "string":
        return frame, text, no_text
    if coding.schema is None:
        return frame, text, F.coalesce(no_text, text_problem(text, name))
    frame, decoded, problem = decode_json(frame, name, coding.schema)
    return frame, decoded, F.coalesce(no_text, problem)
