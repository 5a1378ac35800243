"""Which works are stale: done, but their inputs (late data, corrections) or their code changed since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from oncelake.declare.code_fingerprint import pipeline_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.errors import OncelakeError
from oncelake.model.contracts import Lake, Log, Pattern, Reading, SourceStats
from oncelake.model.coverage import Coverage, coalesce
from oncelake.model.intervals import Interval, instant_text, parse_interval, subtract
from oncelake.model.slices import Slice, Whole
from oncelake.model.work import InputSize
from oncelake.planning.decisions import StalePart, is_late


def reading_of(pipeline: Pipeline, slice_: Slice, lake: Lake) -> Reading:
    """Return what the sources of a pipeline are asked to read."""
    return Reading(pipeline.name, slice_, pipeline.grid, lake, pipeline.where, pipeline.formerly or ())


class Sources:
    """Statistics of the sources of pipelines, each looked up once."""

    def __init__(self, lake: Lake) -> None:
        """Nothing is looked up before it is asked for."""
        self.lake = lake
        self._stats: dict[str, dict[str, SourceStats]] = {}

    def stats(self, pipeline: Pipeline) -> dict[str, SourceStats]:
        """Return the statistics of the sources that a pipeline reads by interval."""
        if pipeline.name not in self._stats:
            reading = reading_of(pipeline, Whole(), self.lake)
            by_interval = {name: source for name, source in pipeline.reads.items() if source.by_interval}
            found = self._stats[pipeline.name] = {}
            for name, source in by_interval.items():
                with suppress(OncelakeError):  # what cannot be looked at cannot be read either, and the run will say so
                    found[name] = source.stats(reading)
        return self._stats[pipeline.name]

    def notes(self, pipeline: Pipeline, quick: bool = False) -> list[str]:
        """Return what the sources of a pipeline have to say, such as rows that belong to no interval."""
        return [note for stats in self.stats(pipeline).values() for note in stats.notes(quick)]

    def estimate(self, pipeline: Pipeline, interval: Interval) -> InputSize:
        """Return how much a pipeline would read for an interval: unknown as soon as one of its sources does not know."""
        sizes = [stats.estimate(interval) for stats in self.stats(pipeline).values()]
        return InputSize(_sum([size.bytes for size in sizes]), _sum([size.rows for size in sizes]))


class Staleness:
    """Whether what is done was made from other inputs, or by other code, than there are now."""

    def __init__(self, logs: Mapping[str, Log | None], sources: Sources, everything: bool) -> None:
        """Look at the newest works, at those within the lookback, or at `everything`."""
        self.logs, self.sources, self.everything = logs, sources, everything

    def parts(self, pipeline: Pipeline, pattern: Pattern, coverage: Sequence[Coverage]) -> list[StalePart]:
        """Return the parts of what is done that are stale, and why, in the order of time."""
        log = self.logs.get(pattern.target)
        if log is None:
            return []
        facts, code = self._facts(pipeline, log, coverage), pipeline_fingerprint(pipeline, pattern)
        known = [covered for covered in coverage if facts.get(covered.name) is not None]
        gone = [covered for covered in coverage if covered.name in facts and facts[covered.name] is None]
        for stats in self.sources.stats(pipeline).values():
            stats.look_ahead(covered.interval for covered in known)
        found = [part for covered in known for part in self._parts(pipeline, code, covered, facts[covered.name] or {})]
        return sorted([*found, *self._gone(pipeline, coverage, gone)]) if gone else found

    def _gone(self, pipeline: Pipeline, coverage: Sequence[Coverage], gone: Sequence[Coverage]) -> Iterator[StalePart]:
        """Yield the works whose commit is gone: one by one if they may be reprocessed; else, there may be many, as few ranges."""
        if not self.sources.stats(pipeline):  # only what is read by interval is compared
            return
        why = "its inputs may have changed: the log no longer has the commit that says which it read"
        single = set(gone) if self.everything else set(gone).intersection(_within_lookback(pipeline, coverage))
        yield from (StalePart(covered.start, covered.end, why) for covered in single)
        for part in coalesce(covered for covered in gone if covered not in single):
            yield StalePart(instant_text(part.start), instant_text(part.end), why)

    def _facts(
        self, pipeline: Pipeline, log: Log, coverage: Sequence[Coverage]
    ) -> Mapping[str, Mapping[str, Any] | None]:
        """Return the facts of the newest works and of all that may have to be reprocessed; None where the commit is gone."""
        found = log.recent_facts(covered.name for covered in coverage)
        for covered in coverage if self.everything else _within_lookback(pipeline, coverage):
            if covered.name not in found:
                commit = log.commit(covered.name)
                found[covered.name] = commit.facts if commit else None
        return found

    def _parts(self, pipeline: Pipeline, code: str, covered: Coverage, facts: Mapping[str, Any]) -> Iterable[StalePart]:
        """Return the stale parts of one work: changed inputs first, because `run` may reprocess those."""
        changed = list(self._changed(pipeline, covered.interval, facts.get("pins") or {}))
        if not facts.get("code") or facts["code"] == code:
            return changed
        left = subtract([covered.interval], [parse_interval(f"{part.start}..{part.end}") for part in changed])
        why = "its code changed, or its declaration"
        rest = [StalePart(instant_text(part.start), instant_text(part.end), why, late=False) for part in left]
        return sorted([*changed, *rest])

    def _changed(self, pipeline: Pipeline, interval: Interval, pins: Mapping[str, Any]) -> Iterator[StalePart]:
        """Yield the cells of an interval for which something that is read has changed since the pins, in the order of time."""
        assert pipeline.grid is not None
        left, found = [interval], []
        for name, stats in self.sources.stats(pipeline).items():
            for changed, why in stats.changed(interval, pins[name]) if name in pins else ():
                cells = [pipeline.grid.around(changed)]
                found += [(part, why) for part in subtract(left, subtract(left, cells))]
                left = subtract(left, cells)
        for part, why in sorted(found):
            yield StalePart(instant_text(part.start), instant_text(part.end), why)


def _within_lookback(pipeline: Pipeline, coverage: Sequence[Coverage]) -> list[Coverage]:
    """Return the works that `run` reprocesses when late rows make them stale."""
    if pipeline.lookback is None or not coverage:
        return []
    until = coverage[-1].interval.end
    return [covered for covered in coverage if is_late(pipeline, covered.end, until)]


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None
