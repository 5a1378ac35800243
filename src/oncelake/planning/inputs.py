"""Everything a plan is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.model.arrivals import Waiting
from oncelake.model.contracts import Log
from oncelake.model.intervals import Interval
from oncelake.model.work import FAILED_BEFORE, LATE, STALE, InputSize, Request
from oncelake.planning.decisions import Stale
from oncelake.planning.streams import StreamState


@dataclass(frozen=True)
class LakeState:
    """What is known of the lake: the log of every target there is, and what pipelines without intervals read now.

    `estimate`, `stale` and `source_notes` are the lazy edges of planning: how much the sources of a pipeline hold for an
    interval, and which parts of what is done are stale, as far as logs and listings tell. `failed` is what failed last time.
    """

    logs: Mapping[str, Log | None]
    pins: Mapping[str, Mapping[str, Any] | None]
    estimate: Callable[[Pipeline, Interval], InputSize] = lambda *_: InputSize()
    stale: Stale = lambda *_: []
    failed: Mapping[str, list[Interval]] = field(default_factory=dict)
    # What the sources of a pipeline have to say, such as rows that belong to no interval.
    source_notes: Callable[..., list[str]] = lambda *_, **__: []
    # What waits to be ingested, by pipeline that is driven by arrivals.
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    # Where streams stand, by pipeline.
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    # Whether several intervals may be one commit: nobody restates one of them unseen between the look at a log and the commit.
    ranges: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class PlanInputs:
    """The project's pipelines, what is known of the lake, and what was requested."""

    pipelines: Mapping[str, Pipeline]
    known: LakeState
    request: Request

    def wants(self, cause: str) -> bool:
        """Return whether the request is for works of that cause."""
        only = STALE if self.request.only == LATE else self.request.only
        return only in (None, cause) or (only == FAILED_BEFORE and cause != STALE)
