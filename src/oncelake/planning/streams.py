"""Where a stream stands: its checkpoint, and what the logs of its targets say of the same batches.

The targets decide. A checkpoint that does not fit them would skip rows or write them twice: the stream stops and asks.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from oncelake.declare.code_fingerprint import code_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.errors import (
    CheckpointBehind,
    CheckpointCopied,
    CheckpointLost,
    CheckpointMisplaced,
    CheckpointTorn,
    OncelakeError,
    RestartUnfinished,
    StateAhead,
    StreamChanged,
)
from oncelake.model.contracts import Lake, Log, Reading
from oncelake.model.slices import Batch, Whole
from oncelake.model.streams import UNCLEARED, BatchOffsets, Lag, StreamId
from oncelake.model.work import Planned
from oncelake.planning.batches import plan_batches
from oncelake.planning.checkpoint_place import expiry_problem, place_problem
from oncelake.storage.objects import storage, write_file
from oncelake.storage.stream_checkpoint import StreamCheckpoint, load_checkpoint

CHECKPOINT, DECLARED, QUARANTINE, PROGRESS = "checkpoint", "stream.json", "quarantine", "progress.json"
SOURCE_IDS = "source_ids.json"


@dataclass(frozen=True)
class StreamState:
    """Where a stream stands, and whether it may go on."""

    id: StreamId
    # The folder of this epoch: checkpoint, quarantine, and what was declared when it began.
    folder: str
    checkpoint: StreamCheckpoint | None = None
    # The last batch of each target; -1 if it has none.
    batches: Mapping[str, int] = field(default_factory=dict)
    lag: Lag = field(default_factory=lambda: Lag(None, "rows"))
    problem: OncelakeError | None = None
    notes: tuple[str, ...] = ()
    # Targets that are added to, and still have the rows of an earlier epoch: to be removed before anything is read again.
    uncleared: tuple[str, ...] = ()
    # Where another checkpoint than the stream's own is used, to read one batch again.
    checkpoint_path: str | None = None

    @property
    def checkpoint_folder(self) -> str:
        """The checkpoint's folder."""
        return self.checkpoint_path or posixpath.join(self.folder, CHECKPOINT)

    @property
    def quarantine_folder(self) -> str:
        """The folder of the table of messages that could not be decoded."""
        return posixpath.join(self.folder, QUARANTINE)

    @property
    def done(self) -> int | None:
        """The last batch that every target has; None if one of them has none."""
        last = min(self.batches.values(), default=-1)
        return None if last < 0 else last

    @property
    def finished(self) -> int:
        """The last batch that the query finished; -1 if there is none."""
        return self.checkpoint.finished if self.checkpoint else -1

    @property
    def unfinished(self) -> bool:
        """Whether a batch was begun and not finished: Spark runs it again."""
        return self.checkpoint is not None and self.checkpoint.begun > self.checkpoint.finished

    @property
    def missing(self) -> list[int]:
        """The finished batches that some target lacks: it was restored, dropped, or added later."""
        first = min(self.batches.values(), default=-1) + 1
        return list(range(first, self.finished + 1))

    @property
    def is_current(self) -> bool:
        """Whether nothing waits, as far as that is known without Spark."""
        return not self.unfinished and not self.missing and self.lag.count == 0

    def position(self) -> str | None:
        """Return the offset of the source up to which batches are finished, or where the first will begin, if that is known."""
        return self.position_before(self.checkpoint.finished + 1) if self.checkpoint else None

    def position_before(self, number: int) -> str | None:
        """Return the offset of the source at which a batch begins, if that is known."""
        if self.checkpoint is None:
            return None
        offsets = self.checkpoint.read_offsets(number - 1)
        if offsets is None and number > 0 and self.checkpoint.begun >= 0:
            return None
        return offsets.sources[0] if offsets else self.checkpoint.first


def read_stream_state(pipeline: Pipeline, logs: Mapping[str, Log | None], lake: Lake) -> StreamState:
    """Return where the stream of a pipeline stands, and how far its source is ahead of it. Needs no JVM."""
    assert pipeline.stream is not None
    state, reading = find_stream(pipeline, logs, lake), stream_reading(pipeline, lake)
    lag = pipeline.stream.lag(reading, state.position())
    notes = (*pipeline.stream.notes(reading), *_pattern_notes(pipeline), *code_notes(pipeline, state))
    state = replace(state, lag=lag, notes=(*notes, *_lost_notes(lag)))
    problem = misplaced(pipeline, state.checkpoint_folder, lake) or _problem(pipeline, state, logs)
    if problem is None and lag.count is not None:  # a broker that does not answer is not asked twice
        problem = recreated(pipeline, state, reading)
    return replace(state, problem=problem)


def find_stream(pipeline: Pipeline, logs: Mapping[str, Log | None], lake: Lake) -> StreamState:
    """Return where the stream of a pipeline stands, by its checkpoint and its targets alone."""
    known = {
        target: _streams(pipeline, target, log) for target, log in logs.items() if target in pipeline.writes_tables
    }
    root = stream_folder(pipeline, lake)
    epoch = max([1, *_epochs(root), *(each.epoch for found in known.values() for each in found)])
    ids = [StreamId.of(name, epoch) for name in (pipeline.name, *(pipeline.formerly or ()))]
    identity = next((each for each in ids for found in known.values() if each in found), ids[0])
    folder = posixpath.join(root, str(epoch))
    checkpoint = load_checkpoint(posixpath.join(folder, CHECKPOINT))
    if checkpoint is not None and checkpoint.query in [each.query for each in ids]:
        identity = next(each for each in ids if each.query == checkpoint.query)
    batches = {target: max(found.get(identity, -1), -1) for target, found in known.items()}
    return StreamState(identity, folder, checkpoint, batches, uncleared=_uncleared(pipeline, identity, known))


def misplaced(pipeline: Pipeline, folder: str, lake: Lake, *, ask_store: bool = False) -> CheckpointMisplaced | None:
    """Return that a checkpoint would get lost where it is, or None; the store is asked for its rules if `ask_store`."""
    tables = {name: lake.table(name).path for name in pipeline.reads_tables | pipeline.writes_tables}
    problem = place_problem(folder, lake.path, tables) or (expiry_problem(folder) if ask_store else None)
    return CheckpointMisplaced(pipeline=pipeline.name, folder=folder, problem=problem) if problem else None


def stream_reading(pipeline: Pipeline, lake: Lake) -> Reading:
    """Return what the source of a stream is asked with."""
    return Reading(pipeline.name, Whole(), None, lake, pipeline.where, pipeline.formerly or ())


def stream_folder(pipeline: Pipeline, lake: Lake) -> str:
    """Return the folder of a pipeline's stream; of a renamed one, that of its former name."""
    names = (pipeline.name, *(pipeline.formerly or ()))
    folders = [lake.stream_path(quote(name, safe=" ")) for name in names]
    return next((folder for folder in folders if _epochs(folder)), folders[0])


def _epochs(folder: str) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in storage(folder).names() if name.isdigit()]
    return []


def _uncleared(pipeline: Pipeline, identity: StreamId, known: Mapping[str, Mapping[StreamId, int]]) -> tuple[str, ...]:
    """Return the targets that are added to, and whose rows of an earlier epoch were not removed for this one.

    The commit that removes them carries the marker of this epoch, as batch -1. A restore to before it sets the marker to -2.
    """
    return tuple(
        sorted(
            target
            for target, found in known.items()
            if not pipeline.pattern(target).restates
            and found.get(identity, UNCLEARED) <= UNCLEARED
            and any(number >= 0 for each, number in found.items() if each.epoch < identity.epoch)
        )
    )


def _streams(pipeline: Pipeline, target: str, log: Log | None) -> dict[StreamId, int]:
    """Return the streams of a pipeline in the log of a target: the last batch of each."""
    names = (pipeline.name, *(pipeline.formerly or ()))
    found = log.streams(names, target) if log else {}
    return {each: number for text, number in found.items() if (each := StreamId.parse(text))}


def _lost_notes(lag: Lag) -> list[str]:
    return [f"lost before they were read: {lag.lost}; the stream will stop and say so"] if lag.lost else []


def _pattern_notes(pipeline: Pipeline) -> list[str]:
    return [
        f"{pattern.target}: each batch replaces the partitions it has rows of, so one whose rows come in several batches keeps the last"
        for pattern in pipeline.writes
        if pattern.kind == "replace_partitions"
    ]


def code_notes(pipeline: Pipeline, state: StreamState) -> list[str]:
    """Return that the function of a stream with state changed: the groups that it has so far are of the former one."""
    before = (read_declared(state.folder) or {}).get("code")
    if not pipeline.stateful or before in (None, code_fingerprint(pipeline.function)) or state.finished < 0:
        return []
    again = f"oncelake restart {pipeline.name} --from-beginning"
    return [f"the function changed, and the state has the groups of the former one; to compute them again: {again}"]


def _problem(pipeline: Pipeline, state: StreamState, logs: Mapping[str, Log | None]) -> OncelakeError | None:
    """Return why a stream may not go on, or None."""
    facts = {"pipeline": pipeline.name, "folder": state.checkpoint_folder}
    checkpoint, newest = state.checkpoint, max(state.batches.values(), default=-1)
    if unfinished := _unfinished_restart(state, newest, facts):
        return unfinished
    ahead = max(state.batches, key=lambda each: state.batches[each], default="")
    if checkpoint is None or (checkpoint.is_empty and not checkpoint.torn):
        return CheckpointLost(target=ahead, batch=newest, **facts) if newest >= 0 else None
    if checkpoint.torn:
        return CheckpointTorn(file=checkpoint.torn[0], **facts)
    if checkpoint.query != state.id.query:
        return CheckpointCopied(found=checkpoint.query or "none", known=state.id.query, **facts)
    if newest > checkpoint.begun:
        return CheckpointBehind(target=ahead, batch=newest, begun=checkpoint.begun, **facts)
    if pipeline.stateful and state.missing:
        target = min(state.batches, key=lambda each: state.batches[each])
        return StateAhead(target=target, first=state.missing[0], last=state.missing[-1], **facts)
    for target, number in state.batches.items():
        if _differ(pipeline, target, number, state, logs.get(target)):
            return CheckpointBehind(target=target, batch=number, begun=checkpoint.begun, **facts)
    return _changed(pipeline, state)


def _unfinished_restart(state: StreamState, newest: int, facts: Mapping[str, str]) -> RestartUnfinished | None:
    if state.uncleared:
        problem = f"{state.uncleared[0]} still has the rows of the epoch before, which would be doubled"
        return RestartUnfinished(problem=problem, epoch=state.id.epoch, **facts)
    if state.checkpoint is None and state.id.epoch > 1 and newest < 0:
        # A checkpoint is begun where the first batch of the epoch before began: a new one may start at another place.
        return RestartUnfinished(problem="its checkpoint is not begun", epoch=state.id.epoch, **facts)
    return None


def _differ(pipeline: Pipeline, target: str, number: int, state: StreamState, log: Log | None) -> bool:
    """Return whether the last batch of a target was read from other offsets than the checkpoint has for that number."""
    assert state.checkpoint is not None
    recorded, ours = recorded_offsets(pipeline, target, number, state.id, log), state.checkpoint.read_offsets(number)
    return recorded is not None and ours is not None and recorded.sources != ours.sources


def recorded_offsets(
    pipeline: Pipeline, target: str, number: int, identity: StreamId, log: Log | None
) -> BatchOffsets | None:
    """Return the offsets that a target's own commit of a batch records, if its log still has it."""
    commit = (
        log.commit(pipeline.pattern(target).marker(pipeline.name, Batch(identity.text, number), 1).app_id)
        if log
        else None
    )
    return facts_offsets(commit.facts, number) if commit else None


def facts_offsets(facts: Mapping[str, Any], number: int) -> BatchOffsets | None:
    """Return the offsets of a batch in the facts of its commit; None if they are of another batch."""
    pins = batch_pins(facts)
    return BatchOffsets.from_facts(pins["offsets"]) if pins.get("batch") == number else None


def batch_pins(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the commit of a batch records of its input; empty if it is no batch of a stream."""
    found = (facts.get("pins") or {}).values()
    return next((pins for pins in found if isinstance(pins, Mapping) and "offsets" in pins), {})


def _changed(pipeline: Pipeline, state: StreamState) -> StreamChanged | None:
    """Return that the stream was declared with another source, or kept another state, when its checkpoint was begun."""
    if state.checkpoint is None or state.checkpoint.is_empty:
        return None
    before = read_declared(state.folder) or {}
    for name, value in _declared_shape(pipeline).items():
        if before.get(name, value) != value:
            facts = {"pipeline": pipeline.name, "where": pipeline.where}
            return StreamChanged(what=name, before=json.dumps(before[name]), now=json.dumps(value), **facts)
    return None


def fits_declared(pipeline: Pipeline, folder: str) -> bool:
    """Return whether a stream is declared as it was when its epoch began, as far as that is recorded."""
    before = read_declared(folder) or {}
    return all(before.get(name, value) == value for name, value in _declared_shape(pipeline).items())


def recreated(pipeline: Pipeline, state: StreamState, reading: Reading) -> StreamChanged | None:
    """Return that a topic was deleted and created again since its offsets were recorded, or None.

    Its offsets begin at 0 again: behind the recorded ones the stream would go on and leave out what is before them.
    """
    before = _read_document(state.folder, SOURCE_IDS)
    if not before or state.finished < 0:
        return None
    assert pipeline.stream is not None
    now = pipeline.stream.source_ids(reading)
    other = next((name for name in now if before.get(name, now[name]) != now[name]), None)
    if other is None:
        return None
    facts = {"pipeline": pipeline.name, "where": pipeline.where, "what": f"topic {other}"}
    return StreamChanged(before=f"another one (id {before[other]})", now=f"created again (id {now[other]})", **facts)


def record_source_ids(pipeline: Pipeline, state: StreamState, reading: Reading) -> None:
    """Record the ids of what a stream reads, once in an epoch."""
    assert pipeline.stream is not None
    if _read_document(state.folder, SOURCE_IDS) is None and (ids := pipeline.stream.source_ids(reading)):
        write_file(state.folder, SOURCE_IDS, json.dumps(dict(ids)).encode())


def declared_content(pipeline: Pipeline) -> bytes:
    """Return what is recorded of the declaration when an epoch begins; with the code of a function that makes the state."""
    code = {"code": code_fingerprint(pipeline.function)} if pipeline.stateful else {}
    return json.dumps(_declared_shape(pipeline) | code).encode()


def _declared_shape(pipeline: Pipeline) -> dict[str, Any]:
    """Return what may not change under a checkpoint: the source, and whether the query keeps state, and by which keys."""
    assert pipeline.stream is not None
    keys = [list(pattern.keys) for pattern in pipeline.writes] if pipeline.stateful else []
    return {"source": dict(pipeline.stream.stream_identity), "stateful": pipeline.stateful, "keys": keys}


def read_declared(folder: str) -> dict[str, Any] | None:
    """Return what was declared when the epoch of a stream began, if that is recorded."""
    return _read_document(folder, DECLARED)


def _read_document(folder: str, name: str) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(storage(folder).read(name))
        return found if isinstance(found, dict) else None
    return None


def plan_stream(
    pipeline: Pipeline, state: StreamState, logs: Mapping[str, Log | None], earlier: Sequence[Planned]
) -> Iterator[Planned]:
    """Return the next batch of a stream, unless nothing waits: how many there will be is known after the run."""
    fed = any(item.target in pipeline.reads_tables and item.action == "run" for item in earlier)
    if state.problem is None and state.is_current and not fed:
        return
    first = state.missing[0] if state.missing else state.finished + 1
    why = f"{len(state.missing)} batches to read again" if state.missing else str(state.lag)
    for item in plan_batches(pipeline, [Batch(state.id.text, first)], logs):
        if state.problem is not None:
            yield replace(item, action="wait", why=state.problem.message, refusal=state.problem)
        elif not (state.missing and item.action == "skip"):  # read again for the targets that lack it
            yield replace(item, action="run", why=why)
