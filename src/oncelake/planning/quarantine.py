"""The quarantine of a pipeline: of files, or of the messages of a stream, with what the targets' own logs say of retries.

A retry of messages is frozen in the quarantine before it writes: its rows get its number. It is done where a target has its
marker. So a row is retried when all targets have it, whatever was killed in between, and whatever was restored since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.quarantine import (
    DROPPED,
    QUARANTINED,
    RETRIED,
    change_quarantined,
    quarantined_rows,
    read_quarantined,
)
from oncelake.model.arrivals import ArrivalSource, Quarantine, QuarantinedMessage, QuarantinedRow
from oncelake.model.contracts import Lake, Log, Reading
from oncelake.model.slices import Named
from oncelake.model.work import DONE, Planned, Work
from oncelake.planning.batches import arrival_reading, last_batch
from oncelake.planning.streams import StreamState, find_stream


def find_quarantine(pipeline: Pipeline, logs: Mapping[str, Log | None], lake: Lake) -> Quarantine | None:
    """Return the quarantine of a pipeline; None if it is driven neither by files nor by a stream."""
    if pipeline.stream is not None:
        return StreamQuarantine(pipeline, find_stream(pipeline, logs, lake), logs)
    if pipeline.arrival is not None:
        return FileQuarantine(pipeline.arrival, arrival_reading(pipeline, lake), last_batch(pipeline, logs))
    return None


# How the slice of a retry begins.
RETRY = "retry "


@dataclass(frozen=True)
class FileQuarantine:
    """What could not be read of files that arrived."""

    source: ArrivalSource
    reading: Reading
    done: int | None

    def rows(self) -> list[QuarantinedRow]:
        """Return everything that is or was in quarantine."""
        return self.source.list_quarantine(self.reading, self.done)

    def drop(self, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows as dropped."""
        self.source.drop_quarantine(self.reading, rows)


@dataclass(frozen=True)
class Retry:
    """Messages that are written together, once, outside of the numbered batches of their stream."""

    number: int
    rows: tuple[QuarantinedRow, ...]
    # The targets that have it, and those that lack it.
    done: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    epoch: int = 1

    @property
    def slice(self) -> Named:
        """Its slice: the same messages have the same marker, and no others have it."""
        return retry_slice(self.number, self.rows, self.epoch)

    @property
    def partly_done(self) -> bool:
        """Whether some targets have it and some lack it: a kill in between, a restore, or a target that was added."""
        return bool(self.done and self.missing)

    @property
    def places(self) -> dict[str, list[int]]:
        """The messages to write: the offsets of each topic and partition. What was dropped since is left out."""
        found: dict[str, list[int]] = {}
        for row in self.rows:
            if row.state != DROPPED and row.offset is not None:
                found.setdefault(row.file, []).append(row.offset)
        return {file: sorted(offsets) for file, offsets in sorted(found.items())}


def retry_slice(number: int, rows: Iterable[QuarantinedRow], epoch: int = 1) -> Named:
    """Return the slice of a retry: its number, and a digest of the keys of its messages and of the epoch after the first."""
    keys = json.dumps(sorted(row.key for row in rows)) + (f" {epoch}" if epoch > 1 else "")
    return Named(f"{RETRY}{number} {hashlib.sha256(keys.encode()).hexdigest()[:16]}")


@dataclass(frozen=True)
class StreamQuarantine:
    """The messages of a stream that could not be decoded, and their retries."""

    pipeline: Pipeline
    state: StreamState
    logs: Mapping[str, Log | None]

    def rows(self) -> list[QuarantinedRow]:
        """Return every message that is or was in quarantine; one is retried when all targets have its retry."""
        return [self._with_true_state(row) for row in self._stored]

    def drop(self, rows: Sequence[QuarantinedRow]) -> None:
        """Mark messages as dropped."""
        change_quarantined(self.state.quarantine_folder, rows, DROPPED)

    @cached_property
    def retries(self) -> dict[int, Retry]:
        """The retries that were frozen, by their numbers."""
        found: dict[int, list[QuarantinedRow]] = {}
        for row in self._stored:
            if row.retried_in is not None:
                found.setdefault(row.retried_in, []).append(row)
        return {number: self._look_up(number, rows) for number, rows in sorted(found.items())}

    def freeze(self, rows: Sequence[QuarantinedRow]) -> Retry:
        """Freeze a retry of messages: from now on they are written together or not at all."""
        number = max(self.retries, default=-1) + 1
        change_quarantined(self.state.quarantine_folder, rows, QUARANTINED, number)
        return self._look_up(number, [replace(row, state=QUARANTINED, retried_in=number) for row in rows])

    def settle(self, retries: Iterable[Retry]) -> None:
        """Record that the messages of retries are in all targets."""
        for retry in retries:
            left = [row for row in retry.rows if row.state == QUARANTINED]
            change_quarantined(self.state.quarantine_folder, left, RETRIED, retry.number)

    def plan(self, retry: Retry) -> list[Planned]:
        """Return the works of a retry: a target that has it skips it."""
        return [
            Planned(work, "skip", "done", DONE)
            if work.target in retry.done
            else Planned(work, "run", f"{len(retry.rows):,} messages from quarantine")
            for work in self._works(retry.slice)
        ]

    @cached_property
    def _stored(self) -> list[QuarantinedRow]:
        table = read_quarantined(self.state.quarantine_folder, self.state.done)
        return list(quarantined_rows(table, QuarantinedMessage))

    def _with_true_state(self, row: QuarantinedRow) -> QuarantinedRow:
        retry = self.retries.get(row.retried_in) if row.retried_in is not None else None
        if row.state == DROPPED or retry is None:
            return row
        return replace(row, state=QUARANTINED if retry.missing else RETRIED)

    def _look_up(self, number: int, rows: Sequence[QuarantinedRow]) -> Retry:
        works = self._works(retry_slice(number, rows, self.state.id.epoch))
        logs = ((work, self.logs.get(work.target)) for work in works)
        done = frozenset(work.target for work, log in logs if log is not None and log.done(work.marker))
        return Retry(number, tuple(rows), done, frozenset(self.pipeline.writes_tables - done), self.state.id.epoch)

    def _works(self, slice_: Named) -> list[Work]:
        name = self.pipeline.name
        return [Work(name, each.target, slice_, 1, each.marker(name, slice_, 1)) for each in self.pipeline.writes]
