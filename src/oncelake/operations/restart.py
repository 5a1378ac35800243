"""Restart a stream whose checkpoint is lost or does not fit its targets. No JVM.

`adopt` rebuilds the checkpoint from what the targets' own commits record of their last batch, and nothing is read twice.
`from_beginning` begins the next epoch of the stream, which reads everything again into the same rows: targets that are set by
key are set again, and those that are added to lose their rows first, in a commit that carries the marker of the new epoch.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta import writes
from oncelake.delta.log import TableLog
from oncelake.delta.tables import Lake, require_log
from oncelake.errors import (
    CannotRestart,
    CheckpointMisplaced,
    NotAStream,
    RestartUnfinished,
    StreamChanged,
)
from oncelake.model.contracts import Stamp
from oncelake.model.failpoints import failpoint
from oncelake.model.markers import Marker
from oncelake.model.slices import Batch
from oncelake.model.streams import CLEARED, BatchOffsets, Beginning, StreamId
from oncelake.operations.table_writers import other_writers
from oncelake.planning.streams import (
    CHECKPOINT,
    DECLARED,
    StreamState,
    batch_pins,
    declared_content,
    fits_declared,
    read_declared,
    read_stream_state,
    recreated,
    stream_reading,
)
from oncelake.running.commit import Claim, Conflict, commit_and_ask, commit_once
from oncelake.running.invocation import find_invocation
from oncelake.storage.objects import create_folder, move_folder, replace_file, storage
from oncelake.storage.stream_checkpoint import FIRST, METADATA, first_offset_content, metadata_content, write_checkpoint
from oncelake.storage.stream_lock import hold_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADOPT, FROM_BEGINNING = "--adopt", "--from-beginning"
RESTARTED = "restart.json"
Logs = Mapping[str, TableLog | None]


@dataclass(frozen=True)
class Cleared:
    """A target whose rows are removed before they are read again; how many, if the log says so, and the version."""

    target: str
    rows: int | None
    version: int | None = None


@dataclass(frozen=True)
class Restart:
    """What a restart does, or has done: "planned", "done", or "already_done" if there was nothing to do."""

    pipeline: str
    how: str
    epoch: int
    next_batch: int
    checkpoint: str
    outcome: str = "planned"
    # Where the old checkpoint is now.
    moved_to: str | None = None
    clears: tuple[Cleared, ...] = ()
    lost: str = ""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the restart as `restart --json` prints it."""
        return {
            **vars(self),
            "how": self.how.removeprefix("--"),
            "clears": [vars(each).copy() for each in self.clears],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Restarting:
    """A restart under way: the pipeline, all pipelines of its project, and what is around it."""

    pipeline: Pipeline
    pipelines: Mapping[str, Pipeline]
    lake: Lake
    session: Callable[[], SparkSession]
    lock_timeout: float
    project: str | None = None

    def __post_init__(self) -> None:
        """Refuse a pipeline that reads no stream."""
        if self.pipeline.stream is None:
            raise NotAStream(pipeline=self.pipeline.name, where=self.pipeline.where)

    def adopt(self, dry_run: bool = False) -> Restart:
        """Rebuild the checkpoint from the targets' own commits."""
        if dry_run:
            return self._plan_adoption()[0]
        with hold_stream(self.lake.path, self.pipeline.name, self.lock_timeout, self._command(ADOPT)):
            planned, offsets, first = self._plan_adoption()
            return planned if planned.outcome == "already_done" else self._adopt(planned, offsets, first)

    def from_beginning(self, dry_run: bool = False, accept_loss: bool = False) -> Restart:
        """Begin the next epoch; the next run reads everything again. The same command resumes one that was killed."""
        if dry_run:
            return self._plan_epoch(accept_loss)[0]
        with hold_stream(self.lake.path, self.pipeline.name, self.lock_timeout, self._command(FROM_BEGINNING)):
            planned, identity, files = self._plan_epoch(accept_loss)
            return planned if planned.outcome == "already_done" else self._begin_epoch(planned, identity, files)

    def _plan_adoption(self) -> tuple[Restart, dict[int, BatchOffsets], str | None]:
        state, logs = self._state()
        lowest, newest = min(state.batches.values(), default=-1), max(state.batches.values(), default=-1)
        planned = self._planned(ADOPT, state, newest + 1 if lowest == newest else newest)
        if state.problem is None and state.checkpoint is not None:
            return replace(planned, outcome="already_done", next_batch=state.finished + 1), {}, None
        self._refuse_adoption(state, newest)
        pins = self._newest_pins(state, newest, logs)
        if pins["source"] != dict(self._stream.stream_identity):
            now, before = json.dumps(dict(self._stream.stream_identity)), json.dumps(pins["source"])
            raise StreamChanged(
                what="source", before=before, now=now, pipeline=self.pipeline.name, where=self.pipeline.where
            )
        offsets = {newest: BatchOffsets.from_facts(pins["offsets"])}
        if newest > 0:
            # Of the batch before only the offsets are used, not what Spark records with them.
            offsets = {newest - 1: BatchOffsets(tuple(pins["from"]), offsets[newest].metadata), **offsets}
        first = pins["from"][0] if newest == 0 and pins["from"] else self._first(state, logs)
        behind = {target: number for target, number in state.batches.items() if number < newest}
        notes = [
            f"{target} is at batch {number}: the batches after it are read again" for target, number in behind.items()
        ]
        if lost := self._stream.lag(stream_reading(self.pipeline, self.lake), offsets[newest].sources[0]).lost:
            notes.append(f"lost before they were read: {lost}; the stream will stop and say so")
        return replace(planned, notes=tuple(notes)), offsets, first

    def _refuse_adoption(self, state: StreamState, newest: int) -> None:
        if self.pipeline.stateful:
            problem = "its query keeps state, and the state cannot be rebuilt from the commits"
            raise self._refusal(ADOPT, problem, self._command(FROM_BEGINNING))
        if isinstance(state.problem, RestartUnfinished | CheckpointMisplaced | StreamChanged):
            raise state.problem
        if newest < 0:
            then = self._command(FROM_BEGINNING) if state.problem else f"oncelake run {self.pipeline.name}"
            raise self._refusal(ADOPT, "none of its targets has a batch", then)

    def _newest_pins(self, state: StreamState, newest: int, logs: Logs) -> Mapping[str, Any]:
        """Return what the commits of the newest batch record of its input; they must agree."""
        found = []
        for target in (target for target, number in state.batches.items() if number == newest):
            app_id = self.pipeline.pattern(target).marker(self.pipeline.name, Batch(state.id.text, newest), 1).app_id
            log = logs[target]
            commit = log.commit(app_id) if log else None
            pins = batch_pins(commit.facts) if commit else {}
            if pins.get("batch") == newest and (newest == 0 or pins.get("from")):
                found.append(pins)
        if not found:
            problem = f"the logs of its targets no longer have the commit of batch {newest}"
            raise self._refusal(ADOPT, problem, self._command(FROM_BEGINNING))
        if any(pins["offsets"]["sources"] != found[0]["offsets"]["sources"] for pins in found):
            problem = f"its targets were written from different offsets in batch {newest}"
            raise self._refusal(ADOPT, problem, self._command(FROM_BEGINNING))
        return found[0]

    def _adopt(self, planned: Restart, offsets: dict[int, BatchOffsets], first: str | None) -> Restart:
        state, _ = self._state()
        if storage(state.checkpoint_folder).names():
            planned = replace(planned, moved_to=_aside(state.checkpoint_folder))
            move_folder(state.checkpoint_folder, str(planned.moved_to))
        failpoint("moved")
        finished = [planned.next_batch - 1] if planned.next_batch > 0 else []
        write_checkpoint(state.checkpoint_folder, state.id.query, offsets, finished, first)
        if read_declared(state.folder) is None:
            replace_file(state.folder, DECLARED, declared_content(self.pipeline))
        if problem := self._state()[0].problem:
            raise problem
        return replace(planned, outcome="done")

    def _plan_epoch(self, accept_loss: bool) -> tuple[Restart, StreamId, dict[str, bytes]]:
        state, logs = self._state()
        if isinstance(state.problem, CheckpointMisplaced):
            raise state.problem
        resumed = isinstance(state.problem, RestartUnfinished)
        if not resumed and _is_fresh(state) and fits_declared(self.pipeline, state.folder):
            return replace(self._planned(FROM_BEGINNING, state, 0), outcome="already_done"), state.id, {}
        self._refuse_replacing(state)
        begun = state if resumed else self._next_epoch(state)
        clears = state.uncleared if resumed else self._added(state, logs)
        for target in clears:
            self._refuse_other_writers(target, logs)
        beginning = Beginning()
        if not resumed or state.checkpoint is None:
            beginning = self._beginning(state, logs)
            self._refuse_loss(beginning, accept_loss)
        rows = tuple(Cleared(target, log.rows() if (log := logs[target]) else None) for target in clears)
        lost = "; ".join(filter(None, (beginning.lost, beginning.doubt)))
        planned = replace(self._planned(FROM_BEGINNING, begun, 0), clears=rows, lost=lost)
        return replace(planned, notes=tuple(self._epoch_notes())), begun.id, self._epoch_files(begun, beginning)

    def _beginning(self, state: StreamState, logs: Logs) -> Beginning:
        reading = stream_reading(self.pipeline, self.lake)
        found: Beginning = self._stream.beginning(reading, self._first(state, logs))
        if other := recreated(self.pipeline, state, reading):
            return replace(found, lost="; ".join(filter(None, (f"the former {other.facts['what']}", found.lost))))
        return found

    def _next_epoch(self, state: StreamState) -> StreamState:
        identity = StreamId.of(self.pipeline.name, state.id.epoch + 1)
        return StreamState(identity, posixpath.join(posixpath.dirname(state.folder), str(identity.epoch)))

    def _epoch_files(self, begun: StreamState, beginning: Beginning) -> dict[str, bytes]:
        """Return the files that begin an epoch. The id of the query comes last: without it the restart is not finished."""
        offset = {f"{CHECKPOINT}/{FIRST}": first_offset_content(beginning.offset)} if beginning.offset else {}
        told = {"restarted": begun.id.epoch - 1, "accepted_loss": beginning.lost or beginning.doubt or None}
        return {
            **offset,
            RESTARTED: json.dumps(told).encode(),
            DECLARED: declared_content(self.pipeline),
            f"{CHECKPOINT}/{METADATA}": metadata_content(begun.id.query),
        }

    def _begin_epoch(self, planned: Restart, identity: StreamId, files: Mapping[str, bytes]) -> Restart:
        """Make the new epoch durable, which wins from then on, and then remove what it reads again."""
        folder = posixpath.dirname(planned.checkpoint)
        if not create_folder(folder, files) and METADATA not in storage(planned.checkpoint).names():
            for name, content in files.items():
                replace_file(folder, name, content)
        failpoint("restarted")
        cleared = tuple(self._clear(each, identity) for each in planned.clears)
        problem = self._state()[0].problem
        if isinstance(problem, RestartUnfinished):
            raise problem
        left = (f"{problem.message}; next: {problem.next}",) if problem else ()
        return replace(planned, outcome="done", clears=cleared, notes=(*planned.notes, *left))

    def _clear(self, planned: Cleared, identity: StreamId) -> Cleared:
        """Remove the rows of a target in one commit that carries the marker of the new epoch, unless that was done."""
        table, batch = self.lake.table(planned.target), Batch(identity.text, CLEARED)
        marker = self.pipeline.pattern(planned.target).marker(self.pipeline.name, batch, 1)
        command = self._command(FROM_BEGINNING)

        def act() -> Cleared:
            log = require_log(table)
            if log.done(marker):
                done = log.commit(marker.app_id)
                # Unless a commit that it did not see came in between, which it did not clear.
                if done is None or done.facts.get("as_of", done.version - 1) == done.version - 1:
                    return replace(planned, version=done.version if done else None)
            self._refuse_other_writers(planned.target, {planned.target: log})
            facts = {"pipeline": self.pipeline.name, "target": planned.target, "slice": batch.text, "generation": 1}
            facts |= {"cleared": identity.epoch, "attempt": uuid.uuid4().hex[:12], "as_of": log.version}
            facts |= {"project": self.project} if self.project else {}
            facts["invocation"] = find_invocation().document()
            stamp = Stamp(marker, json.dumps({"oncelake": facts}))
            commit_and_ask(
                lambda: writes.clear(table.path, stamp, self.session),
                lambda: _carries(require_log(table), marker, str(facts["attempt"])),
                table.name,
                command,
            )
            failpoint("cleared")
            after = require_log(table)
            if after.version != log.version + 1:
                raise Conflict(f"another commit came between version {log.version} and {after.version} of {table.name}")
            return replace(planned, version=after.version)

        return commit_once(act, Claim([table], f"restart {self.pipeline.name}", command), self.lock_timeout)

    def _added(self, state: StreamState, logs: Logs) -> tuple[str, ...]:
        """Return the targets that are added to and have batches of this stream."""
        names = (self.pipeline.name, *(self.pipeline.formerly or ()))
        return tuple(
            pattern.target
            for pattern in self.pipeline.writes
            if not pattern.restates
            and (log := logs[pattern.target]) is not None
            and (state.batches[pattern.target] >= 0 or any(n >= 0 for n in log.streams(names, pattern.target).values()))
        )

    def _refuse_replacing(self, state: StreamState) -> None:
        """Refuse targets that keep the last batch of a partition: batches are cut otherwise when everything is read again."""
        replaced = [pattern.target for pattern in self.pipeline.writes if pattern.kind == "replace_partitions"]
        for target in (target for target in replaced if state.batches.get(target, -1) >= 0):
            problem = (
                f"{target} keeps the rows of the last batch of each partition, and everything read again comes in other "
                "batches, so it would have other rows"
            )
            way = f"let {self.pipeline.name} write a new table ({self.pipeline.where}) instead of {target}, or remove {target}"
            raise self._refusal(FROM_BEGINNING, problem, f"{way}, then repeat: {self._command(FROM_BEGINNING)}")

    def _refuse_other_writers(self, target: str, logs: Logs) -> None:
        log = logs[target]
        if log is not None and (others := other_writers(self.pipeline, target, log, self.project)):
            problem = (
                f"{target} is added to, so its rows are removed before they are read again, "
                f"and others wrote rows there too: {', '.join(others[:3])}{', …' if len(others) > 3 else ''}"
            )
            way = f"let {self.pipeline.name} write a new table ({self.pipeline.where}) under a new name, or remove {target}"
            raise self._refusal(FROM_BEGINNING, problem, f"{way}, then run: oncelake run {self.pipeline.name}")

    def _refuse_loss(self, beginning: Beginning, accept_loss: bool) -> None:
        if accept_loss or not (beginning.lost or beginning.doubt):
            return
        problem = f"cannot be read again: {beginning.lost}" if beginning.lost else beginning.doubt
        raise self._refusal(FROM_BEGINNING, problem, f"{self._command(FROM_BEGINNING)} --accept-loss")

    def _epoch_notes(self) -> Iterator[str]:
        set_again = [pattern.target for pattern in self.pipeline.writes if pattern.restates]
        if set_again:
            yield f"{', '.join(set_again)}: read again on top, so values may be older until the stream has caught up"
        for other in self.pipelines.values():
            if other.stream is not None and (read := set(other.stream.tables) & self.pipeline.writes_tables):
                what = f"{other.name} reads {', '.join(sorted(read))} as a stream, where all rows come again"
                yield f"{what}; after the next run: oncelake restart {other.name} {FROM_BEGINNING}"

    def _first(self, state: StreamState, logs: Logs) -> str | None:
        """Return the offset at which the stream was first read, by its checkpoint or by the commit of its first batch."""
        checkpoint = state.checkpoint
        if checkpoint is not None and checkpoint.query == state.id.query and checkpoint.first:
            return checkpoint.first
        for log in logs.values():
            for entry in log.history() if log else ():
                pins = batch_pins(entry.facts)
                if pins.get("batch") == 0 and pins.get("stream") == state.id.text and pins.get("from"):
                    return str(pins["from"][0])
        return None

    def _state(self) -> tuple[StreamState, Logs]:
        logs = {target: self.lake.table(target).log() for target in sorted(self.pipeline.writes_tables)}
        return read_stream_state(self.pipeline, logs, self.lake), logs

    def _planned(self, how: str, state: StreamState, next_batch: int) -> Restart:
        return Restart(self.pipeline.name, how, state.id.epoch, next_batch, state.checkpoint_folder)

    @property
    def _stream(self) -> Any:
        return self.pipeline.stream

    def _command(self, how: str) -> str:
        return f"oncelake restart {self.pipeline.name} {how}"

    def _refusal(self, how: str, problem: str, then: str) -> CannotRestart:
        return CannotRestart(pipeline=self.pipeline.name, how=how, problem=problem, next=then)


def _carries(log: TableLog, marker: Marker, attempt: str) -> bool:
    """Return whether the newest commit of a marker is that of an attempt."""
    commit = log.commit(marker.app_id)
    return commit is not None and commit.facts.get("attempt") == attempt


def _is_fresh(state: StreamState) -> bool:
    """Return whether nothing was read in an epoch yet."""
    checkpoint = state.checkpoint
    empty = checkpoint is None or (checkpoint.is_empty and not checkpoint.torn)
    return empty and all(number < 0 for number in state.batches.values())


def _aside(folder: str) -> str:
    """Return where to move a checkpoint: it is never removed."""
    place = storage(posixpath.dirname(folder))
    taken = set(place.names())
    return next(f"{folder}-{n}.old" for n in range(1, len(taken) + 2) if f"{CHECKPOINT}-{n}.old" not in taken)
