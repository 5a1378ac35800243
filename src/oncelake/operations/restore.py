"""Go back to an older version of a target, knowingly: exactly the content of that version counts as done.

Delta's own RESTORE keeps every marker, so that what it undid would be taken for done for ever. Here the same commit
requests every work again whose rows are not in that version, and closes the requests for those whose rows are. Callers of
`once.write` number their generations themselves, so the markers of their works are set back to what that version had.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.conflicts import one_line
from oncelake.delta.log import TableLog, read_log_at
from oncelake.delta.tables import DeltaTable, require_log
from oncelake.delta.writes import restore
from oncelake.errors import BadVersion, CannotRestore
from oncelake.model.coverage import Coverage, align
from oncelake.model.intervals import Interval, parse_interval, subtract
from oncelake.model.markers import (
    RESTATE_PREFIX,
    Marker,
    former_app_ids,
    newest_reload,
    parse_app_id,
    parse_stream,
    present_app_id,
    reload_generation,
    requested_work,
    restate_app_id,
    restore_marker,
)
from oncelake.model.slices import Batch, Named, Slice, Whole
from oncelake.model.streams import UNCLEARED, StreamId
from oncelake.running.commit import Claim, Conflict, commit_and_ask, commit_once


@dataclass(frozen=True)
class Undone:
    """A work whose rows a restore takes out, and the generation in which it is requested again.

    Of a work of `once.write` it is the generation that is taken out: the same call writes it again.
    """

    pipeline: str
    target: str
    slice: Slice
    generation: int

    @property
    def marker(self) -> Marker:
        """What requests it."""
        return Marker(restate_app_id(self.pipeline, self.target, self.slice), self.generation)

    def document(self) -> dict[str, Any]:
        """Return the work as `restore --json` prints it."""
        named = {"pipeline": self.pipeline, "target": self.target, "slice": str(self.slice)}
        return {**named, "generation": self.generation}


@dataclass(frozen=True)
class Restore:
    """What a restore does: from which version to which, what it undoes, and which requests it closes."""

    target: str
    read: int
    to: int
    undone: tuple[Undone, ...]
    # Works of `once.write`, which only their callers can do again: the same call writes them.
    elsewhere: tuple[Undone, ...] = ()
    # What the commit records: requests, closed requests (version 0), and the markers of `once.write` at that version.
    markers: tuple[Marker, ...] = ()
    version: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the restore as `restore --json` prints it."""
        return {
            "target": self.target,
            "from_version": self.read,
            "to_version": self.to,
            "version": self.version,
            "undone": [undone.document() for undone in self.undone],
            "undone_elsewhere": [undone.document() for undone in self.elsewhere],
        }


def restore_table(
    table: DeltaTable, to: int, pipelines: Mapping[str, Pipeline], lock_timeout: float, dry_run: bool = False
) -> Restore:
    """Restore a version of a table under its lock; with `dry_run` only say what that would undo."""

    def act() -> Restore:
        planned = plan_restore(require_log(table), to, pipelines)
        if dry_run:
            return planned
        attempt, version = uuid.uuid4().hex[:12], planned.read + 1

        def landed() -> bool:
            commit = require_log(table).commit_at(version)
            return commit is not None and commit.facts.get("attempt") == attempt

        commit_and_ask(lambda: apply_restore(planned, table.path, attempt), landed, table.name, command)
        if not landed():
            # Another commit came in between: what it wrote is not in the plan. Go back again, from there.
            raise Conflict(f"version {version} of {table.name} is not the restore")
        return replace(planned, version=version)

    command = f"oncelake restore {table.name} --to {to}"
    return commit_once(act, Claim([table], f"restore to {to}", command), lock_timeout)


def plan_restore(log: TableLog, to: int, pipelines: Mapping[str, Pipeline]) -> Restore:
    """Return what a restore to a version would undo, by what was done then and is done now."""
    if not 0 <= to < log.version:
        raise BadVersion(target=log.table, version=to, newest=log.version)
    then = replace(read_log_at(log.table, log.path, to), formerly=log.formerly)
    undone: list[Undone] = []
    closed: list[str] = []
    # Works of a renamed pipeline are requested under its present name, each once.
    names = dict.fromkeys(present_app_id(name, log.formerly) for name in log.markers)
    calls = _once_writes(names, log, then, pipelines)
    works = [name for name in names if name not in calls]
    for pipeline, target in sorted({parsed[:2] for name in works if (parsed := parse_app_id(name))}):
        kept = _done(then, pipeline, target)
        undone += _undone_intervals(log, pipeline, target, kept)
        closed += _closed_intervals(log, pipeline, target, kept, undone)
    for name in works:
        work = _whole_work(name, log, pipelines)
        if work is None:
            continue
        if not _is_done(name, work, log, then):
            undone.append(work)
        elif (log.recorded(work.marker.app_id) or 0) >= work.generation:
            spelled = (work.marker.app_id, *former_app_ids(work.marker.app_id, log.formerly))
            closed += [name for name in spelled if name in log.markers]
    ours = tuple(each for each in undone if each.pipeline in pipelines and not isinstance(each.slice, Named))
    elsewhere = [each for each in undone if each not in ours]
    elsewhere += _undone_calls(calls, log, then, pipelines)
    markers = {name: then.recorded(name) or 0 for name in calls if (then.recorded(name) or 0) != log.recorded(name)}
    markers |= dict.fromkeys(closed, 0) | {each.marker.app_id: each.marker.version for each in undone}
    markers |= {
        name: _last_batch(then, name) for name in _streams(log) if _last_batch(then, name) != log.recorded(name)
    }
    ours += tuple(_undone_batches(log, then))
    return Restore(log.table, log.version, to, ours, tuple(elsewhere), tuple(starmap(Marker, markers.items())))


def apply_restore(planned: Restore, path: str, attempt: str) -> None:
    """Commit the files of the older version, with the requests for what is undone and the closed ones, at once."""
    facts = {"restore": planned.to, "target": planned.target, "attempt": attempt}
    markers = [*planned.markers, restore_marker(planned.target, planned.read + 1, planned.to)]
    try:
        restore(path, planned.read, planned.to, markers, json.dumps({"oncelake": facts}))
    except Exception as error:
        if "Unsupported table features" in str(error):
            raise CannotRestore(target=planned.target, version=planned.to, problem=str(error)) from error
        if "missing file" in str(error):
            problem = f"files of that version were removed (VACUUM), nothing was changed: {one_line(error)}"
            raise CannotRestore(target=planned.target, version=planned.to, problem=problem) from error
        raise


def _streams(log: TableLog) -> list[str]:
    return [name for name in log.markers if parse_stream(name)]


def _last_batch(log: TableLog, name: str) -> int:
    """Return the last batch of a stream that a version has; -1 if it has none.

    In a later epoch of a stream -1 says that the rows of the earlier one were removed: less than that, if they were not.
    """
    recorded, stream = log.recorded(name), StreamId.parse((parse_stream(name) or ("", "", ""))[2])
    none = UNCLEARED if stream and stream.epoch > 1 else -1
    return none if recorded is None else recorded


def _undone_batches(log: TableLog, then: TableLog) -> Iterator[Undone]:
    """Yield the batches whose rows a version does not have: its marker is set back, so they are read again."""
    for name in _streams(log):
        pipeline, target, stream = parse_stream(name) or ("", "", "")
        for number in range(max(_last_batch(then, name), -1) + 1, _last_batch(log, name) + 1):
            yield Undone(pipeline, target, Batch(stream, number), 1)


def _once_writes(
    names: Iterable[str], log: TableLog, then: TableLog, pipelines: Mapping[str, Pipeline]
) -> dict[str, tuple[str, str, Slice]]:
    """Return the app ids of the works of `once.write`, and of requests for them, with what they name.

    A work by interval is known by its commit, which names no code; without it by its name, which has several parts.
    """
    parsed = {name: found for name in names if (found := parse_app_id(requested_work(name)))}

    def is_call(name: str, pipeline: str) -> bool:
        if pipeline in pipelines or requested_work(name) != name:
            return False
        known = [commit for commit in (log.commit(name), then.commit(name)) if commit]
        # Only works of `once.write` are set back to 0.
        by_name = "/" in pipeline or log.recorded(name) == 0
        return any(commit.facts.get("code", "") is None for commit in known) if known else by_name

    callers = {found[:2] for name, found in parsed.items() if is_call(name, found[0])}
    return {name: found for name, found in parsed.items() if isinstance(found[2], Named) or found[:2] in callers}


def _undone_calls(
    calls: Mapping[str, tuple[str, str, Slice]], log: TableLog, then: TableLog, pipelines: Mapping[str, Pipeline]
) -> Iterator[Undone]:
    """Yield the works of `once.write` of which a version has an earlier generation, or none."""
    for name, (pipeline, target, slice_) in calls.items():
        recorded = log.recorded(name) or 0
        if requested_work(name) != name or recorded <= (then.recorded(name) or 0):
            continue
        work = _whole_work(name, log, pipelines)
        yield replace(work, generation=work.generation - 1) if work else Undone(pipeline, target, slice_, recorded)


def _done(log: TableLog, pipeline: str, target: str) -> list[Interval]:
    """Return the time whose rows a table has: covered by a marker, and not requested again since."""
    covered, requested = log.coverage(pipeline, target), log.coverage(pipeline, target, requested=True)
    return [
        parse_interval(f"{start}..{end}")
        for start, end, (mark, request) in align(covered, requested)
        if mark is not None and mark.generation >= (request.generation if request else 0)
    ]


def _undone_intervals(log: TableLog, pipeline: str, target: str, kept: list[Interval]) -> Iterator[Undone]:
    """Yield what is covered by markers now and has no rows in the version gone back to."""
    for covered in log.coverage(pipeline, target):
        for part in subtract([covered.interval], kept):
            yield Undone(pipeline, target, part, covered.generation + 1)


def _closed_intervals(
    log: TableLog, pipeline: str, target: str, kept: list[Interval], undone: list[Undone]
) -> Iterator[str]:
    """Yield the requests for time whose rows are in the version gone back to; the rest of it is requested by itself."""
    raised = {each.marker.app_id for each in undone}
    prefix = restate_app_id(pipeline, target, Whole()).removesuffix(Whole().text)
    prefixes = (prefix, *former_app_ids(prefix, log.formerly))
    for name, recorded in log.markers.items():
        first, _, last = name.rpartition(RESTATE_PREFIX)[2].partition("..")
        if not name.startswith(prefixes) or not first[:1].isdigit() or not recorded.version or name in raised:
            continue
        slice_ = Coverage(first, last, recorded.version, name).interval
        if any(slice_.overlaps(part) for part in kept):
            yield name


def _whole_work(name: str, log: TableLog, pipelines: Mapping[str, Pipeline]) -> Undone | None:
    """Return the work of a marker that names no interval, as it would be redone; of reloads by interval the newest one."""
    parsed, recorded = parse_app_id(name), log.recorded(name)
    if parsed is None or recorded is None or isinstance(parsed[2], Interval):
        return None
    pipeline, target, slice_ = parsed
    newest, declared = newest_reload(recorded) if isinstance(slice_, Whole) else None, pipelines.get(pipeline)
    if newest is None:
        return Undone(pipeline, target, slice_, recorded + 1)
    # Of a reload whose pipeline is not declared the interval is not known; its owner finds it by the start.
    cell = declared.grid.cell(newest) if declared and declared.grid else Named(newest.isoformat())
    return Undone(pipeline, target, cell, reload_generation(recorded) + 1)


def _is_done(name: str, work: Undone, log: TableLog, then: TableLog) -> bool:
    """Return whether the rows of a work without an interval are in a version."""
    known, requested = then.recorded(name), then.recorded(work.marker.app_id) or 0
    if known is None:
        return False
    if newest_reload(known):
        # Reloads by interval replace each other: only the last one's rows are there.
        return known == log.recorded(name) and requested < work.generation
    return known >= requested
