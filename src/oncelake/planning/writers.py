"""Find works in a target that would be written twice: of a renamed pipeline, of another project, under another target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import MovedTable, OtherProject, RenamedPipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.coverage import coalesce
from oncelake.model.intervals import Interval
from oncelake.model.markers import writer_of
from oncelake.model.slices import Batch, Whole
from oncelake.model.work import Planned


@dataclass(frozen=True)
class Identity:
    """The names of all pipelines of a project, and its id, if it has one."""

    pipelines: frozenset[str] = frozenset()
    project: str | None = None


def check_writers(
    pipeline: Pipeline, planned: Sequence[Planned], logs: Mapping[str, Log | None], identity: Identity
) -> list[str]:
    """Return what a plan says of works by others; raise where the pipeline would add rows that they added already."""
    notes: list[str] = []
    for pattern in pipeline.writes:
        to_do = [item.work.slice for item in planned if item.target == pattern.target and item.action != "skip"]
        log = logs.get(pattern.target)
        if not to_do or log is None:
            continue
        if not pattern.restates:
            _refuse_other_project(pipeline, pattern, log, identity)
            intervals = [part for part in to_do if isinstance(part, Interval)]
            _refuse_moved(pipeline, pattern, log, intervals)
            _refuse_renamed(pipeline, pattern, log, identity, intervals)
        notes += writer_notes(pipeline, pattern, log, identity)
    return notes


def writer_notes(pipeline: Pipeline, pattern: Pattern, log: Log, identity: Identity) -> list[str]:
    """Return what a plan and `status` say of works by others in a target."""
    notes = []
    for former in undeclared_writers(pipeline, pattern, log, identity):
        which = f"{pattern.target} contains works of {former}, which the project does not declare"
        notes.append(f'{which}; if {pipeline.name} was renamed, declare formerly="{former}" ({pipeline.where})')
    others = other_projects(pipeline, pattern, log, identity)
    notes += [f"{pattern.target} contains works of {pipeline.name} that project {other} wrote" for other in others]
    for target in sorted({target for _, target in moved_works(pattern, log)}):
        notes.append(
            f"{pattern.target} contains works that were written to {target}: the table was moved or copied, and these "
            f"works do not count as done here; move the table back to {target}, or let {pipeline.name} write a new table"
        )
    return notes


def undeclared_writers(pipeline: Pipeline, pattern: Pattern, log: Log, identity: Identity) -> list[str]:
    """Return the pipelines with works in a target that the project does not declare, nor their pipeline as former names.

    Works of `once.write`, which pin no inputs, and of another project are theirs.
    """
    if pipeline.formerly == ():
        return []
    here = {name for name, target in log.writers() if target == pattern.target}
    found = here - identity.pipelines - {pipeline.name, *(pipeline.formerly or ())}
    facts = _facts_by_writer(log, pattern.target) if found else {}
    return sorted(name for name in found if not any(_by_others(each, identity) for each in facts.get(name, ())))


def moved_works(pattern: Pattern, log: Log) -> list[tuple[str, str]]:
    """Return the pipelines with works in a table that were written under another target name, each with that name.

    Works of `once.write` pin no inputs, and may name the table by another lake folder.
    """
    found = sorted(writer for writer in log.writers() if writer[1] != pattern.target)
    facts = {target: _facts_by_writer(log, target) for _, target in found}
    return [
        (name, target)
        for name, target in found
        if not any(each.get("pins") == {} for each in facts[target].get(name, ()))
    ]


def other_projects(pipeline: Pipeline, pattern: Pattern, log: Log, identity: Identity) -> list[str]:
    """Return the ids of other projects that wrote works of a pipeline of the same name, among the newest commits."""
    facts = _facts_by_writer(log, pattern.target)
    names = (pipeline.name, *(pipeline.formerly or ()))
    found = {each["project"] for name in names for each in facts.get(name, ()) if each.get("project")}
    return sorted(found - {identity.project})


def _by_others(facts: Mapping[str, Any], identity: Identity) -> bool:
    if facts.get("pins") == {}:
        return True
    return identity.project is not None and facts.get("project") not in (None, identity.project)


def _facts_by_writer(log: Log, target: str) -> dict[str, list[Mapping[str, Any]]]:
    found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for app_id, facts in dict(log.newest_facts()).items():
        writer = writer_of(app_id)
        if writer is not None and writer[1] == target:
            found[writer[0]].append(facts)
    return found


def _refuse_other_project(pipeline: Pipeline, pattern: Pattern, log: Log, identity: Identity) -> None:
    others = other_projects(pipeline, pattern, log, identity)
    if others and identity.project is not None:
        facts = {"target": pattern.target, "pipeline": pipeline.name, "where": pipeline.where}
        raise OtherProject(other=others[0], project=identity.project, **facts)


def _refuse_moved(pipeline: Pipeline, pattern: Pattern, log: Log, to_do: Sequence[Interval]) -> None:
    """Refuse a pipeline without works of its own in a moved table, and one that would repeat the works found there."""
    moved = moved_works(pattern, log)
    own = moved and _has_works(pipeline, pattern, log)
    for name, former in moved:
        if not own or _overlap(to_do, coalesce(log.coverage(name, former))):
            facts = {"target": pattern.target, "pipeline": pipeline.name, "where": pipeline.where}
            raise MovedTable(former=former, **facts)


def _refuse_renamed(
    pipeline: Pipeline, pattern: Pattern, log: Log, identity: Identity, to_do: Sequence[Interval]
) -> None:
    """Refuse a pipeline without works of its own beside those of another name, and one that would repeat theirs."""
    own = _has_works(pipeline, pattern, log)
    former = [
        name
        for name in undeclared_writers(pipeline, pattern, log, identity)
        if not own or _overlap(to_do, coalesce(log.coverage(name, pattern.target)))
    ]
    if former:
        spelled = f'"{former[0]}"' if len(former) == 1 else "[" + ", ".join(f'"{name}"' for name in former) + "]"
        facts = {"target": pattern.target, "pipeline": pipeline.name, "where": pipeline.where}
        raise RenamedPipeline(former=", ".join(former), first=former[0], spelled=spelled, **facts)


def _has_works(pipeline: Pipeline, pattern: Pattern, log: Log) -> bool:
    """Return whether a target has works of the pipeline."""
    if pipeline.grid is None or pipeline.start is None:
        if pipeline.stream is not None:
            return bool(log.streams((pipeline.name, *(pipeline.formerly or ())), pattern.target))
        slice_ = Batch(pipeline.arrival.stream, 0) if pipeline.arrival else Whole()
        return log.recorded(pattern.marker(pipeline.name, slice_, 1).app_id) is not None
    return bool(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid))


def _overlap(these: Sequence[Interval], those: Sequence[Interval]) -> bool:
    return any(one.overlaps(other) for one in these for other in those)
