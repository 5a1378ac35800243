"""The seams: what a source, a pattern, a table and a listener must offer. Planning and running know nothing else of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from oncelake.model.coverage import Coverage
from oncelake.model.events import Event
from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker
from oncelake.model.slices import Slice
from oncelake.model.work import Commit, InputSize, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pins = Mapping[str, Any]
Read = Callable[[Slice], "DataFrame"]


class Log(Protocol):
    """What a target's own log says is done."""

    @property
    def version(self) -> int:
        """The newest version."""
        ...

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        ...

    @property
    def schema(self) -> Mapping[str, str]:
        """The columns and their types."""
        ...

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The clustering columns."""
        ...

    @property
    def deletion_vectors(self) -> bool:
        """Whether deleted rows are marked instead of rewriting their files."""
        ...

    def done(self, marker: Marker) -> bool:
        """Return whether the marker, or a later one of the same app id, is recorded."""
        ...

    def recorded(self, app_id: str) -> int | None:
        """Return the version recorded for an app id, if there is one."""
        ...

    def commit(self, app_id: str) -> Commit | None:
        """Return the newest commit with that app id, if the log still has it."""
        ...

    def newest_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the facts of the newest commits by the app ids they carry."""
        ...

    def coverage(self, pipeline: str, target: str, requested: bool = False) -> list[Coverage]:
        """Return the time a pipeline has done here, or was requested to restate."""
        ...


class Table(Protocol):
    """A table of the lake. Everybody asks the table; nobody goes around it by path."""

    @property
    def name(self) -> str:
        """Its name, like `silver.orders`."""
        ...

    @property
    def path(self) -> str:
        """Where it lies."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether the lock keeps every other writer out from the look at the log to the commit."""
        ...

    def log(self) -> Log | None:
        """Return the log as it is now, or None if the table does not exist; only new commits are read."""
        ...

    def last_log(self) -> Log | None:
        """Return the log as it was last read."""
        ...

    def lock(self, timeout: float, give_up: Callable[[], bool], doing: str = "") -> AbstractContextManager[None]:
        """Hold the table's lock; Busy if that took longer than the timeout or `give_up` says waiting is pointless."""
        ...

    def mark(self, stamp: Stamp, session: SparkSession) -> None:
        """Commit a stamp without data."""
        ...


class Lake(Protocol):
    """Where tables and files are: names to tables and paths, never outside the lake."""

    def table(self, name: str) -> Table:
        """Return a table."""
        ...

    def file(self, path: str) -> str:
        """Return the path of a file or folder; relative ones start at the project's root."""
        ...


@dataclass(frozen=True)
class Reading:
    """What a source is asked to read: for which pipeline, which slice, and from where."""

    pipeline: str
    slice: Slice
    grid: Grid | None
    lake: Lake
    where: str


class SourceStats(Protocol):
    """What a source shows of itself at a moment, without being read."""

    def estimate(self, interval: Interval) -> InputSize:
        """How much there is to read for an interval, as far as that is known."""
        ...

    def changed(self, interval: Interval, pins: Pins) -> list[tuple[Interval, str]]:
        """Which parts of an interval changed since the pins, and how, as far as that can be told."""
        ...


class Source(Protocol):
    """Something a pipeline reads, repeatably."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables it reads, for the order of pipelines."""
        ...

    @property
    def by_interval(self) -> bool:
        """Whether what it reads depends on the interval."""
        ...

    @property
    def time(self) -> str | None:
        """The column that says to which interval a row belongs, if a column does."""
        ...

    def problem(self, grid: Grid | None) -> str | None:
        """What is wrong with this declaration in a pipeline on that grid, or None."""
        ...

    def pin(self, reading: Reading) -> Pins:
        """The exact versions of what would be read now. Needs no JVM."""
        ...

    def stats(self, reading: Reading) -> SourceStats:
        """What can be told of it now without reading it. Needs no JVM."""
        ...

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """What gives the frame of the slice, or of a part of it, as of the pins; what they share is done once."""
        ...


@dataclass(frozen=True)
class Stamp:
    """What travels in a commit beside the data: the marker and the facts."""

    marker: Marker
    facts: str

    def noting(self, **more: Any) -> Stamp:
        """The same stamp with more facts."""
        return Stamp(
            self.marker, json.dumps({"oncelake": json.loads(self.facts)["oncelake"] | more}, separators=(",", ":"))
        )


@dataclass(frozen=True)
class Writing:
    """What a pattern is asked to write: which work, into which table, with which stamp.

    `internal` is the folder of what oncelake keeps for itself.
    """

    work: Work
    table: Table
    stamp: Stamp
    attempt: str
    grid: Grid | None
    where: str
    internal: str

    @property
    def path(self) -> str:
        """Where the table lies."""
        return self.table.path

    def noting(self, **facts: Any) -> Writing:
        """Return the same writing with more facts in its commit."""
        return replace(self, stamp=self.stamp.noting(**facts))


class Pattern(Protocol):
    """A way of writing that is safe to repeat: one commit that carries its marker."""

    @property
    def target(self) -> str:
        """The table it writes."""
        ...

    @property
    def kind(self) -> str:
        """Its name, as the user writes it."""
        ...

    @property
    def within(self) -> Mapping[str, Any]:
        """The share of the target it owns; empty for all of it."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether it removes the rows of its slice that are there, so that nobody else may own them."""
        ...

    @property
    def restates(self) -> bool:
        """Whether a work may be done again with the next generation."""
        ...

    @property
    def compacts(self) -> bool:
        """Whether small files that it leaves are put together between works."""
        ...

    def problem(self, grid: Grid | None) -> str | None:
        """What is wrong with this declaration in a pipeline on that grid, or None."""
        ...

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """The identity its commit carries."""
        ...

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:
        """The time since the start that the log says is done, and up to which generation."""
        ...

    def notes(self, log: Log | None) -> tuple[str, ...]:
        """What a plan should say of how it writes: which files it looks at and which it rewrites."""
        ...

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write the frame in one commit that carries the stamp, or raise and write nothing."""
        ...


@runtime_checkable
class RangeWriter(Protocol):
    """A pattern that may set neighbouring intervals in one commit, because it knows which rows belong to each."""

    def time_column(self, frame: DataFrame, writing: Writing) -> tuple[str, str]:
        """The column of the frame, and its type, that says to which interval a row belongs."""
        ...

    def cut_column(self, log: Log | None) -> str | None:
        """Return the column of the table that cuts its slices, if that is known without a frame."""
        ...

    def partitioned_by_time(self, log: Log | None) -> bool:
        """Whether intervals lie in partitions of their own, so that works at the same time do not conflict."""
        ...


class Listener(Protocol):
    """Somebody who listens to a run: the ledger, a terminal, metrics. A listener that fails does not fail the run."""

    def on(self, event: Event) -> None:
        """Take notice of an event."""
        ...
