"""The status of a stream, by its checkpoint, its source and what its last query noted. No JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from oncelake.planning.streams import PROGRESS, StreamState
from oncelake.storage.objects import storage


@dataclass(frozen=True)
class StreamStatus:
    """Where a stream stands: its last batch and offsets, how far it is behind, and what its query noted last."""

    epoch: int
    batch: int | None
    offsets: Any
    # What waits, if the source can be asked; and what it no longer has.
    lag: int | None
    unit: str
    lost: str
    rows_per_second: float | None
    watermark: str | None
    state_rows: int | None
    state_bytes: int | None
    noted_at: str | None
    last_error: str | None
    running: str | None
    # Why the stream may not go on, and the next command.
    problem: str | None
    next: str | None
    checkpoint: str

    def line(self) -> str:
        """Return it as `status` prints it."""
        batch = "no batch yet" if self.batch is None else f"batch {self.batch}"
        known = f"{self.lag:,} {self.unit} waiting" if self.lag is not None else f"{self.unit} waiting: not known"
        speed = f", {self.rows_per_second:,.0f} rows/s" if self.rows_per_second else ""
        watermark = f", watermark {self.watermark}" if self.watermark else ""
        state = f", {self.state_rows:,} rows of state" if self.state_rows is not None else ""
        return f"{batch}, {known}{speed}{watermark}{state}"


def stream_status(state: StreamState, running: str | None) -> StreamStatus:
    """Return the status of a stream."""
    noted, offset = _noted(state.folder), state.position()
    return StreamStatus(
        epoch=state.id.epoch,
        batch=state.finished if state.finished >= 0 else None,
        offsets=json.loads(offset) if offset else None,
        lag=state.lag.count,
        unit=state.lag.unit,
        lost=state.lag.lost,
        rows_per_second=noted.get("rows_per_second"),
        watermark=noted.get("watermark"),
        state_rows=noted.get("state_rows"),
        state_bytes=noted.get("state_bytes"),
        noted_at=noted.get("at"),
        last_error=noted.get("error"),
        running=running,
        problem=state.problem.message if state.problem else None,
        next=state.problem.next if state.problem else None,
        checkpoint=state.checkpoint_folder,
    )


def stream_batches(state: StreamState, target: str) -> tuple[int, int]:
    """Return how many batches of a stream a target has, and how many of the batches that were begun it lacks."""
    done = state.batches.get(target, -1) + 1
    begun = state.checkpoint.begun + 1 if state.checkpoint else 0
    return done, max(begun - done, 0)


def _noted(folder: str) -> Mapping[str, Any]:
    """Return what the last query of a stream noted of its progress; it is for people, and may be missing."""
    with suppress(OSError, ValueError):
        found = json.loads(storage(folder).read(PROGRESS))
        return found if isinstance(found, dict) else {}
    return {}
