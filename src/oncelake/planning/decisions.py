"""What would happen with each stretch of a target's time, by what its log says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.coverage import Layer, clipped, joined, overlaid, topmost
from oncelake.model.intervals import Interval, instant_text, subtract
from oncelake.model.work import ASKED, DONE, MISSING, STALE

_ABOVE_ALL = 2**62
_BUNDLE = "several"
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


class Part(NamedTuple):
    """A part of what is done that is stale, and why."""

    start: str
    end: str
    why: str


Stale = Callable[[Pipeline, Pattern, Sequence[Layer]], list[Part]]


class Manner(NamedTuple):
    """How fates are told: what says whether a work is stale, whether stale ones are redone, and how many works are told apart.

    More works than those are told as few ranges, of which no single commit is known.
    """

    stale: Stale
    redo: bool = False
    apart: int = 1000


class Fate(NamedTuple):
    """What would happen with a stretch of time of one target, and why. What is done has the marker that did it."""

    start: str
    end: str
    action: str
    generation: int
    why: str
    cause: str = MISSING
    marked: str | None = None


def fates(pipeline: Pipeline, pattern: Pattern, span: Interval, log: Log | None, manner: Manner) -> list[Fate]:
    """What would happen with a target all over a span, in the order of time."""
    if log is None or pipeline.grid is None or pipeline.start is None:
        return [Fate(instant_text(span.start), instant_text(span.end), "run", 1, "not done yet")]
    done = clipped(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid), span)
    asked = clipped(log.layers(pipeline.name, pattern.target, asked=True), span)
    parts = manner.stale(pipeline, pattern, done)
    told = _bundled(done) if len(done) > manner.apart else done
    # An interval that is done in part is not done.
    gaps = [pipeline.grid.around(gap) for gap in subtract([span], joined(told))]
    blank = [Layer(instant_text(gap.start), instant_text(gap.end), _ABOVE_ALL, "") for gap in gaps]
    rows: tuple[Sequence[Any], ...] = (topmost([*told, *blank]), asked, parts)
    return [
        _fate(
            layer._replace(start=start, end=end),
            ask,
            part,
            pattern,
            manner.redo or late(pipeline, end, span.end),
        )
        for start, end, (layer, ask, part) in overlaid(*rows)
        if layer is not None
    ]


def _fate(layer: Layer, ask: Layer | None, part: Part | None, pattern: Pattern, redo: bool) -> Fate:
    """What would happen with a stretch of one kind: blank, done by a marker, asked for again, or stale."""
    wanted, marked = ask.height if ask else 1, None if layer.name == _BUNDLE else layer.name
    if not layer.name:
        return Fate(layer.start, layer.end, "run", wanted, "not done yet")
    if not layer.height:
        return Fate(layer.start, layer.end, "skip", 1, "a later interval's reload is in place", DONE, marked)
    if wanted > layer.height:
        return Fate(layer.start, layer.end, "run", wanted, f"restated: generation {wanted} was asked for", ASKED)
    if part is None:
        return Fate(layer.start, layer.end, "skip", layer.height, "done", DONE, marked)
    if pattern.restates and redo:
        return Fate(layer.start, layer.end, "run", layer.height + 1, f"stale: {part.why}", STALE)
    cannot = "" if pattern.restates else f"; {pattern.kind} cannot be restated"
    return Fate(layer.start, layer.end, "skip", layer.height, f"done, but stale: {part.why}{cannot}", STALE, marked)


def _bundled(layers: Sequence[Layer]) -> list[Layer]:
    """Neighbours of one generation as one: so many are not told one by one."""
    found: list[Layer] = []
    first = last = layers[0]
    for layer in layers[1:]:
        if last.end != layer.start or last.height != layer.height:
            found.append(Layer(first.start, last.end, first.height, _BUNDLE))
            first = layer
        last = layer
    return [*found, Layer(first.start, last.end, first.height, _BUNDLE)]


def late(pipeline: Pipeline, end: str, until: datetime) -> bool:
    """Whether late rows are taken up by themselves in a stretch that ends there, of all up to a moment."""
    if pipeline.lookback is None:
        return False
    return pipeline.lookback > until - _YEAR_ONE or end > instant_text(until - pipeline.lookback)
