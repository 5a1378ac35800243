"""Read what a plan is made from, without a JVM: logs, pins, how much there is to read, what is stale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.tables import Lake
from oncelake.errors import OncelakeError
from oncelake.model.contracts import Log
from oncelake.model.intervals import Interval
from oncelake.model.slices import Whole
from oncelake.model.work import LATE, STALE, Request
from oncelake.planning.batches import waiting_now
from oncelake.planning.inputs import LakeState
from oncelake.planning.scope import scope_of
from oncelake.planning.staleness import Sources, Staleness, reading_of
from oncelake.planning.streams import read_stream_state


def read_lake_state(
    pipelines: Mapping[str, Pipeline],
    chosen: Iterable[Pipeline],
    lake: Lake,
    request: Request,
    failed: Mapping[str, list[Interval]],
) -> LakeState:
    """Return what is known of the lake, as far as the chosen pipelines need it."""
    chosen = list(chosen)
    wanted = {table for pipeline in chosen for table in pipeline.writes_tables | pipeline.reads_tables}
    owned = {table for pipeline in pipelines.values() for table in pipeline.writes_tables}
    logs: dict[str, Log | None] = dict(lake.logs(sorted(wanted & owned), others=sorted(wanted - owned)))
    sources = Sources(lake)
    return LakeState(
        logs,
        {p.name: _pins_now(p, lake) for p in chosen if p.grid is None and not p.by_batch},
        sources.estimate,
        Staleness(logs, sources, everything=request.only in (STALE, LATE)).parts,
        failed,
        sources.notes,
        {
            p.name: waiting_now(p, logs, lake, scope_of(p, request)[0].span, request.frozen_only)
            for p in chosen
            if p.arrival
        },
        {p.name: read_stream_state(p, logs, lake) for p in chosen if p.stream},
        cache(lambda: lake.takes_ranges(logs)),
    )


def _pins_now(pipeline: Pipeline, lake: Lake) -> Mapping[str, Any] | None:
    """Return what a pipeline without intervals would read now; None if something is missing, which the run will say."""
    reading = reading_of(pipeline, Whole(), lake)
    with suppress(OncelakeError):
        return {name: dict(source.pin(reading)) for name, source in pipeline.reads.items()}
    return None
