"""What would happen with each stretch of a target's time, by what its log says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from oncelake.contracts import Log, Pattern
from oncelake.intervals import Interval, Layer, clipped, instant_text, joined, overlaid, subtract, topmost
from oncelake.pipelines import Pipeline
from oncelake.work import ASKED, DONE, MISSING, STALE, Request

_ABOVE_ALL = 2**62
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


class Part(NamedTuple):
    """A part of what is done that is stale, and why."""

    start: str
    end: str
    why: str


Stale = Callable[[Pipeline, Pattern, Layer], list[Part]]


class Fate(NamedTuple):
    """What would happen with a stretch of time of one target, and why. What is done has the marker that did it."""

    start: str
    end: str
    action: str
    generation: int
    why: str
    cause: str = MISSING
    marked: str | None = None


def fates(
    pipeline: Pipeline, pattern: Pattern, span: Interval, log: Log | None, stale: Stale, request: Request
) -> list[Fate]:
    """What would happen with a target all over a span, in the order of time."""
    if log is None or pipeline.grid is None or pipeline.start is None:
        return [Fate(instant_text(span.start), instant_text(span.end), "run", 1, "not done yet")]
    done = clipped(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid), span)
    asked = clipped(log.layers(pipeline.name, pattern.target, asked=True), span)
    # An interval that is done in part is not done.
    gaps = [pipeline.grid.around(gap) for gap in subtract([span], joined(done))]
    blank = [Layer(instant_text(gap.start), instant_text(gap.end), _ABOVE_ALL, "") for gap in gaps]
    found = []
    for start, end, (layer, ask) in overlaid(topmost([*done, *blank]), asked):
        assert layer is not None
        wanted = ask.height if ask else 1
        if not layer.name:
            found.append(Fate(start, end, "run", wanted, "not done yet"))
        elif not layer.height:
            found.append(Fate(start, end, "skip", 1, "a later interval's reload is in place", DONE, layer.name))
        elif wanted > layer.height:
            found.append(Fate(start, end, "run", wanted, f"restated: generation {wanted} was asked for", ASKED))
        else:
            done_here = layer._replace(start=start, end=end)
            found += _done(
                pipeline, pattern, done_here, stale, lambda end: request.only == STALE or _late(pipeline, end, span)
            )
    return found


def _done(
    pipeline: Pipeline, pattern: Pattern, layer: Layer, stale: Stale, redone: Callable[[str], bool]
) -> Iterator[Fate]:
    """What would happen with a stretch that is done: nothing, but to the parts of it that are stale."""
    for start, end, (done, part) in overlaid([layer], stale(pipeline, pattern, layer)):
        assert done is not None
        if not isinstance(part, Part):
            yield Fate(start, end, "skip", layer.height, "done", DONE, layer.name)
        elif pattern.restates and redone(end):
            yield Fate(start, end, "run", layer.height + 1, f"stale: {part.why}", STALE)
        else:
            cannot = "" if pattern.restates else f"; {pattern.kind} cannot be restated"
            yield Fate(start, end, "skip", layer.height, f"done, but stale: {part.why}{cannot}", STALE, layer.name)


def _late(pipeline: Pipeline, end: str, span: Interval) -> bool:
    """Whether late rows are taken up by themselves in a stretch of the span that ends there."""
    if pipeline.lookback is None:
        return False
    return pipeline.lookback > span.end - _YEAR_ONE or end > instant_text(span.end - pipeline.lookback)
