"""Whether what is done was made from other inputs, or by other code, than there are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from oncelake.declare.code_fingerprint import code_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog
from oncelake.errors import OncelakeError
from oncelake.model.contracts import Log, Pattern, Reading, SourceStats
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Interval, instant_text, subtract
from oncelake.model.slices import Slice, Whole
from oncelake.model.work import InputSize
from oncelake.planning.decisions import StalePart, late
from oncelake.storage.paths import Address


def reading_of(pipeline: Pipeline, slice_: Slice, address: Address) -> Reading:
    """What the sources of a pipeline are asked to read."""
    return Reading(pipeline.name, slice_, pipeline.grid, address, pipeline.where)


class Sights:
    """What the sources of pipelines show of themselves, each looked at once."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._seen: dict[str, dict[str, SourceStats]] = {}

    def of(self, pipeline: Pipeline) -> dict[str, SourceStats]:
        """The sources of a pipeline that are read by interval."""
        if pipeline.name not in self._seen:
            reading = reading_of(pipeline, Whole(), self.address)
            timed = {name: source for name, source in pipeline.reads.items() if source.by_interval}
            seen = self._seen[pipeline.name] = {}
            for name, source in timed.items():
                with suppress(OncelakeError):  # what cannot be looked at cannot be read either, and the run will say so
                    seen[name] = source.stats(reading)
        return self._seen[pipeline.name]

    def estimate(self, pipeline: Pipeline, interval: Interval) -> InputSize:
        """How much a pipeline would read for an interval: unknown as soon as one of its sources does not know."""
        sizes = [sight.estimate(interval) for sight in self.of(pipeline).values()]
        return InputSize(_sum([size.bytes for size in sizes]), _sum([size.rows for size in sizes]))


class Staleness:
    """Whether what is done was made from other inputs, or by other code, than there are now."""

    def __init__(self, logs: Mapping[str, Log | None], sights: Sights, everything: bool) -> None:
        self.logs, self.sights, self.everything = logs, sights, everything
        self.code = cache(code_fingerprint)

    def parts(self, pipeline: Pipeline, pattern: Pattern, coverage: Sequence[Coverage]) -> list[StalePart]:
        """The parts of what is done that are stale, and why, in the order of time."""
        log = self.logs.get(pattern.target)
        if not isinstance(log, TableLog):
            return []
        facts = self._facts(pipeline, log, coverage)
        return [
            part
            for covered in coverage
            if covered.name in facts
            for part in self._parts(pipeline, covered, facts[covered.name])
        ]

    def _facts(
        self, pipeline: Pipeline, log: TableLog, coverage: Sequence[Coverage]
    ) -> Mapping[str, Mapping[str, Any]]:
        """What the commits of works say of their making: of the newest commits, and of every work that may have to be redone."""
        found: dict[str, Mapping[str, Any]] = {
            name: entry.facts for entry in reversed(log.newest()) for name in entry.markers
        }
        for covered in coverage if self.everything else _late(pipeline, coverage):
            if covered.name not in found and (commit := log.commit(covered.name)):
                found[covered.name] = commit.facts
        return found

    def _parts(self, pipeline: Pipeline, covered: Coverage, facts: Mapping[str, Any]) -> Iterable[StalePart]:
        """The stale parts of one layer."""
        made_by, now = facts.get("code"), self.code(pipeline.function)
        if made_by and now and made_by != now:
            return [StalePart(covered.start, covered.end, "its code changed")]
        return self._changed(pipeline, covered.interval, facts.get("pins") or {})

    def _changed(self, pipeline: Pipeline, interval: Interval, pins: Mapping[str, Any]) -> Iterator[StalePart]:
        """The cells of an interval for which something that is read has changed since the pins, in the order of time."""
        assert pipeline.grid is not None
        left, found = [interval], []
        for name, sight in self.sights.of(pipeline).items():
            for changed, why in sight.changed(interval, pins[name]) if name in pins else ():
                cells = [pipeline.grid.around(changed)]
                found += [(part, why) for part in subtract(left, subtract(left, cells))]
                left = subtract(left, cells)
        for part, why in sorted(found):
            yield StalePart(instant_text(part.start), instant_text(part.end), why)


def _late(pipeline: Pipeline, coverage: Sequence[Coverage]) -> list[Coverage]:
    """The works that are redone by themselves when they become stale."""
    if pipeline.lookback is None or not coverage:
        return []
    until = coverage[-1].interval.end
    return [covered for covered in coverage if late(pipeline, covered.end, until)]


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None
