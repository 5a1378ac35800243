"""The seam of sources that arrive: they drive their pipeline by numbered batches, and account for every row."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

from oncelake.errors import OncelakeError
from oncelake.model.contracts import Reading, Source
from oncelake.model.intervals import instant_text

# The column with the file that a row came from, where provenance is declared.
FILE_COLUMN = "_once_file"
# The identity of the stream of files in markers: a pipeline has one, and its name is in the marker already.
FILES_STREAM = "files"


class CountedRead(ABC):
    """A read that accounts for every row: what its commit records beside the pins."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the rows that were read; known once they were read."""

    def replaced_files(self) -> tuple[str, ...]:
        """Return the files whose earlier rows are replaced by the rows that were read."""
        return ()

    def notes(self) -> tuple[str, ...]:
        """Return what is to be said of what was read."""
        return ()

    def read_again(self, error: Exception) -> bool:  # noqa: ARG002  for those that can
        """Return whether the batch must be read once more because of an error of the write."""
        return False


@dataclass(frozen=True)
class WaitingBatch:
    """A batch that is not done everywhere: its files and bytes; frozen, or as it would be frozen now."""

    number: int
    files: int
    bytes: int
    frozen: bool
    # How the files are read: many of them by a task, or large ones in parts.
    reading: str = ""


@dataclass(frozen=True)
class Waiting:
    """What waits to be ingested: the batches, oldest first, and what a plan says of the other files."""

    stream: str
    batches: tuple[WaitingBatch, ...] = ()
    notes: tuple[str, ...] = ()
    # Why nothing can be said or read, such as a folder that cannot be listed.
    problem: OncelakeError | None = None


@dataclass(frozen=True)
class FileEntry:
    """A file of a pipeline that is driven by arrivals: its state, and the batch and the rows where it was ingested."""

    path: str
    size: int
    modified: datetime
    state: str
    batch: int | None = None
    version: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    rows_quarantined: int | None = None
    rows_filtered: int | None = None
    # The beginning of its SHA-256, if it was read as a whole, and the file that had the same content before it.
    hash: str | None = None
    duplicate_of: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the file as `files --json` prints it."""
        return {**vars(self), "modified": instant_text(self.modified)}


@dataclass(frozen=True)
class QuarantinedRow:
    """A row that could not be read, or a file (then it has no line): where it is, what it is, and why."""

    number: int
    batch: int
    file: str
    line: int | None
    offset: int | None
    raw: bytes | None
    reason: str
    at: datetime
    state: str
    retried_in: int | None = None

    # What a place within a file is called.
    place_name: ClassVar[str] = "line"

    @property
    def key(self) -> list[Any]:
        """What tells it from all others."""
        return [self.batch, self.file, self.line, self.offset]

    @property
    def is_file(self) -> bool:
        """Whether it is a file as a whole."""
        return self.line is None and self.offset is None

    @property
    def digest(self) -> str:
        """A short text that differs if the raw text differs: another row may be at the same place some day."""
        return hashlib.sha256(self.raw or b"").hexdigest()[:16]

    @property
    def place(self) -> int | None:
        """Where in the file it is; None for a file as a whole."""
        return self.line

    def document(self) -> dict[str, Any]:
        """Return the row as `quarantine --json` prints it; bytes that are no text are escaped."""
        raw = None if self.raw is None else self.raw.decode(errors="backslashreplace")
        return {**vars(self), "raw": raw, "at": instant_text(self.at)}


@dataclass(frozen=True)
class QuarantinedMessage(QuarantinedRow):
    """A message of Kafka that could not be decoded: its file is the topic and the partition, and it has an offset."""

    place_name: ClassVar[str] = "offset"

    @property
    def place(self) -> int | None:
        """Where in the partition it is."""
        return self.offset

    def document(self) -> dict[str, Any]:
        """Return the message as `quarantine --json` prints it, also with topic and partition."""
        topic, _, partition = self.file.rpartition("/")
        return {**super().document(), "topic": topic, "partition": int(partition)}


class Quarantine(Protocol):
    """What a pipeline could not read: rows of files, or messages of a stream. Needs no JVM."""

    def rows(self) -> list[QuarantinedRow]:
        """Return everything that is or was in quarantine, each with its state."""
        ...

    def drop(self, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows as dropped: they are not retried."""
        ...


@runtime_checkable
class ArrivalSource(Source, Protocol):
    """A source that drives its pipeline: what arrives is read in numbered batches, each frozen before it is read."""

    @property
    def replaces_files(self) -> bool:
        """Whether the rows of a changed file replace those of its earlier content; only `append` can do that."""
        ...

    @property
    def names_files(self) -> bool:
        """Whether every row says which file it came from, so that the rows of a file can be replaced."""
        ...

    @property
    def chosen_by(self) -> str:
        """What a range of time means for what arrives, in words."""
        ...

    def restated(self, reading: Reading, done: int | None, ordered: str | None) -> Waiting:
        """Return the batches that would read what was ingested in a range again.

        `ordered` is a target whose result depends on the order of batches: raise if something newer is not in the range.
        """
        ...

    def freeze_restated(self, reading: Reading, done: int | None, ordered: str | None) -> tuple[str, ...]:
        """Freeze the batches that read what was ingested in a range again, for the next run; return what is to be said."""
        ...

    @property
    def stream(self) -> str:
        """The identity of the stream in markers."""
        ...

    def waiting(self, reading: Reading, done: int | None) -> Waiting:
        """Return the batches after the last one that every target has, frozen ones and those that would be frozen now."""
        ...

    def list_files(self, reading: Reading, done: int | None) -> Iterator[FileEntry]:
        """Yield every file that is known or has arrived."""
        ...

    def list_quarantine(self, reading: Reading, done: int | None) -> list[QuarantinedRow]:
        """Return what is in quarantine."""
        ...

    def retry_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> tuple[str, ...]:
        """Freeze a batch of what is in quarantine, to be read once more; return what is to be said of what stays there."""
        ...

    def drop_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows in quarantine as dropped: they are not retried."""
        ...

    def rebuild_manifests(
        self, reading: Reading, facts: Mapping[int, Mapping[str, Any]], done: int | None
    ) -> list[int]:
        """Write the manifests that are missing or damaged from the facts of the commits, and return their numbers.

        `done` is the last batch that any target has; a later one that no commit tells of becomes empty.
        """
        ...

    def settle(self, reading: Reading, facts: Mapping[int, Mapping[str, Any]]) -> None:
        """Record what became of the files of committed batches, by the facts of their commits, where that is not done."""
        ...

    def frozen(self, reading: Reading, done: int | None) -> Waiting:
        """Return the batches after the last one that every target has, only those that are frozen."""
        ...

    def freeze(self, reading: Reading, done: int | None) -> Waiting:
        """Freeze what has arrived, and return the batches after the last one that every target has: all are frozen."""
        ...


@runtime_checkable
class Arrivable(Protocol):
    """A declared source that drives a pipeline by its arrival, or is read as a whole, as the pipeline has it."""

    def resolve(self, driven: bool) -> Source:
        """Return the source: one that arrives if the pipeline can be driven by it, unless the declaration says otherwise."""
        ...
