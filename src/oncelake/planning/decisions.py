"""What would happen with each stretch of a target's time, by what its log says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.coverage import Coverage, align, clip, coalesce, resolve_overlaps
from oncelake.model.intervals import Interval, instant_text, subtract
from oncelake.model.work import DONE, MISSING, RESTATED, STALE

_ABOVE_ALL = 2**62
_BUNDLE = "several"
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


class StalePart(NamedTuple):
    """A part of what is done that is stale, and why."""

    start: str
    end: str
    why: str


Stale = Callable[[Pipeline, Pattern, Sequence[Coverage]], list[StalePart]]


class Manner(NamedTuple):
    """How fates are told: what says whether a work is stale, whether stale ones are redone, and how many works are told apart.

    More works than those are told as few ranges, of which no single commit is known.
    """

    stale: Stale
    redo: bool = False
    apart: int = 1000


class Decision(NamedTuple):
    """What would happen with a stretch of time of one target, and why. What is done has the marker that did it."""

    start: str
    end: str
    action: str
    generation: int
    why: str
    cause: str = MISSING
    app_id: str | None = None


def decide(pipeline: Pipeline, pattern: Pattern, span: Interval, log: Log | None, manner: Manner) -> list[Decision]:
    """What would happen with a target all over a span, in the order of time."""
    if log is None or pipeline.grid is None or pipeline.start is None:
        return [Decision(instant_text(span.start), instant_text(span.end), "run", 1, "not done yet")]
    done = clip(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid), span)
    requested = clip(log.coverage(pipeline.name, pattern.target, requested=True), span)
    parts = manner.stale(pipeline, pattern, done)
    told = _bundled(done) if len(done) > manner.apart else done
    # An interval that is done in part is not done.
    gaps = [pipeline.grid.around(gap) for gap in subtract([span], coalesce(told))]
    blank = [Coverage(instant_text(gap.start), instant_text(gap.end), _ABOVE_ALL, "") for gap in gaps]
    rows: tuple[Sequence[Any], ...] = (resolve_overlaps([*told, *blank]), requested, parts)
    return [
        _fate(
            covered._replace(start=start, end=end),
            ask,
            part,
            pattern,
            manner.redo or late(pipeline, end, span.end),
        )
        for start, end, (covered, ask, part) in align(*rows)
        if covered is not None
    ]


def _fate(covered: Coverage, ask: Coverage | None, part: StalePart | None, pattern: Pattern, redo: bool) -> Decision:
    """What would happen with a stretch of one kind: blank, done by a marker, asked for again, or stale."""
    wanted, app_id = ask.generation if ask else 1, None if covered.name == _BUNDLE else covered.name
    if not covered.name:
        return Decision(covered.start, covered.end, "run", wanted, "not done yet")
    if not covered.generation:
        return Decision(covered.start, covered.end, "skip", 1, "a later interval's reload is in place", DONE, app_id)
    if wanted > covered.generation:
        return Decision(
            covered.start, covered.end, "run", wanted, f"restated: generation {wanted} was asked for", RESTATED
        )
    if part is None:
        return Decision(covered.start, covered.end, "skip", covered.generation, "done", DONE, app_id)
    if pattern.restates and redo:
        return Decision(covered.start, covered.end, "run", covered.generation + 1, f"stale: {part.why}", STALE)
    cannot = "" if pattern.restates else f"; {pattern.kind} cannot be restated"
    return Decision(
        covered.start, covered.end, "skip", covered.generation, f"done, but stale: {part.why}{cannot}", STALE, app_id
    )


def _bundled(coverage: Sequence[Coverage]) -> list[Coverage]:
    """Neighbours of one generation as one: so many are not told one by one."""
    found: list[Coverage] = []
    first = last = coverage[0]
    for covered in coverage[1:]:
        if last.end != covered.start or last.generation != covered.generation:
            found.append(Coverage(first.start, last.end, first.generation, _BUNDLE))
            first = covered
        last = covered
    return [*found, Coverage(first.start, last.end, first.generation, _BUNDLE)]


def late(pipeline: Pipeline, end: str, until: datetime) -> bool:
    """Whether late rows are taken up by themselves in a stretch that ends there, of all up to a moment."""
    if pipeline.lookback is None:
        return False
    return pipeline.lookback > until - _YEAR_ONE or end > instant_text(until - pipeline.lookback)
