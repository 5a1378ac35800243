"""Plan a pipeline without intervals: its one slice is the whole, redone when inputs changed, and on request when its code did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oncelake.declare.code_fingerprint import pipeline_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.markers import restate_app_id
from oncelake.model.slices import Whole
from oncelake.model.work import DONE, FAILED_BEFORE, RESTATED, STALE, Commit, Planned, Work
from oncelake.planning.decisions import overtaken_note
from oncelake.planning.inputs import PlanInputs

CODE_CHANGED = "its code changed, or its declaration"


def plan_whole(pipeline: Pipeline, earlier: list[Planned], inputs: PlanInputs) -> Iterator[Planned]:
    """Return the work of every target, as far as the request is for it."""
    if inputs.request.only == FAILED_BEFORE and pipeline.name not in inputs.known.failed:
        return
    changing = any(item.action == "run" and item.work.target in pipeline.reads_tables for item in earlier)
    pins = None if changing else inputs.known.pins.get(pipeline.name)
    logs, redo_stale = inputs.known.logs, inputs.request.only == STALE
    found = [_item(pipeline, pattern, logs.get(pattern.target), pins, redo_stale) for pattern in pipeline.writes]
    to_do = [item for item in found if item.action == "run"]
    if not inputs.request.only:
        yield from found
    elif any(inputs.wants(item.cause) for item in to_do):
        # The targets are written together: one that is wanted takes along its siblings that are not done.
        yield from to_do


def stale_code(pipeline: Pipeline, pattern: Pattern, commit: Commit | None) -> str | None:
    """Return why a whole that is done is stale, if the code or the declaration was another in its commit."""
    code = commit.facts.get("code") if commit else None
    return CODE_CHANGED if code and code != pipeline_fingerprint(pipeline, pattern) else None


def _item(
    pipeline: Pipeline, pattern: Pattern, log: Log | None, pins: Mapping[str, Any] | None, redo_stale: bool
) -> Planned:
    def work(generation: int) -> Work:
        marker = pattern.marker(pipeline.name, Whole(), generation)
        return Work(pipeline.name, pattern.target, Whole(), generation, marker)

    first = work(1)
    if log is None or not log.done(first.marker):
        return Planned(first, "run", "not done yet")
    commit = log.commit(first.marker.app_id)
    generation = log.recorded(first.marker.app_id) or 1
    requested = log.recorded(restate_app_id(pipeline.name, pattern.target, Whole())) or 0
    if requested > generation:
        return Planned(work(requested), "run", f"restated: generation {requested} was requested", RESTATED)
    overtaken = log.overtaken_version(first.marker.app_id)
    if overtaken is not None:
        return Planned(work(generation), "run", overtaken_note(overtaken), RESTATED)
    stale = stale_code(pipeline, pattern, commit)
    if stale and redo_stale:
        return Planned(work(generation + 1), "run", f"stale: {stale}", STALE)
    if commit is not None and pins is not None and commit.facts.get("pins") == pins:
        if stale:
            return Planned(work(generation), "skip", f"done, but stale: {stale}", STALE)
        why = f"done in version {commit.version}, and its inputs have not changed"
        return Planned(work(generation), "skip", why, DONE)
    why = "its inputs changed since" if commit is not None else "the log no longer says from which inputs it was made"
    return Planned(work(generation + 1), "run", why)
