"""What `status` and `history` say: where targets stand and who wrote what, from their own logs, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog
from oncelake.model.contracts import Pattern
from oncelake.model.coverage import coalesce
from oncelake.model.intervals import Interval, instant_text, parse_interval, subtract
from oncelake.model.slices import Whole
from oncelake.model.work import RESTATED, STALE
from oncelake.operations.external_changes import external_changes
from oncelake.planning.decisions import Decision, Stale, decide

_MARKER_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class Failure:
    """A work that failed when it was last tried and is not done since, and what to type next."""

    slice: str
    code: str | None
    problem: str
    next: str


@dataclass(frozen=True)
class StatusInputs:
    """What is known of a lake beside its logs: who is writing what, what failed, and what is stale."""

    running: Mapping[str, str]
    failed: Sequence[Mapping[str, Any]]
    stale: Stale


@dataclass(frozen=True)
class TargetStatus:
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
    pending: tuple[Interval, ...] = ()
    stale: tuple[tuple[Interval, str], ...] = ()
    failed: tuple[Failure, ...] = ()
    running: str | None = None
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
            "pending": [str(interval) for interval in self.pending],
            "stale": [{"slice": str(interval), "why": why} for interval, why in self.stale],
            "failed": [vars(failure).copy() for failure in self.failed],
            "running": self.running,
            "warnings": list(self.warnings),
        }


def target_status(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, seen: StatusInputs, now: datetime
) -> TargetStatus:
    """Where a target stands at a moment."""
    done, gaps = _done(pipeline, pattern, log, now)
    whole = _whole_done(pipeline, pattern, log)
    grid = pipeline.grid
    found = _fates(pipeline, pattern, log, seen, now)
    pending = tuple(interval for interval, fate in found if fate.cause == RESTATED)
    last = log.last_of(pipeline.name, pattern.target) if log else None
    return TargetStatus(
        pipeline=pipeline.name,
        target=pattern.target,
        pattern=pattern.kind,
        every=grid.every if grid else None,
        done=sum(map(grid.count, done)) if grid else int(whole),
        missing=sum(map(grid.count, gaps)) if grid else int(not whole),
        ranges=tuple(done),
        gaps=tuple(gaps),
        version=log.version if log else None,
        last=last,
        pending=pending,
        stale=tuple((interval, fate.why) for interval, fate in found if fate.cause == STALE),
        failed=tuple(_failures(pipeline, pattern, [*gaps, *pending], last, seen)),
        running=seen.running.get(pattern.target),
        warnings=_warnings(pipeline, pattern, log),
    )


def _fates(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, seen: StatusInputs, now: datetime
) -> list[tuple[Interval, Decision]]:
    """What would happen with what is done: what was asked for again, and what is stale."""
    if log is None or pipeline.grid is None or pipeline.start is None or pipeline.grid.floor(now) <= pipeline.start:
        return []
    span = Interval(pipeline.start, pipeline.grid.floor(now), pipeline.grid.zone)
    found = decide(pipeline, pattern, span, log, seen.stale, single_works=0)
    told = [fate for fate in found if fate.cause in (RESTATED, STALE)]
    return [(parse_interval(f"{fate.start}..{fate.end}", span.zone), fate) for fate in told]


def _failures(
    pipeline: Pipeline, pattern: Pattern, to_do: list[Interval], last: datetime | None, seen: StatusInputs
) -> Iterator[Failure]:
    """What failed when it was last tried, and is not done since."""
    for entry in seen.failed:
        if (entry["pipeline"], entry["target"]) != (pipeline.name, pattern.target):
            continue
        if entry["start"]:
            interval = parse_interval(f"{entry['start']}..{entry['end']}")
            left = any(interval.overlaps(each) for each in to_do)
        else:
            left = last is None or last < entry["at"]
        if left:
            problem = (entry["error"] or entry["outcome"]).splitlines()[0]
            yield Failure(entry["slice"], entry["code"], problem, f"oncelake run {pipeline.name} --failed")


def _done(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, now: datetime
) -> tuple[list[Interval], list[Interval]]:
    """What is done of all that is due, and what is not."""
    if pipeline.grid is None or pipeline.start is None or (over := pipeline.grid.floor(now)) <= pipeline.start:
        return [], []
    due = Interval(pipeline.start, over, pipeline.grid.zone)
    recorded = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid) if log else []
    gaps = subtract([due], coalesce(recorded))
    return subtract([due], gaps), gaps


def _whole_done(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> bool:
    return pipeline.grid is None and log is not None and log.done(pattern.marker(pipeline.name, Whole(), 1))


def _warnings(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> tuple[str, ...]:
    if log is None:
        return ()
    found = [f"{pattern.target}: {change}" for change in external_changes(pipeline, pattern, log)]
    retention = (log.metadata.get("configuration") or {}).get(_MARKER_RETENTION)
    if retention is not None:
        forgets = f"{pattern.target} forgets markers after {retention} ({_MARKER_RETENTION})"
        found.append(f"{forgets}: a rerun after that writes twice")
    return tuple(found)
