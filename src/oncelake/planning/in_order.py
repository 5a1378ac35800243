"""Keep the order of time where the result depends on it: a slice waits for earlier ones, and an older one is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import EarlierNotDone, OncelakeError, OutOfOrder
from oncelake.model.contracts import Log, Pattern
from oncelake.model.intervals import Interval, merge, parse_interval, subtract
from oncelake.model.work import Planned
from oncelake.planning.decisions import decide


def is_ordered(pipeline: Pipeline) -> bool:
    """Return whether the result of a target depends on the order of slices."""
    return pipeline.grid is not None and any(pattern.ordered for pattern in pipeline.writes)


def keep_order(
    pipeline: Pipeline, items: Iterable[Planned], logs: Mapping[str, Log | None], now: datetime
) -> Iterator[Planned]:
    """Return the works of a pipeline, oldest first; those that must wait, or come too late, with the reason."""
    ordered = [pattern for pattern in pipeline.writes if pattern.ordered]
    targets = [_Target(pipeline, pattern, logs.get(pattern.target), now) for pattern in ordered]
    for _, group in groupby(items, key=lambda item: item.work.slice):
        works = list(group)
        refusal = next((found for target in targets if (found := target.refusal(works))), None)
        for target in targets if refusal is None else ():
            target.advance(works)
        yield from (_refuse(item, refusal) if refusal and item.action == "run" else item for item in works)


def out_of_order(pipeline: Pipeline, pattern: Pattern, slice_: Interval, done: Sequence[Interval]) -> OutOfOrder | None:
    """Return the error of a slice if something newer is done."""
    newer = next((part for part in done if part.end > slice_.end), None)
    if newer is None:
        return None
    facts = {"pipeline": pipeline.name, "where": pipeline.where, "target": pattern.target, "slice": str(slice_)}
    return OutOfOrder(newer=str(Interval(max(newer.start, slice_.end), newer.end, slice_.zone)), **facts)


class _Target:
    """What is done of a target and what is due and missing, as far as a plan has come."""

    def __init__(self, pipeline: Pipeline, pattern: Pattern, log: Log | None, now: datetime) -> None:
        assert pipeline.grid is not None
        assert pipeline.start is not None
        self.pipeline, self.pattern = pipeline, pattern
        grid, start = pipeline.grid, pipeline.start
        covered = pattern.done(log, pipeline.name, start, grid) if log else []
        ends = [grid.floor(now), *(grid.around(part.interval).end for part in covered[-1:])]
        due = Interval(start, max(ends), grid.zone)
        found = decide(pipeline, pattern, due, log, lambda *_: [], single_works=0)
        # Not what is requested again: its rows may be gone.
        done = [each for each in found if each.action == "skip"]
        self.done = merge(parse_interval(f"{each.start}..{each.end}", grid.zone) for each in done)
        self.missing = subtract([due], self.done)

    def refusal(self, works: Sequence[Planned]) -> OncelakeError | None:
        """Return why the works of a slice cannot run now, if this target is one of those to write."""
        slice_ = self._to_run(works)
        if slice_ is None:
            return None
        if error := out_of_order(self.pipeline, self.pattern, slice_, self.done):
            return error
        if not self.missing or self.missing[0].start >= slice_.start:
            return None
        assert self.pipeline.grid is not None
        earlier = str(self.pipeline.grid.cell(self.missing[0].start))
        return EarlierNotDone(pipeline=self.pipeline.name, target=self.pattern.target, earlier=earlier)

    def advance(self, works: Sequence[Planned]) -> None:
        """Take what a plan does for done: the next slice need not wait for it."""
        if slice_ := self._to_run(works):
            while self.missing and self.missing[0].end <= slice_.end:
                self.missing.pop(0)
            if self.missing and self.missing[0].start < slice_.end:
                self.missing[0] = Interval(slice_.end, self.missing[0].end, slice_.zone)

    def _to_run(self, works: Sequence[Planned]) -> Interval | None:
        to_run = (item.work.interval for item in works if item.target == self.pattern.target and item.action == "run")
        return next(to_run, None)


def _refuse(item: Planned, refusal: OncelakeError) -> Planned:
    return replace(item, action="wait", why=refusal.message, refusal=refusal)
