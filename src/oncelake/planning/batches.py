"""Plan a pipeline that is driven by arrivals: numbered batches of a stream, in their order.

Delta's high-water rule fits them: the marker of a stream has the number of the last batch that was committed, so that a
restart skips what is done and goes on with the batch that is not. The numbers are frozen before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.slices import Batch
from oncelake.model.work import DONE, Planned, Work


def plan_batches(pipeline: Pipeline, batches: Sequence[Batch], logs: Mapping[str, Log | None]) -> Iterator[Planned]:
    """Return the works of frozen batches, oldest first: a target that has a batch skips it, the others write it."""
    for batch in sorted(batches, key=lambda batch: batch.number):
        for pattern in pipeline.writes:
            yield _item(pipeline, pattern, batch, logs.get(pattern.target))


def next_number(pipeline: Pipeline, stream: str, logs: Mapping[str, Log | None]) -> int:
    """Return the number of the next batch to freeze: after the last one that any target has."""
    markers = [pattern.marker(pipeline.name, Batch(stream, 0), 1) for pattern in pipeline.writes]
    known = [(logs.get(p.target), m.app_id) for p, m in zip(pipeline.writes, markers, strict=True)]
    recorded = [log.recorded(app_id) for log, app_id in known if log is not None]
    return max((number + 1 for number in recorded if number is not None), default=0)


def _item(pipeline: Pipeline, pattern: Pattern, batch: Batch, log: Log | None) -> Planned:
    work = Work(pipeline.name, pattern.target, batch, 1, pattern.marker(pipeline.name, batch, 1))
    if log is not None and log.done(work.marker):
        return Planned(work, "skip", "done", DONE)
    return Planned(work, "run", "not done yet")
