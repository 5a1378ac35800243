"""What a plan is made from, gathered from the lake without a JVM: logs, pins, how much there is to read, what is stale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import find_log
from oncelake.errors import OncelakeError
from oncelake.model.contracts import Log
from oncelake.model.intervals import Interval
from oncelake.model.slices import Whole
from oncelake.model.work import STALE, Request
from oncelake.planning.plan import LakeState
from oncelake.planning.staleness import Sights, Staleness, reading_of
from oncelake.storage.paths import Address


def read_lake_state(
    pipelines: Mapping[str, Pipeline],
    chosen: Iterable[Pipeline],
    address: Address,
    request: Request,
    failed: Mapping[str, list[Interval]],
) -> LakeState:
    """What is known of the lake, as far as the chosen pipelines need it."""
    chosen = list(chosen)
    wanted = {table for pipeline in chosen for table in pipeline.writes_tables | pipeline.reads_tables}
    owned = {table for pipeline in pipelines.values() for table in pipeline.writes_tables}
    logs: dict[str, Log | None] = {table: find_log(table, address.table(table)) for table in wanted & owned}
    sights = Sights(address)
    return LakeState(
        logs,
        {pipeline.name: pins_now(pipeline, address) for pipeline in chosen if pipeline.grid is None},
        sights.estimate,
        Staleness(logs, sights, everything=request.only == STALE).parts,
        failed,
        address.is_local,
    )


def pins_now(pipeline: Pipeline, address: Address) -> Mapping[str, Any] | None:
    """What a pipeline without intervals would read now; None if something of it is missing, which the run will say."""
    reading = reading_of(pipeline, Whole(), address)
    with suppress(OncelakeError):
        return {name: dict(source.pin(reading)) for name, source in pipeline.reads.items()}
    return None
