"""The seams: the protocols of sources, patterns, tables and listeners. Planning and running use nothing else of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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
    """The log of a target, which says what is done."""

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

    def commit_at(self, version: int) -> Commit | None:
        """Return the commit of a version, if the log still has it."""
        ...

    @property
    def overtaken(self) -> Mapping[str, int]:
        """The works that must be applied once more, by app id: another commit came between their read and this version."""
        ...

    def overtaken_version(self, app_id: str) -> int | None:
        """Return the version in which a work was overtaken, if it must be applied once more."""
        ...

    def newest_facts(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the facts of the newest commits, oldest first, each with an app id it carries."""
        ...

    def recent_facts(self, app_ids: Iterable[str]) -> dict[str, Mapping[str, Any] | None]:
        """Return the facts of works as far as the newest commits tell; None for a work whose commit the log no longer has."""
        ...

    def streams(self, pipelines: Iterable[str], target: str) -> dict[str, int]:
        """Return the streams of pipelines, by some names, that wrote batches here: the last batch of each."""
        ...

    def writers(self) -> set[tuple[str, str]]:
        """Return the pipelines that have markers here, each with the name of the target in its markers."""
        ...

    def coverage(self, pipeline: str, target: str, requested: bool = False) -> list[Coverage]:
        """Return the coverage of a pipeline in this table: what is done, or, if `requested`, what was requested to be restated."""
        ...


class Table(Protocol):
    """A table of the lake. All access goes through the table, never around it by path."""

    @property
    def name(self) -> str:
        """The name, like `silver.orders`."""
        ...

    @property
    def path(self) -> str:
        """The path or URI."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether the lock excludes all other writers from the read of the log until the commit."""
        ...

    def log(self) -> Log | None:
        """Return the log as it is now, or None if the table does not exist; only new commits are read."""
        ...

    def last_log(self) -> Log | None:
        """Return the log as it was last read."""
        ...

    def lock(
        self, timeout: float, give_up: Callable[[], bool], doing: str = "", session: str | None = None
    ) -> AbstractContextManager[None]:
        """Hold the table's lock; raise Busy after the timeout, or when `give_up` returns True.

        `session` is the address of a Connect session that commits: it may do so after this process was killed.
        """
        ...

    def lost_lock(self) -> bool:
        """Return whether another runner has the table's lease, because the one that was taken here expired."""
        ...

    def mark(self, stamp: Stamp, session: SparkSession) -> None:
        """Commit a stamp without data."""
        ...


class Lake(Protocol):
    """The lake: maps names to tables and paths, never outside the lake."""

    @property
    def path(self) -> str:
        """The folder or URI."""
        ...

    def table(self, name: str) -> Table:
        """Return a table."""
        ...

    def file(self, path: str) -> str:
        """Return the path of a file or folder; relative ones start at the project's root."""
        ...

    def internal_path(self, *parts: str) -> str:
        """Return a path of what oncelake keeps for itself."""
        ...

    def stream_path(self, *parts: str) -> str:
        """Return a path of what is kept for streams: in the lake, or where the checkpoints are declared to be."""
        ...


@dataclass(frozen=True)
class Reading:
    """A request to a source: the pipeline, the slice and the lake to read from."""

    pipeline: str
    slice: Slice
    grid: Grid | None
    lake: Lake
    where: str
    formerly: tuple[str, ...] = ()  # names of the pipeline under which a source may keep what it knows
    writes: tuple[Pattern, ...] = ()  # how the rows are written; empty where nothing is written


class SourceStats(Protocol):
    """Statistics of a source at one moment, without reading its data."""

    def look_ahead(self, intervals: Iterable[Interval]) -> None:
        """Prepare for questions about these intervals, so that the answers do not take a request each, one after the other."""
        ...

    def estimate(self, interval: Interval) -> InputSize:
        """Return the size of the input for an interval, as far as it is known."""
        ...

    def changed(self, interval: Interval, pins: Pins) -> list[tuple[Interval, str]]:
        """Return the parts of an interval that changed since the pins, and how, as far as that is known."""
        ...

    def notes(self, quick: bool = False) -> list[str]:
        """Return what a plan says of the source, such as rows that belong to no interval; if `quick`, what takes no time."""
        ...


class Source(Protocol):
    """An input of a pipeline that can be read again as of its pins."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables it reads, from which pipelines are ordered."""
        ...

    @property
    def by_interval(self) -> bool:
        """Whether the rows it reads depend on the interval."""
        ...

    @property
    def time(self) -> str | None:
        """The column that decides to which interval a row belongs, if there is one."""
        ...

    @property
    def versioned(self) -> bool:
        """Whether pins name a version that never changes. Otherwise the input may change while it is read."""
        ...

    def problem(self, grid: Grid | None) -> str | None:
        """Return what is wrong with this declaration in a pipeline on that grid, or None."""
        ...

    def pin(self, reading: Reading) -> Pins:
        """Return the exact versions that would be read now. Needs no JVM."""
        ...

    def stats(self, reading: Reading) -> SourceStats:
        """Return its statistics as of now, without reading its data. Needs no JVM."""
        ...

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Raise SourceChanged if what was pinned is not there any more. Needs no JVM.

        If the source is not versioned, this is called for each target after its rows are computed and before the commit.
        """
        ...

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> Read:
        """Return a function that reads the slice, or a part of it, as of the pins. Preparation common to the parts is done once."""
        ...


@dataclass(frozen=True)
class Stamp:
    """What a commit carries beside the data: the marker and the facts."""

    marker: Marker
    facts: str

    def with_facts(self, **more: Any) -> Stamp:
        """Return the same stamp with more facts."""
        return Stamp(
            self.marker, json.dumps({"oncelake": json.loads(self.facts)["oncelake"] | more}, separators=(",", ":"))
        )


@dataclass(frozen=True)
class Writing:
    """A request to a pattern: the work, the table to write and the stamp of the commit.

    `internal` is the folder of oncelake's own files. `verify_inputs` raises if an input changed since it was pinned; the
    pattern calls it when the rows are computed, before the commit. It is None where no input can change.
    """

    work: Work
    table: Table
    stamp: Stamp
    attempt: str
    grid: Grid | None
    where: str
    internal: str
    verify_inputs: Callable[[], None] | None = None
    # Raises if a part of a range is done by this log. The commit must directly follow its version, because no lock is exclusive.
    fence: Callable[[Log], None] | None = None
    # The files whose rows of earlier content are replaced, where that is declared.
    replaced_files: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path or URI of the table."""
        return self.table.path

    def with_facts(self, **facts: Any) -> Writing:
        """Return the same writing with more facts in its commit."""
        return replace(self, stamp=self.stamp.with_facts(**facts))


class Pattern(Protocol):
    """A way of writing that is safe to repeat: one commit that carries its marker."""

    @property
    def target(self) -> str:
        """The table it writes."""
        ...

    @property
    def kind(self) -> str:
        """The name of the pattern in declarations."""
        ...

    @property
    def within(self) -> Mapping[str, Any]:
        """The row filter: the rows of the target it owns; empty for all rows."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether it deletes the existing rows of its slice, so that no other pipeline may own them."""
        ...

    @property
    def restates(self) -> bool:
        """Whether a work may be restated, with the next generation."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order of slices, so that they must be done in the order of time."""
        ...

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The declared partition columns of the target."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared key columns of the target; empty if rows are not written by key."""
        ...

    @property
    def replaced_rows(self) -> Mapping[str, Any]:
        """The declared options that decide which existing rows a work replaces, as facts record them; else empty."""
        ...

    @property
    def takes_batches(self) -> bool:
        """Whether it may write the rows that arrived since the last time, beside those that arrived before."""
        ...

    @property
    def needs_state(self) -> bool:
        """Whether a stream must keep state for it: its rows are the values of groups so far, not of one batch."""
        ...

    @property
    def compacts(self) -> bool:
        """Whether the small files that it writes are compacted between works."""
        ...

    def problem(self, grid: Grid | None) -> str | None:
        """Return what is wrong with this declaration in a pipeline on that grid, or None."""
        ...

    def marker(self, pipeline: str, slice_: Slice, generation: int) -> Marker:
        """Return the marker that its commit carries."""
        ...

    def done(self, log: Log, pipeline: str, start: datetime, grid: Grid) -> list[Coverage]:
        """Return the time since the start that is done according to the log, with generations."""
        ...

    def notes(self, log: Log | None) -> tuple[str, ...]:
        """Return notes for a plan on how it writes: which files it scans and which it rewrites."""
        ...

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write the frame in one commit that carries the stamp, or raise and commit nothing."""
        ...


@runtime_checkable
class RangeWriter(Protocol):
    """A pattern that can write neighbouring intervals in one commit, because it knows the rows of each."""

    def time_column(self, frame: DataFrame, writing: Writing) -> tuple[str, str]:
        """Return the column of the frame, and its type, that decides to which interval a row belongs."""
        ...

    def cut_column(self, log: Log | None) -> str | None:
        """Return the column of the table that cuts its slices, if that is known without a frame."""
        ...

    def partitioned_by_time(self, log: Log | None) -> bool:
        """Return whether each interval has its own partitions, so that concurrent works do not conflict."""
        ...


class Listener(Protocol):
    """A receiver of the events of a run: the ledger, a terminal, metrics. A listener that fails does not fail the run."""

    def on(self, event: Event) -> None:
        """Handle an event."""
        ...
