"""The seams: what a source, a pattern and a ledger must offer. The ring knows nothing else of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker
from oncelake.model.slices import Slice
from oncelake.model.work import Commit, InputSize, Outcome, Plan, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pins = Mapping[str, Any]
Read = Callable[[Slice], "DataFrame"]


class Place(Protocol):
    """Where tables and files are: names to paths, never outside the lake."""

    def table(self, name: str) -> str:
        """The path of a table."""
        ...

    def file(self, path: str) -> str:
        """The path of a file or folder, relative ones from the project's root."""
        ...


@dataclass(frozen=True)
class Reading:
    """What a source is asked to read: for whom, which slice, and from where."""

    pipeline: str
    slice: Slice
    grid: Grid | None
    place: Place
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
    """What a pattern is asked to write: which work, where, stamped how. `own` is the folder of what oncelake keeps itself."""

    work: Work
    path: str
    stamp: Stamp
    attempt: str
    grid: Grid | None
    where: str
    own: str


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

    def partitioned_by_time(self, log: Log | None) -> bool:
        """Whether intervals lie in partitions of their own, so that works at the same time do not conflict."""
        ...


class Ledger(Protocol):
    """A journal for people. Losing it loses no truth, and failing it fails no run."""

    def started(self, run: str, works: Sequence[Work]) -> None:
        """An attempt at these works begins."""
        ...

    def ended(self, run: str, outcomes: Sequence[Outcome]) -> None:
        """This is what came of them."""
        ...


class Watcher(Protocol):
    """Somebody who looks on while a run goes: a terminal, a log, nobody."""

    def planned(self, plan: Plan) -> None:
        """This is what will be done."""
        ...

    def started(self, work: Work) -> None:
        """A work begins."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """This came of a work."""
        ...

    def warn(self, text: str) -> None:
        """Something is worth knowing and stops nothing."""
        ...


class Log(Protocol):
    """What a target's own log says is done."""

    @property
    def version(self) -> int:
        """Its newest version."""
        ...

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        ...

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The clustering columns."""
        ...

    @property
    def deletion_vectors(self) -> bool:
        """Whether rows are marked as deleted instead of files rewritten."""
        ...

    def done(self, marker: Marker) -> bool:
        """Whether the marker, or a later one of the same app id, is recorded."""
        ...

    def recorded(self, app_id: str) -> int | None:
        """The version recorded for an app id, if there is one."""
        ...

    def commit(self, app_id: str) -> Commit | None:
        """The newest commit with that app id, if the log still has it."""
        ...

    def coverage(self, pipeline: str, target: str, requested: bool = False) -> list[Coverage]:
        """The time a pipeline has done here, or was asked to do again."""
        ...
