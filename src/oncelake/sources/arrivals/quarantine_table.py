"""Look at the quarantine of a pipeline that is driven by files, and change the state of what is in it. No JVM."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from oncelake.delta.quarantine import (
    DROPPED,
    QUARANTINED,
    RETRIED,
    change_quarantined,
    quarantined_rows,
    read_quarantined,
)
from oncelake.model.arrivals import QuarantinedRow
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.backlog import folder_of

__all__ = [
    "DROPPED",
    "QUARANTINED",
    "RETRIED",
    "change_state",
    "quarantine_path",
    "quarantined_rows",
    "read_quarantine",
]


def quarantine_path(reading: Reading) -> str:
    """Return the path of a pipeline's quarantine table."""
    return f"{folder_of(reading)}/quarantine"


def read_quarantine(reading: Reading, done: int | None) -> pa.Table | None:
    """Return what is in quarantine, of the batches that the targets have; None if nothing ever was."""
    return read_quarantined(quarantine_path(reading), done)


def change_state(reading: Reading, rows: Iterable[QuarantinedRow], state: str, retried_in: int | None = None) -> None:
    """Change the state of rows in quarantine, in one commit."""
    change_quarantined(quarantine_path(reading), rows, state, retried_in)
