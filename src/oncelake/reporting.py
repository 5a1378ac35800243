"""What `status` and `history` say: where targets stand and who wrote what, from their own logs, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.contracts import Pattern
from oncelake.identity import Whole, parse_slice
from oncelake.intervals import Interval, instant_text, subtract
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
    done, gaps = _done(pipeline, pattern, log, now)
    whole = _whole_done(pipeline, pattern, log)
    grid = pipeline.grid
    return Standing(
        pipeline=pipeline.name,
        target=pattern.target,
        pattern=pattern.kind,
        every=grid.every if grid else None,
        done=sum(map(grid.count, done)) if grid else int(whole),
        missing=sum(map(grid.count, gaps)) if grid else int(not whole),
        ranges=tuple(done),
        gaps=tuple(gaps),
        version=log.version if log else None,
        last=log.last_of(pipeline.name, pattern.target) if log else None,
        warnings=_warnings(pattern, log),
    )


def _done(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, now: datetime
) -> tuple[list[Interval], list[Interval]]:
    """What is done of all that is due, and what is not."""
    if pipeline.grid is None or pipeline.start is None or (over := pipeline.grid.floor(now)) <= pipeline.start:
        return [], []
    due = Interval(pipeline.start, over, pipeline.grid.zone)
    recorded = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid) if log else []
    gaps = subtract([due], recorded)
    return subtract([due], gaps), gaps


def _whole_done(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> bool:
    return pipeline.grid is None and log is not None and log.done(pattern.marker(pipeline.name, Whole(), 1))


def _warnings(pattern: Pattern, log: TableLog | None) -> tuple[str, ...]:
    retention = (log.metadata.get("configuration") or {}).get(_MARKER_RETENTION) if log else None
    if retention is None:
        return ()
    return (
        f"{pattern.target} forgets markers after {retention} ({_MARKER_RETENTION}): a rerun after that writes twice",
    )
