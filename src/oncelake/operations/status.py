"""The status of targets: what is done, missing, stale, failed or running, from their own logs, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog
from oncelake.errors import Retry
from oncelake.errors.base import all_errors
from oncelake.model.arrivals import Waiting
from oncelake.model.contracts import Pattern
from oncelake.model.coverage import coalesce
from oncelake.model.intervals import Interval, instant_text, merge, parse_interval, subtract
from oncelake.model.slices import Batch, Whole
from oncelake.model.work import RESTATED, STALE
from oncelake.operations.external_changes import external_changes
from oncelake.operations.stream_status import StreamStatus, stream_batches, stream_status
from oncelake.planning.decisions import Decision, Stale, decide
from oncelake.planning.notes import declaration_notes
from oncelake.planning.streams import StreamState
from oncelake.planning.whole import stale_code
from oncelake.planning.writers import Identity, writer_notes

# Before the next command in the text of an error.
_NEXT = "\n  next: "
_MARKER_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class Failure:
    """A work whose last attempt failed and that is not done since, and the next command."""

    slice: str
    code: str | None
    problem: str
    next: str


@dataclass(frozen=True)
class Backlog:
    """What waits for a pipeline that is driven by arrivals, and its last batch."""

    files: int
    bytes: int
    batches: int
    last_batch: int | None
    last_files: int | None
    last_rows: int | None
    last_quarantined: int | None


@dataclass(frozen=True)
class StatusInputs:
    """What is known of a lake besides its logs: the current writers, the failures, what is stale, and warnings for all."""

    running: Mapping[str, str]
    failed: Sequence[Mapping[str, Any]]
    stale: Stale
    identity: Identity
    source_notes: Callable[[Pipeline], list[str]] = lambda _: []
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class TargetStatus:
    """The status of one target of one pipeline."""

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
    stale: tuple[tuple[Interval | Whole, str], ...] = ()
    failed: tuple[Failure, ...] = ()
    running: str | None = None
    warnings: tuple[str, ...] = ()
    backlog: Backlog | None = None
    stream: StreamStatus | None = None

    def document(self) -> dict[str, Any]:
        """Return the status as `status --json` prints it."""
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
            "backlog": vars(self.backlog).copy() if self.backlog else None,
            "stream": vars(self.stream).copy() if self.stream else None,
        }


def target_status(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, inputs: StatusInputs, now: datetime
) -> TargetStatus:
    """Return the status of a target at a moment."""
    done, gaps = _done(pipeline, pattern, log, now)
    whole = _whole_done(pipeline, pattern, log)
    grid = pipeline.grid
    decisions = _decisions(pipeline, pattern, log, inputs, now)
    pending = tuple(interval for interval, decision in decisions if decision.cause == RESTATED)
    last = log.last_of(pipeline.name, pattern.target) if log else None
    backlog = _backlog(pipeline, pattern, log, inputs.waiting)
    stream = inputs.streams.get(pipeline.name)
    batches = stream_batches(stream, pattern.target) if stream else _arrived(backlog) if backlog else None
    return TargetStatus(
        pipeline=pipeline.name,
        target=pattern.target,
        pattern=pattern.kind,
        every=grid.every if grid else None,
        done=sum(map(grid.count, done)) if grid else batches[0] if batches else int(whole),
        missing=sum(map(grid.count, gaps)) if grid else batches[1] if batches else int(not whole),
        ranges=tuple(done),
        gaps=tuple(gaps),
        version=log.version if log else None,
        last=last,
        pending=pending,
        stale=(
            *((interval, decision.why) for interval, decision in decisions if decision.cause == STALE),
            *_stale_whole(pipeline, pattern, log),
        ),
        failed=_unblocked_by_first(pipeline, list(_failures(pipeline, pattern, [*gaps, *pending], last, inputs))),
        running=inputs.running.get(pattern.target),
        warnings=(
            *_warnings(pipeline, pattern, log, inputs.identity),
            *inputs.source_notes(pipeline),
            *(inputs.waiting[pipeline.name].notes if pipeline.name in inputs.waiting else ()),
            *(stream.notes if stream else ()),
            *inputs.warnings,
        ),
        backlog=backlog,
        stream=stream_status(stream, inputs.running.get(f"stream {pipeline.name}")) if stream else None,
    )


def _backlog(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, waiting: Mapping[str, Waiting]
) -> Backlog | None:
    if pipeline.arrival is None or pipeline.name not in waiting:
        return None
    app_id = pattern.marker(pipeline.name, Batch(pipeline.arrival.stream, 0), 1).app_id
    last, commit = (log.recorded(app_id), log.commit(app_id)) if log else (None, None)
    batches = [batch for batch in waiting[pipeline.name].batches if last is None or batch.number > last]
    facts = commit.facts if commit else {}
    files, size = sum(batch.files for batch in batches), sum(batch.bytes for batch in batches)
    counts = (facts.get(name) for name in ("files", "rows_read", "quarantined"))
    return Backlog(files, size, len(batches), last, *counts)


def _arrived(backlog: Backlog) -> tuple[int, int]:
    """Return how many batches of files a target has, and how many wait."""
    return (0 if backlog.last_batch is None else backlog.last_batch + 1), backlog.batches


def _decisions(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, inputs: StatusInputs, now: datetime
) -> list[tuple[Interval, Decision]]:
    """Return the done intervals that are to be restated or are stale, each with its decision."""
    if log is None or pipeline.grid is None or pipeline.start is None or pipeline.grid.floor(now) <= pipeline.start:
        return []
    span = Interval(pipeline.start, pipeline.grid.floor(now), pipeline.grid.zone)
    decisions = decide(pipeline, pattern, span, log, inputs.stale, single_works=0)
    return [
        (parse_interval(f"{decision.start}..{decision.end}", span.zone), decision)
        for decision in decisions
        if decision.cause in (RESTATED, STALE)
    ]


def _failures(
    pipeline: Pipeline, pattern: Pattern, to_do: list[Interval], last: datetime | None, inputs: StatusInputs
) -> Iterator[Failure]:
    """Yield the works whose last attempt failed and that are not done since."""
    for entry in inputs.failed:
        if (entry["pipeline"], entry["target"]) != (pipeline.name, pattern.target):
            continue
        if entry["start"]:
            interval = parse_interval(f"{entry['start']}..{entry['end']}")
            undone = any(interval.overlaps(each) for each in to_do)
        else:
            undone = last is None or last < entry["at"]
        if undone:
            problem = (entry["error"] or entry["outcome"]).splitlines()[0]
            yield Failure(entry["slice"], entry["code"], problem, _next(entry, pipeline))


def _unblocked_by_first(pipeline: Pipeline, failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Return failures; batches that a failed one holds back have its next command, because theirs cannot help."""
    blocked = {error.code for error in all_errors() if error.outcome == "blocked"}
    first = next((failure for failure in failures if failure.code not in blocked), None)
    if first is None or (pipeline.arrival is None and pipeline.stream is None):
        return tuple(failures)
    return tuple(replace(each, next=first.next) if each.code in blocked else each for each in failures)


def _next(entry: Mapping[str, Any], pipeline: Pipeline) -> str:
    """Return the next command: a retry, or, if that is useless, what the error itself recommends."""
    _, found, recommended = (entry["error"] or "").rpartition(_NEXT)
    useless = entry["code"] in {error.code for error in all_errors() if error.retry is Retry.USELESS}
    return recommended if found and useless else f"oncelake run {pipeline.name} --failed"


def _done(
    pipeline: Pipeline, pattern: Pattern, log: TableLog | None, now: datetime
) -> tuple[list[Interval], list[Interval]]:
    """Return the due intervals that are done, and those that are not."""
    if pipeline.grid is None or pipeline.start is None or (over := pipeline.grid.floor(now)) <= pipeline.start:
        return [], []
    due = Interval(pipeline.start, over, pipeline.grid.zone)
    recorded = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid) if log else []
    gaps = merge(map(pipeline.grid.around, subtract([due], coalesce(recorded))))
    return subtract([due], gaps), gaps


def _whole_done(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> bool:
    return pipeline.grid is None and log is not None and log.done(pattern.marker(pipeline.name, Whole(), 1))


def _stale_whole(pipeline: Pipeline, pattern: Pattern, log: TableLog | None) -> Iterator[tuple[Whole, str]]:
    """Yield the whole of a pipeline without intervals, if its code changed since; `run` redoes it when inputs change."""
    if log is None or not _whole_done(pipeline, pattern, log):
        return
    why = stale_code(pipeline, pattern, log.commit(pattern.marker(pipeline.name, Whole(), 1).app_id))
    if why:
        yield Whole(), f"done, but stale: {why}"


def _warnings(pipeline: Pipeline, pattern: Pattern, log: TableLog | None, identity: Identity) -> tuple[str, ...]:
    if log is None:
        return ()
    warnings = [f"{pattern.target}: {change}" for change in external_changes(pipeline, pattern, log)]
    warnings += declaration_notes(pipeline, pattern, log)
    warnings += writer_notes(pipeline, pattern, log, identity)
    retention = (log.metadata.get("configuration") or {}).get(_MARKER_RETENTION)
    if retention is not None:
        expiry = f"markers of {pattern.target} expire after {retention} ({_MARKER_RETENTION})"
        warnings.append(f"{expiry}: a rerun after that writes its rows twice")
    return tuple(warnings)
