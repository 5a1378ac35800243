"""What would happen with each stretch of a target's time, by what its log says. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from oncelake.contracts import Log, Pattern
from oncelake.intervals import Interval, Layer, clipped, instant_text, joined, overlaid, subtract, topmost
from oncelake.pipelines import Pipeline
from oncelake.work import ASKED, DONE, MISSING, STALE, Request

_ABOVE_ALL = 2**62
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)

Stale = Callable[[Pipeline, Pattern, Layer], str | None]


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
            late = _late(pipeline, end, span)
            found.append(
                _done(pipeline, pattern, layer._replace(start=start, end=end), stale, late or request.only == STALE)
            )
    return found


def _done(pipeline: Pipeline, pattern: Pattern, layer: Layer, stale: Stale, redo: bool) -> Fate:
    reason = stale(pipeline, pattern, layer)
    if reason is None:
        return Fate(layer.start, layer.end, "skip", layer.height, "done", DONE, layer.name)
    why = f"stale: {reason}"
    if not pattern.restates:
        why += f"; {pattern.kind} cannot be restated"
    elif redo:
        return Fate(layer.start, layer.end, "run", layer.height + 1, why, STALE)
    return Fate(layer.start, layer.end, "skip", layer.height, f"done, but {why}", STALE, layer.name)


def _late(pipeline: Pipeline, end: str, span: Interval) -> bool:
    """Whether late rows are taken up by themselves in a stretch of the span that ends there."""
    if pipeline.lookback is None:
        return False
    return pipeline.lookback > span.end - _YEAR_ONE or end > instant_text(span.end - pipeline.lookback)
