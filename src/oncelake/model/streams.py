"""The seam of streams: sources that Structured Streaming reads in micro-batches, numbered by the checkpoint of its query."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from oncelake.model.contracts import Pattern, Pins, Read, Reading, Source, SourceStats
from oncelake.model.intervals import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The column of decoded rows that says why a row could not be decoded; null for the others.
REASON = "__once_reason"
# The batch in a marker of an epoch that cleared its target, and in one of which a restore took even that out.
CLEARED, UNCLEARED = -1, -2
_NAMESPACE = uuid.UUID("6f6e6365-6c61-6b65-8000-000000000000")
_VERSION = "v1"
# What Spark writes for a source that has no offset yet.
_NO_OFFSET = "-"


@dataclass(frozen=True)
class StreamId:
    """The identity of a stream in markers: the id of its query, and its epoch, which only a restart raises."""

    epoch: int
    query: str

    @property
    def text(self) -> str:
        """The text in markers."""
        return f"{self.epoch}:{self.query}"

    @classmethod
    def of(cls, pipeline: str, epoch: int) -> StreamId:
        """Return the identity of a pipeline's stream: no clock and no randomness, so a lost checkpoint changes nothing."""
        return cls(epoch, str(uuid.uuid5(_NAMESPACE, f"{pipeline}/{epoch}")))

    @classmethod
    def parse(cls, text: str) -> StreamId | None:
        """Return the identity that a marker names; None if it is that of files, or of a stream without a pipeline."""
        epoch, found, query = text.partition(":")
        return cls(int(epoch), query) if found and epoch.isdigit() else None


@dataclass(frozen=True)
class BatchOffsets:
    """The offsets up to which a micro-batch reads, one for each source, as the checkpoint records them before it runs."""

    sources: tuple[str, ...]
    # Watermark, clock and settings that Spark records with them.
    metadata: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> BatchOffsets:
        """Parse an offset file of a checkpoint; raise ValueError if it is not complete."""
        version, *lines = text.split("\n")
        if version != _VERSION or len(lines) < 2 or not all(lines):
            raise ValueError("the file is not complete" if version.startswith("v") or not text else "no offset file")
        for offset in lines[1:]:
            # A file that is cut in its last line has all its lines.
            if offset != _NO_OFFSET:
                json.loads(offset)
        return cls(tuple(lines[1:]), json.loads(lines[0]))

    def file_text(self) -> str:
        """Return the text of an offset file."""
        return "\n".join([_VERSION, json.dumps(self.metadata, separators=(",", ":")), *self.sources])

    def document(self) -> dict[str, Any]:
        """Return the offsets as facts record them."""
        return {"sources": list(self.sources), "metadata": dict(self.metadata)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> BatchOffsets:
        """Return the offsets that the facts of a commit record."""
        return cls(tuple(facts["sources"]), facts["metadata"])


@dataclass(frozen=True)
class Lag:
    """How far a stream is behind its source: a number, if it can be asked without a JVM, and what is counted."""

    count: int | None
    unit: str
    # What is lost already, for instance messages beyond the retention of a topic; empty if nothing is.
    lost: str = ""

    def __str__(self) -> str:
        """Format for display."""
        return f"{self.count:,} {self.unit} waiting" if self.count is not None else f"{self.unit} waiting: not known"


@dataclass(frozen=True)
class Beginning:
    """Where a stream is read again from: an offset to begin at, None for where the source begins by itself.

    `lost` says what a first reading had and this one will not; `doubt` why that cannot be known.
    """

    offset: str | None = None
    lost: str = ""
    doubt: str = ""


class StreamDefaults:
    """What all stream sources have in common: no intervals, and rows that never change and are read by a query."""

    by_interval = False
    time = None
    versioned = True

    def pin(self, reading: Reading) -> Pins:
        """Refuse: what a batch reads is in its checkpoint."""
        raise NotImplementedError(reading.where)

    def stats(self, reading: Reading) -> SourceStats:
        """Refuse: there are no intervals to ask for."""
        raise NotImplementedError(reading.where)

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Do nothing: messages, and versions of a Delta table, do not change."""

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """Refuse: a stream is read by its query."""
        raise NotImplementedError(reading.where)


@runtime_checkable
class Follower(Protocol):
    """A declared stream of a table, which is read by what its writers do to it."""

    def follow(self, writers: Iterable[Pattern]) -> Source:
        """Return the source as it is read behind these patterns."""
        ...


@runtime_checkable
class StreamSource(Source, Protocol):
    """A source that drives its pipeline by the micro-batches of a Structured Streaming query."""

    @property
    def stream_identity(self) -> Mapping[str, Any]:
        """What the offsets of a checkpoint refer to: with another, its checkpoint means nothing."""
        ...

    def open_stream(self, session: SparkSession, reading: Reading) -> DataFrame:
        """Return the streaming frame of what arrives, not decoded."""
        ...

    def decode(self, frame: DataFrame) -> DataFrame:
        """Return the rows that the function gets, and in the column REASON why a row cannot be decoded."""
        ...

    def raw(self, decoded: DataFrame) -> DataFrame:
        """Return the rows that could not be decoded as quarantine has them: file, line, offset, raw, reason."""
        ...

    def lag(self, reading: Reading, offset: str | None) -> Lag:
        """Return how far a position is behind the source. Needs no JVM; raises nothing."""
        ...

    def source_ids(self, reading: Reading) -> Mapping[str, str]:
        """Return ids of what is read by name, which another of that name does not have, as far as they can be asked."""
        ...

    def beginning(self, reading: Reading, first: str | None) -> Beginning:
        """Return where to begin to read everything again that was read from a first offset on. Needs no JVM."""
        ...

    def notes(self, reading: Reading) -> list[str]:
        """Return what a plan says of the source, such as how changes of a table are read."""
        ...


class StreamPart(StreamDefaults):
    """A part of a stream as the source of one work: a micro-batch, or retried messages. Its declaration is the stream's."""

    source: StreamSource

    def __repr__(self) -> str:
        """Return the declaration: a part of the same stream is no other declaration."""
        return repr(self.source)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of the stream."""
        return self.source.tables

    def problem(self, grid: Grid | None) -> str | None:
        """Return what the stream says of a grid."""
        return self.source.problem(grid)


@runtime_checkable
class MessageSource(StreamSource, Protocol):
    """A stream of messages that may be damaged, and that can be read again by their places.

    A place is an offset in a topic and partition, which are spelled "topic/partition".
    """

    @property
    def may_fail(self) -> bool:
        """Whether a message can be such that it cannot be decoded."""
        ...

    def read_between(self, session: SparkSession, start: str | None, end: str) -> DataFrame:
        """Return the messages between two offsets of a checkpoint, not decoded; fail if some are gone."""
        ...

    def read_at(self, session: SparkSession, places: Mapping[str, Sequence[int]]) -> DataFrame:
        """Return the messages at some places, not decoded, as far as they are still there."""
        ...

    def leave_out(self, frame: DataFrame, places: Mapping[str, Sequence[int]]) -> DataFrame:
        """Return a frame of messages without those at some places."""
        ...
