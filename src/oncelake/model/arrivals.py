"""The seam of sources that arrive: they drive their pipeline by numbered batches, and account for every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from oncelake.errors import OncelakeError
from oncelake.model.contracts import Reading, Source
from oncelake.model.intervals import instant_text

# The column with the file that a row came from, where provenance is declared.
FILE_COLUMN = "_once_file"


@runtime_checkable
class CountedRead(Protocol):
    """A read that accounts for every row: what its commit records beside the pins."""

    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the rows that were read; known once they were read."""
        ...

    def replaced_files(self) -> tuple[str, ...]:
        """Return the files whose earlier rows are replaced by the rows that were read."""
        ...


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

    @property
    def key(self) -> list[Any]:
        """What tells it from all others."""
        return [self.batch, self.file, self.line, self.offset]

    def document(self) -> dict[str, Any]:
        """Return the row as `quarantine --json` prints it; bytes that are no text are escaped."""
        raw = None if self.raw is None else self.raw.decode(errors="backslashreplace")
        return {**vars(self), "raw": raw, "at": instant_text(self.at)}


@runtime_checkable
class ArrivalSource(Source, Protocol):
    """A source that drives its pipeline: what arrives is read in numbered batches, each frozen before it is read."""

    @property
    def replaces_files(self) -> bool:
        """Whether the rows of a changed file replace those of its earlier content; only `append` can do that."""
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

    def retry_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> int:
        """Freeze a batch of what is in quarantine, to be read once more, and return its number."""
        ...

    def drop_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows in quarantine as dropped: they are not retried."""
        ...

    def rebuild_manifests(self, reading: Reading, facts: Mapping[int, Mapping[str, Any]]) -> list[int]:
        """Write the manifests that are missing from the facts of the commits, and return their numbers."""
        ...

    def settle(self, reading: Reading, facts: Mapping[int, Mapping[str, Any]]) -> None:
        """Record what became of the files of committed batches, by the facts of their commits, where that is not done."""
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
