"""Rebuild a target from its inputs: the true redo of a table whose slices cannot be taken out one by one.

A merge cannot remove what an earlier version of a batch brought in. So all completed works are replayed, in their order,
into a table beside the target, and then the target's content is replaced in one commit. Readers see the old table or the
new one. A rebuild that is killed is resumed by the next one, or leaves the old table as it is.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta import writes
from oncelake.delta.log import TableLog
from oncelake.delta.prepared import PreparedRows
from oncelake.delta.tables import Lake, require_log
from oncelake.errors import BatchesNotRedone, CannotRebuild, StreamNotRedone
from oncelake.model.contracts import Stamp, Table, Writing
from oncelake.model.coverage import clip, coalesce
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval, merge
from oncelake.model.markers import Marker, applied_work, parse_app_id, restore_marker
from oncelake.model.slices import Named, Slice, Whole
from oncelake.model.work import FAILED, STALE, Plan, Planned, Report, Request, Work
from oncelake.operations.arrivals import restate_problem
from oncelake.operations.external_changes import ExternalChange, written_by_others
from oncelake.planning.lake_state import read_lake_state
from oncelake.planning.plan import make_plan
from oncelake.running.commit import Claim, Conflict, commit_and_ask, commit_once
from oncelake.running.context import RunContext
from oncelake.running.execute import execute
from oncelake.storage.objects import remove_folder

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Rebuild:
    """What a rebuild replays, and what came of it."""

    target: str
    read: int
    works: tuple[tuple[str, Slice], ...]
    estimated_rows: int | None = None
    version: int | None = None
    failed: Report | None = None
    # Commits of other writers, whose rows no work replays: they are not in the rebuilt table.
    external: tuple[ExternalChange, ...] = ()

    @property
    def outcome(self) -> str:
        """Whether the replay failed, and the table is as it was: "failed", else "done"."""
        return "failed" if self.failed else "done"

    def document(self) -> dict[str, Any]:
        """Return the rebuild as `rebuild --json` prints it."""
        return {
            "target": self.target,
            "from_version": self.read,
            "works": [{"pipeline": pipeline, "slice": str(slice_)} for pipeline, slice_ in self.works],
            "estimated_rows": self.estimated_rows,
            "version": self.version,
            "outcome": self.outcome,
            "external_changes": [str(change) for change in self.external],
            "failed": [outcome.document() for outcome in self.failed.works if outcome.outcome == FAILED]
            if self.failed
            else [],
        }


@dataclass(frozen=True)
class Rebuilding:
    """A rebuild under way: the pipelines that write the target, the lake it is replayed into, and the real one."""

    target: str
    owners: Mapping[str, Pipeline]
    context: RunContext
    now: datetime

    @property
    def staging(self) -> Lake:
        """The lake beside the target: only the target is written there, all other tables are read where they are."""
        lake = self.context.lake
        read = {table for pipeline in self.owners.values() for table in pipeline.reads_tables} - {self.target}
        paths = {table: lake.table(table).path for table in read}
        return Lake(lake.internal_path("rebuild", self.target), lake.root, paths, lake.formerly, lake.remote)

    def plan(self) -> Rebuild:
        """Return what there is to replay: every work of the target that is done."""
        log = require_log(self.context.lake.table(self.target))
        self._refuse_unknown_works(log)
        works = [(name, slice_) for name, pipeline in self.owners.items() for slice_ in self._done(pipeline)]
        known = read_lake_state(self.owners, self.owners.values(), self.context.lake, Request(self.now), {})
        sizes = [
            known.estimate(self.owners[name], slice_).rows if isinstance(slice_, Interval) else None
            for name, slice_ in works
        ]
        counts = [size for size in sizes if size is not None]
        total = sum(counts) if counts and len(counts) == len(sizes) else None
        return Rebuild(self.target, log.version, tuple(works), total, external=tuple(written_by_others(log)))

    def apply(self) -> Rebuild:
        """Replay what is done into the staging table, then replace the target's content in one commit."""
        planned = self.plan()
        staging = replace(self.context, lake=self.staging)
        report = execute(self._replay(planned, staging), self.owners, staging)
        if report.outcome != "done":
            return replace(planned, failed=report)
        failpoint("replayed")
        table = self.context.lake.table(self.target)
        claim = Claim([table], f"rebuild {self.target}", self._command)
        rebuilt = commit_once(lambda: self._replace(planned, staging), claim, self.context.lock_timeout)
        if rebuilt is None:
            # Another work was committed meanwhile: replay it too.
            return self.apply()
        remove_folder(self.staging.path)
        return rebuilt

    @property
    def _command(self) -> str:
        return f"oncelake rebuild {self.target}"

    def _refuse_unknown_works(self, log: TableLog) -> None:
        """Refuse works that no declared pipeline can replay: those of other pipelines, and all of `once.write`."""
        known = {*self.owners, *(name for pipeline in self.owners.values() for name in pipeline.formerly or ())}
        unknown = set()
        for name, recorded in log.markers.items():
            parsed = parse_app_id(name)
            # Version 0 says that a restore took the rows of the work out.
            if parsed is None or not recorded.version or _is_repair(parsed[0], parsed[2]):
                continue
            pipeline, _, slice_ = parsed
            if isinstance(slice_, Named) and pipeline in {*known, "repair"}:
                unknown.add(f"once.write {pipeline}/{slice_}" if slice_.name else f"once.write {pipeline}")
            elif pipeline not in known:
                unknown.add(pipeline)
            elif _is_once_write(log, name):
                unknown.add(f"once.write {pipeline} {slice_}")
        if unknown:
            raise CannotRebuild(target=self.target, unknown=", ".join(sorted(unknown)))

    def _done(self, pipeline: Pipeline) -> list[Slice]:
        """Return the slices that a pipeline has done, in the order of time; with the gaps where that order matters.

        A gap below newer slices of a table that is written in order can be filled by a rebuild only.
        """
        log, pattern = require_log(self.context.lake.table(self.target)), pipeline.pattern(self.target)
        if pipeline.grid is None or pipeline.start is None:
            return [Whole()] if log.done(pattern.marker(pipeline.name, Whole(), 1)) else []
        spans = coalesce(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid))
        if pattern.ordered and spans:
            spans = [Interval(pipeline.start, spans[-1].end, pipeline.grid.zone)]
        # Works of another grid may lie in part of an interval, or begin before the first one.
        whole = merge(pipeline.grid.around(span) for span in spans)
        cells = [cell for span in whole for cell in pipeline.grid.cells(span.start, span.end)]
        return [cell for cell in cells if cell.start >= pipeline.start]

    def _replay(self, planned: Rebuild, staging: RunContext) -> Plan:
        """Return the plan that replays the works; what an interrupted rebuild has replayed is skipped, unless it is stale."""
        plan = self._staged_plan(planned, staging)
        if any(item.cause == STALE for item in plan.works):
            remove_folder(staging.lake.path)
            plan = self._staged_plan(planned, replace(staging, lake=self.staging))
        return plan

    def _staged_plan(self, planned: Rebuild, staging: RunContext) -> Plan:
        wanted = {name: [slice_ for owner, slice_ in planned.works if owner == name] for name in self.owners}
        # Every replayed work is compared with its inputs, not only the newest.
        everything = Request(self.now, only=STALE)
        known = read_lake_state(self.owners, self.owners.values(), staging.lake, everything, {})
        plan = make_plan(self.owners, known, Request(self.now))
        return replace(plan, works=tuple(item for item in plan.works if _within(item, wanted[item.work.pipeline])))

    def _replace(self, planned: Rebuild, staging: RunContext) -> Rebuild | None:
        """Replace the content in one commit; None if another work was committed since the plan."""
        table = self.context.lake.table(self.target)
        log, new = require_log(table), require_log(staging.lake.table(self.target))
        if set(self.plan().works) != set(planned.works):
            return None
        session, attempt = self.context.session(), uuid.uuid4().hex[:12]
        marker = restore_marker(self.target, log.version + 1, -1)
        made_from = {name: commit.facts for name in new.markers if (commit := new.commit(name))}
        kept = {
            name: {
                "pins": facts.get("pins"),
                "code": facts.get("code"),
                "generation": log.recorded(name),
                "slice": facts.get("slice"),
                **_siblings_of(name, log),
            }
            for name, facts in made_from.items()
        }
        facts = {
            "pipeline": "rebuild",
            "target": self.target,
            "attempt": attempt,
            "rebuilt": kept,
            "run": self.context.run,
        }
        stamp = Stamp(marker, json.dumps({"oncelake": facts}, separators=(",", ":")))
        work = Work("rebuild", self.target, Whole(), marker.version, marker)
        writing = Writing(work, table, stamp, attempt, None, "rebuild", self.context.lake.internal_path())
        staged = replace(writing, table=staging.lake.table(self.target), internal=staging.lake.internal_path())
        rows = PreparedRows(session, staged, new).rows()
        if rows is not None:
            PreparedRows(session, writing, log).prepare(rows)
        self._overwrite(writes.table_at(session, new.path, new.version), writing)
        failpoint("rebuilt")
        version = _version_of(marker, table)
        if version != log.version + 1:
            # The commits in between are replaced as well, and the marker does not say so: replay them, replace again.
            raise Conflict(f"another commit came between version {log.version} and version {version} of {self.target}")
        for name, made in made_from.items():
            if log.recorded(name) is None and applied_work(name) == name:
                # A gap that was replayed: without its marker it would be refused as out of order, never written twice.
                # Or an interval of which works of another grid did a part: its marker lies on top of theirs.
                made_here = _without_versions(made) | {"generation": _generation_above(name, log)}
                made_here |= _siblings_of(name, log)
                marker = Marker(name, made_here["generation"])
                table.mark(Stamp(marker, json.dumps({"oncelake": made_here})), session)
        return replace(planned, version=version)

    def _overwrite(self, rows: DataFrame, writing: Writing) -> None:
        table, marker = writing.table, writing.work.marker
        commit_and_ask(
            lambda: writes.overwrite(rows, table.path, writing.stamp, new_schema=True),
            lambda: _is_by(writing.attempt, marker, table),
            self.target,
            self._command,
        )


def _is_repair(pipeline: str, slice_: Slice) -> bool:
    """Return whether a marker is that of `repair`, whose result a replay of the works includes."""
    return pipeline == "repair" and isinstance(slice_, Named) and re.fullmatch(r"version \d+", slice_.name) is not None


def _is_once_write(log: TableLog, name: str) -> bool:
    """Return whether `once.write` committed a work under the name of a pipeline, as long as the log shows its commit."""
    commit = log.commit(name)
    return commit is not None and commit.facts.get("code", "") is None


def _generation_above(name: str, log: TableLog) -> int:
    """Return a generation above those of the works that share time with a work."""
    pipeline, target, slice_ = parse_app_id(name) or ("", "", Whole())
    below = clip(log.coverage(pipeline, target), slice_) if isinstance(slice_, Interval) else []
    return 1 + max((covered.generation for covered in below), default=0)


def _siblings_of(name: str, log: TableLog) -> dict[str, Any]:
    """Return which targets the replaced commit of a work was written with, in which generations; None if that is not known.

    The rest of an attempt that was interrupted is finished from the input that the rebuild read.
    """
    pipeline, target, slice_ = parse_app_id(name) or ("", "", Whole())
    below = clip(log.coverage(pipeline, target), slice_) if isinstance(slice_, Interval) else []
    names = [name] if log.recorded(name) is not None else [covered.name for covered in below]
    if not names:
        # A gap that the rebuild filled: no other target was written with it.
        return {}
    commit = log.commit(names[-1])
    siblings = commit.facts.get("siblings") if commit else None
    if commit is None or siblings is None:
        return {"siblings": None}
    generations = commit.facts.get("generations") or dict.fromkeys(siblings, commit.facts.get("generation"))
    return {"siblings": siblings, "generations": generations} if len(siblings) > 1 else {"siblings": siblings}


def _without_versions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a work without the versions of the staging table."""
    return {name: value for name, value in facts.items() if name not in ("read", "as_of", "overtaken")}


def _is_by(attempt: str, marker: Marker, table: Table) -> bool:
    """Return whether the commit that carries a marker is that of an attempt."""
    commit = require_log(table).commit(marker.app_id)
    return commit is not None and commit.facts.get("attempt") == attempt


def _version_of(marker: Marker, table: Table) -> int:
    """Return the version of the commit that carries a marker."""
    log = require_log(table)
    commit = log.commit(marker.app_id)
    return commit.version if commit else log.version


def rebuilding(target: str, pipelines: Mapping[str, Pipeline], context: RunContext, now: datetime) -> Rebuilding:
    """Return the rebuild of a target by the pipelines that write it."""
    for pipeline in pipelines.values():
        if target in pipeline.writes_tables and pipeline.stream is not None:
            raise StreamNotRedone(verb="rebuild", target=target, pipeline=pipeline.name)
        if target in pipeline.writes_tables and pipeline.arrival is not None:
            problem = "its batches are not redone one by one"
            way = "" if restate_problem(pipeline) else f"oncelake restate {pipeline.name}, or "
            raise BatchesNotRedone(verb="rebuild", what=target, problem=problem, pipeline=pipeline.name, way=way)
    owners = {name: _only(pipeline, target) for name, pipeline in pipelines.items() if target in pipeline.writes_tables}
    return Rebuilding(target, owners, context, now)


def _only(pipeline: Pipeline, target: str) -> Pipeline:
    """Return the pipeline as if it wrote one of its targets alone."""
    if len(pipeline.writes) == 1:
        return replace(pipeline, combine_intervals=False)
    return replace(
        pipeline,
        writes=(pipeline.pattern(target),),
        function=_selecting(pipeline.function, target),
        combine_intervals=False,
    )


def _selecting(function: Callable[..., Any], target: str) -> Callable[..., Any]:
    @wraps(function)
    def select(**arguments: Any) -> Any:
        result = function(**arguments)
        return result[target] if isinstance(result, dict) and target in result else result

    return select


def _within(item: Planned, wanted: list[Slice]) -> bool:
    """Return whether a work of the staging table is one that the target has done."""
    return item.work.slice in wanted
