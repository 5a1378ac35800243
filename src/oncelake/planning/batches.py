"""Plan a pipeline that is driven by arrivals: numbered batches of a stream, in their order.

Delta's high-water rule fits them: the marker of a stream has the number of the last batch that was committed, so that a
restart skips what is done and goes on with the batch that is not. The numbers are frozen before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import OncelakeError
from oncelake.model.arrivals import Waiting, WaitingBatch
from oncelake.model.contracts import Lake, Log, Pattern, Reading
from oncelake.model.intervals import Interval
from oncelake.model.slices import Batch, Whole, parse_slice
from oncelake.model.work import DONE, InputSize, Plan, Planned, Report, Work


def plan_waiting(pipeline: Pipeline, waiting: Waiting, logs: Mapping[str, Log | None]) -> Iterator[Planned]:
    """Return the works of the batches that wait: a target that has a batch skips it, the others write it."""
    if waiting.problem is not None:
        following = Batch(waiting.stream, next_number(pipeline, waiting.stream, logs))
        for item in _items(pipeline, following, logs):
            yield replace(item, action="wait", why=waiting.problem.message, refusal=waiting.problem)
    for batch in waiting.batches:
        yield from _items(pipeline, Batch(waiting.stream, batch.number), logs, batch)


def plan_batches(pipeline: Pipeline, batches: Sequence[Batch], logs: Mapping[str, Log | None]) -> Iterator[Planned]:
    """Return the works of frozen batches, oldest first."""
    for batch in sorted(batches, key=lambda batch: batch.number):
        yield from _items(pipeline, batch, logs)


def freeze_arrivals(plan: Plan, pipelines: Mapping[str, Pipeline], lake: Lake) -> Plan:
    """Return a plan whose batches are frozen: what has arrived by now, which may be more, or less if others took it."""
    works: list[Planned] = []
    for scope in plan.pipelines:
        pipeline = pipelines[scope.pipeline]
        planned = [item for item in plan.works if item.work.pipeline == pipeline.name]
        works += planned if pipeline.arrival is None else _frozen(pipeline, planned, lake, scope.span, plan)
    return Plan(plan.pipelines, tuple(works), plan.notes)


def _frozen(
    pipeline: Pipeline, planned: Sequence[Planned], lake: Lake, span: Interval | None, plan: Plan
) -> list[Planned]:
    logs = {target: lake.table(target).log() for target in pipeline.writes_tables}
    if not planned:
        _settle(pipeline, logs, lake)  # a run that was killed after its commits left that
        return []
    count = len(planned) // len(pipeline.writes)
    waiting = _freeze(pipeline, logs, arrival_reading(pipeline, lake, span), plan.frozen_only)
    waiting = replace(waiting, batches=waiting.batches[:count]) if plan.limited else waiting
    return list(plan_waiting(pipeline, waiting, logs))


def waiting_now(
    pipeline: Pipeline,
    logs: Mapping[str, Log | None],
    lake: Lake,
    span: Interval | None = None,
    frozen_only: bool = False,
) -> Waiting:
    """Return what waits for a pipeline; what cannot be looked at is said, and stops no other pipeline."""
    assert pipeline.arrival is not None
    look = pipeline.arrival.frozen if frozen_only else pipeline.arrival.waiting
    try:
        return look(arrival_reading(pipeline, lake, span), last_batch(pipeline, logs))
    except OncelakeError as error:
        return Waiting(pipeline.arrival.stream, notes=(error.message,), problem=error)


def _freeze(pipeline: Pipeline, logs: Mapping[str, Log | None], reading: Reading, frozen_only: bool) -> Waiting:
    assert pipeline.arrival is not None
    freeze = pipeline.arrival.frozen if frozen_only else pipeline.arrival.freeze
    try:
        _settle(pipeline, logs, reading.lake)
        return freeze(reading, last_batch(pipeline, logs))
    except OncelakeError as error:
        return Waiting(pipeline.arrival.stream, problem=error)


def settle_arrivals(report: Report, pipelines: Mapping[str, Pipeline], lake: Lake) -> None:
    """Record what became of the files of committed batches. A run that was killed before leaves that to the next one."""
    for name in {outcome.pipeline for outcome in report.works if isinstance(outcome.work.slice, Batch)}:
        _settle(
            pipelines[name], {target: lake.table(target).last_log() for target in pipelines[name].writes_tables}, lake
        )


def _settle(pipeline: Pipeline, logs: Mapping[str, Log | None], lake: Lake) -> None:
    done = last_batch(pipeline, logs)
    if pipeline.arrival is None or done is None:
        return
    facts: dict[int, Mapping[str, Any]] = {}
    for pattern in pipeline.writes:
        log = logs.get(pattern.target)
        stream = pattern.marker(pipeline.name, Batch(pipeline.arrival.stream, 0), 1).app_id
        for app_id, each in log.newest_facts() if log else ():
            slice_ = parse_slice(each["slice"]) if app_id == stream and "slice" in each else None
            if isinstance(slice_, Batch) and slice_.number <= done:
                # Where one target was read again and another was not, the files of the latter count: they may be older.
                facts[slice_.number] = facts.get(slice_.number, each) if each.get("redo") else each
    pipeline.arrival.settle(arrival_reading(pipeline, lake), facts)


def arrival_reading(pipeline: Pipeline, lake: Lake, span: Interval | None = None) -> Reading:
    """Return what the source that drives a pipeline is asked about its backlog: all, or what was modified in a span."""
    return Reading(pipeline.name, span or Whole(), None, lake, pipeline.where, pipeline.formerly or (), pipeline.writes)


def last_batch(pipeline: Pipeline, logs: Mapping[str, Log | None]) -> int | None:
    """Return the last batch that every target has; None if one of them has none.

    A batch that another commit overtook must be applied once more; a kill may have left that to the next run.
    """
    stream = pipeline.arrival.stream if pipeline.arrival else ""
    known = []
    for pattern, number in zip(pipeline.writes, _recorded(pipeline, stream, logs), strict=True):
        log, app_id = logs.get(pattern.target), pattern.marker(pipeline.name, Batch(stream, 0), 1).app_id
        overtaken = log is not None and number is not None and log.overtaken_version(app_id) is not None
        known += [number - overtaken] if number is not None and number >= overtaken else []
    return min(known) if len(known) == len(pipeline.writes) else None


def next_number(pipeline: Pipeline, stream: str, logs: Mapping[str, Log | None]) -> int:
    """Return the number of the next batch to freeze: after the last one that any target has."""
    return max((number + 1 for number in _recorded(pipeline, stream, logs) if number is not None), default=0)


def _recorded(pipeline: Pipeline, stream: str, logs: Mapping[str, Log | None]) -> list[int | None]:
    """Return the last batch of each target."""
    found: list[int | None] = []
    for pattern in pipeline.writes:
        log, marker = logs.get(pattern.target), pattern.marker(pipeline.name, Batch(stream, 0), 1)
        found.append(log.recorded(marker.app_id) if log else None)
    return found


def _items(
    pipeline: Pipeline, batch: Batch, logs: Mapping[str, Log | None], waiting: WaitingBatch | None = None
) -> Iterator[Planned]:
    for pattern in pipeline.writes:
        yield _item(pipeline, pattern, batch, logs.get(pattern.target), waiting)


def _item(pipeline: Pipeline, pattern: Pattern, batch: Batch, log: Log | None, waiting: WaitingBatch | None) -> Planned:
    work = Work(pipeline.name, pattern.target, batch, 1, pattern.marker(pipeline.name, batch, 1))
    size = InputSize(waiting.bytes if waiting else None)
    if log is not None and log.done(work.marker) and not _is_overtaken(work, log):
        return Planned(work, "skip", "done", DONE, size)
    if waiting is None:
        return Planned(work, "run", "not done yet", size=size)
    state = "frozen and not done yet" if waiting.frozen else "new"
    files = "1 file" if waiting.files == 1 else f"{waiting.files:,} files"
    why = ", ".join(filter(None, (files, f"{waiting.bytes:,} bytes", state, waiting.reading)))
    return Planned(work, "run", why, size=size)


def _is_overtaken(work: Work, log: Log) -> bool:
    """Return whether a batch is the last one of its stream, and another commit overtook it: it is applied once more."""
    app_id = work.marker.app_id
    return log.recorded(app_id) == work.marker.version and log.overtaken_version(app_id) is not None
