"""What `status` and `history` say: where targets stand and who wrote what, from their own logs, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.contracts import Pattern
from oncelake.identity import Whole, parse_slice
from oncelake.intervals import Interval, instant_text, merge, missing
from oncelake.lake.log import Entry, TableLog
from oncelake.pipelines import Pipeline
from oncelake.work import Rows

_MARKER_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class Standing:
    """Where one target of one pipeline stands."""

    pipeline: str
    target: str
    pattern: str
    every: str | None
    done: int
    missing: int
    ranges: tuple[Interval, ...]
    gaps: tuple[Interval, ...]
    version: int | None
    last: datetime | None
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The standing as `status --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "target": self.target,
            "pattern": self.pattern,
            "every": self.every,
            "done": self.done,
            "missing": self.missing,
            "ranges": [str(interval) for interval in self.ranges],
            "gaps": [str(interval) for interval in self.gaps],
            "version": self.version,
            "last": instant_text(self.last) if self.last else None,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Change:
    """One commit of a table: what it was, and which work of ours it did, if it did one."""

    version: int
    at: datetime | None
    operation: str
    rows: Rows
    facts: Mapping[str, Any]

    @property
    def slice(self) -> str | None:
        """The slice it wrote, as people read it."""
        return str(parse_slice(self.facts["slice"])) if "slice" in self.facts else None

    def document(self) -> dict[str, Any]:
        """The change as `history --json` prints it."""
        ours = {key: self.facts.get(key) for key in ("pipeline", "generation", "run", "pins", "code")}
        return {
            "version": self.version,
            "at": instant_text(self.at) if self.at else None,
            "operation": self.operation,
            "slice": self.slice,
            **ours,
            "rows": vars(self.rows).copy(),
        }


def change_of(entry: Entry) -> Change:
    """A commit of the log, as history tells it."""
    return Change(entry.version, entry.timestamp, entry.info.get("operation", "?"), entry.rows, entry.facts)


def standing_of(pipeline: Pipeline, pattern: Pattern, log: TableLog | None, now: datetime) -> Standing:
    """Where a target stands at a moment."""
    cells: list[Interval] = []
    if pipeline.grid is not None and pipeline.start is not None:
        cells = list(pipeline.grid.cells(pipeline.start, pipeline.grid.floor(now)))
    undone = _undone(pipeline, pattern, log, cells)
    whole = _whole_done(pipeline, pattern, log)
    done = len(cells) - len(undone) if cells else int(whole)
    left = set(undone)
    last = log.last_of(pipeline.name, pattern.target) if log else None
    return Standing(
        pipeline=pipeline.name,
        target=pattern.target,
        pattern=pattern.kind,
        every=pipeline.grid.every if pipeline.grid else None,
        done=done,
        missing=len(undone) if pipeline.grid else int(not whole),
        ranges=tuple(merge(cell for cell in cells if cell not in left)),
        gaps=tuple(merge(undone)),
        version=log.version if log else None,
        last=last,
        warnings=_warnings(pattern, log),
    )


def _undone(pipeline: Pipeline, pattern: Pattern, log: TableLog | None, cells: list[Interval]) -> list[Interval]:
    if log is None:
        return cells
    left = [cell for cell in cells if not log.done(pattern.marker(pipeline.name, cell, 1))]
    return missing(left, log.done_intervals(pipeline.name, pattern.target)) if left else []


def _whole_done(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> bool:
    return pipeline.grid is None and log is not None and log.done(pattern.marker(pipeline.name, Whole(), 1))


def _warnings(pattern: Pattern, log: TableLog | None) -> tuple[str, ...]:
    retention = (log.metadata.get("configuration") or {}).get(_MARKER_RETENTION) if log else None
    if retention is None:
        return ()
    return (
        f"{pattern.target} forgets markers after {retention} ({_MARKER_RETENTION}): a rerun after that writes twice",
    )
