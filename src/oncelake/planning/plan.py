"""What a request comes to. Pure: declarations, what the logs say and the request go in, a plan comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadRange, UnknownPipeline
from oncelake.errors.base import did_you_mean
from oncelake.model.intervals import Interval
from oncelake.model.slices import count_cells
from oncelake.model.work import Plan, Planned, Request, Scope
from oncelake.planning.batches import plan_waiting
from oncelake.planning.in_order import is_ordered
from oncelake.planning.inputs import LakeState, PlanInputs
from oncelake.planning.intervals import plan_intervals, restrict_works
from oncelake.planning.notes import declaration_notes
from oncelake.planning.scope import scope_of
from oncelake.planning.streams import plan_stream
from oncelake.planning.whole import plan_whole
from oncelake.planning.writers import Identity, check_writers


def make_plan(
    pipelines: Mapping[str, Pipeline], known: LakeState, request: Request, identity: Identity | None = None
) -> Plan:
    """Return the works of the request, upstream first and oldest first, each with what would happen and why."""
    identity = identity or Identity(frozenset(pipelines))
    inputs = PlanInputs(pipelines, known, request)
    scoped, notes = scope_pipelines(pipelines, request)
    items: list[Planned] = []
    for pipeline, scope in scoped:
        planned = list(_planned(pipeline, scope, items, inputs))
        if request.newest_first and is_ordered(pipeline):
            notes.append(
                f"{pipeline.name} runs oldest first: --newest-first is ignored, its result depends on the order"
            )
        for pattern in pipeline.writes:
            notes += declaration_notes(pipeline, pattern, known.logs.get(pattern.target))
        notes += known.source_notes(pipeline)
        notes += known.waiting[pipeline.name].notes if pipeline.name in known.waiting else ()
        notes += known.streams[pipeline.name].notes if pipeline.name in known.streams else ()
        notes += check_writers(pipeline, planned, known.logs, identity)
        notes += _notes(pipeline, planned, known)
        items += planned
    items, left = _limit(items, inputs)
    notes += [f"--limit {request.limit}: {left:,} more are left for another run"] if left else []
    return Plan(
        tuple(scope for _, scope in scoped), tuple(items), tuple(notes), request.limit is not None, request.frozen_only
    )


def scope_pipelines(
    pipelines: Mapping[str, Pipeline], request: Request
) -> tuple[list[tuple[Pipeline, Scope]], list[str]]:
    """Return how much of each pipeline a request covers, with notes; raise BadRange if it fits none. Reads nothing."""
    chosen = select_pipelines(pipelines, request.names)
    scoped: list[tuple[Pipeline, Scope]] = []
    notes: list[str] = []
    unfit: list[BadRange] = []
    for pipeline in chosen:
        try:
            scope, note = scope_of(pipeline, request)
        except BadRange as error:
            # Of all pipelines some may start later or have a coarser grid; of those named each was meant.
            if request.names or len(chosen) == 1 or error.facts.get("for_all"):
                raise
            unfit.append(error)
            notes.append(f"left out: {error.message}")
            continue
        scoped.append((pipeline, scope))
        notes += [note] if note else []
    if unfit and not any(pipeline.grid for pipeline, _ in scoped):
        raise unfit[0]
    return scoped, notes


def select_pipelines(pipelines: Mapping[str, Pipeline], names: Iterable[str]) -> list[Pipeline]:
    """Return the named pipelines, or all, upstream first."""
    wanted = set(names)
    for name in names:
        if name not in pipelines:
            known = list(pipelines)
            raise UnknownPipeline(name=name, did_you_mean=did_you_mean(name, known), known=", ".join(known))
    return [pipeline for name, pipeline in pipelines.items() if not wanted or name in wanted]


def _planned(pipeline: Pipeline, scope: Scope, earlier: list[Planned], inputs: PlanInputs) -> Iterator[Planned]:
    """Plan one pipeline, by the kind of its slices."""
    if pipeline.arrival is not None:
        waiting = inputs.known.waiting.get(pipeline.name)
        return plan_waiting(pipeline, waiting, inputs.known.logs) if waiting else iter(())
    if pipeline.stream is not None:
        return plan_stream(pipeline, inputs.known.streams[pipeline.name], inputs.known.logs, earlier)
    if pipeline.grid is None:
        return plan_whole(pipeline, earlier, inputs)
    return plan_intervals(pipeline, scope.span, earlier, inputs) if scope.span else iter(())


def _notes(pipeline: Pipeline, planned: list[Planned], known: LakeState) -> list[str]:
    """Return what the patterns that will write have to say of it."""
    writing = {item.work.target for item in planned if item.action == "run"}
    patterns = [pattern for pattern in pipeline.writes if pattern.target in writing]
    return [note for pattern in patterns for note in pattern.notes(known.logs.get(pattern.target))]


def _limit(items: list[Planned], inputs: PlanInputs) -> tuple[list[Planned], int]:
    """Keep at most so many intervals to do, in the order of the plan, and return how many that leaves."""
    room = inputs.request.limit
    if room is None:
        return items, 0
    kept: list[Planned] = []
    left = 0
    for (name, slice_), group in groupby(items, key=lambda item: (item.work.pipeline, item.work.slice)):
        works, pipeline = list(group), inputs.pipelines[name]
        if not any(item.action == "run" for item in works):
            kept += works
            continue
        size = count_cells(slice_, pipeline.grid)
        if size <= room:
            kept += works
        elif room and isinstance(slice_, Interval):
            kept += restrict_works(works, slice_, room, inputs)
        left += max(size - room, 0)
        room = max(room - size, 0)
    return kept, left
