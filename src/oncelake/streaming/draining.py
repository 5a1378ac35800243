"""Take in what is available now: the batches that some target lacks are read again first, then the query goes on."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BatchesUnknown, MessagesLost, OncelakeError, SparkLost, StreamsNotRemote
from oncelake.model.slices import Batch
from oncelake.model.streams import BatchOffsets, MessageSource
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome
from oncelake.planning.batches import plan_batches
from oncelake.planning.streams import (
    StreamState,
    code_notes,
    facts_offsets,
    misplaced,
    read_stream_state,
    record_source_ids,
    stream_reading,
)
from oncelake.running.attempt import failure_of
from oncelake.running.context import RunContext
from oncelake.running.execute import report_ended
from oncelake.spark.connect import is_connect
from oncelake.storage.objects import remove_folder, storage, write_file
from oncelake.storage.stream_checkpoint import SOURCES, write_checkpoint
from oncelake.storage.stream_lock import hold_stream
from oncelake.streaming.failures import error_of_stream
from oncelake.streaming.queries import StreamQuery, prepare_checkpoint

_REPLAY = "replay"


def drain(pipeline: Pipeline, context: RunContext) -> list[Outcome]:
    """Write what is available now, batch by batch, and return the outcomes. Errors are reported, not raised."""
    outcomes = _try_to_drain(pipeline, context)
    if outcomes and outcomes[-1].code == SparkLost.code and context.restart():
        context.warn(f"Spark's JVM died in the stream {pipeline.name}; it was started again")
        outcomes = [*outcomes[: -len(pipeline.writes)], *_try_to_drain(pipeline, context)]
    return outcomes


def _try_to_drain(pipeline: Pipeline, context: RunContext) -> list[Outcome]:
    try:
        with stream_lock(pipeline, context):
            return _drain(pipeline, context)
    except Exception as error:  # noqa: BLE001  whatever it is, the report says it
        return failed_batch(pipeline, context, error_of_stream(error, pipeline))


def _drain(pipeline: Pipeline, context: RunContext) -> list[Outcome]:
    state = ready_state(pipeline, context)
    outcomes = replay_missing(pipeline, state, context)
    if all(outcome.outcome in (COMMITTED, ALREADY_DONE) for outcome in outcomes):
        query = StreamQuery(pipeline, state, context)
        try:
            query.start()
        except Exception as error:  # noqa: BLE001  a query that does not start is reported like one that ends
            return [*outcomes, *_failed(pipeline, state, context, error_of_stream(error, pipeline))]
        outcomes += query.wait()
    return outcomes


def ready_state(pipeline: Pipeline, context: RunContext) -> StreamState:
    """Return where a stream stands, with its checkpoint ready for a query; raise if it may not go on."""
    if context.lake.remote or is_connect(context.session()):
        raise StreamsNotRemote(pipeline=pipeline.name)
    state = stream_state(pipeline, context)
    # Once per run, because it is a request to the store.
    if problem := state.problem or misplaced(pipeline, state.checkpoint_folder, context.lake, ask_store=True):
        raise problem
    if state.lag.lost and isinstance(pipeline.stream, MessageSource):
        # Spark notices it only when it reads there, and a topic that was cut off may have grown past it by then.
        raise MessagesLost(pipeline=pipeline.name, where=pipeline.where, problem=state.lag.lost)
    for note in code_notes(pipeline, state):
        context.warn(f"{pipeline.name}: {note}")
    prepare_checkpoint(pipeline, state)
    record_source_ids(pipeline, state, stream_reading(pipeline, context.lake))
    return state


def stream_state(pipeline: Pipeline, context: RunContext) -> StreamState:
    """Return where a stream stands, by the logs as they are now."""
    logs = {target: context.lake.table(target).log() for target in pipeline.writes_tables}
    return read_stream_state(pipeline, logs, context.lake)


@contextmanager
def stream_lock(pipeline: Pipeline, context: RunContext) -> Iterator[None]:
    """Hold the lock of a stream: a checkpoint is used by one query at a time. A living holder is not waited for."""
    context.session()  # before the lock, which notes the JVMs there are
    with hold_stream(context.lake.path, pipeline.name, context.lock_timeout, f"oncelake run {pipeline.name}"):
        yield


def replay_missing(pipeline: Pipeline, state: StreamState, context: RunContext) -> list[Outcome]:
    """Read the finished batches again that a target lacks, each from its recorded offsets: it was restored, or added later.

    Each is run by a query on a checkpoint of its own, which ends there: Spark repeats the newest batch that has no commit.
    """
    outcomes: list[Outcome] = []
    offsets = _recorded(pipeline, state, context) if state.missing else {}
    for number in state.missing:
        needed = [each for each in (number - 1, number) if each >= 0]
        if unknown := [each for each in needed if each not in offsets]:
            target = min(state.batches, key=lambda each: state.batches[each])
            last = state.missing[-1]
            raise BatchesUnknown(pipeline=pipeline.name, target=target, first=number, last=last, unknown=unknown[0])
        folder = posixpath.join(state.folder, _REPLAY)
        remove_folder(folder)
        write_checkpoint(folder, state.id.query, {each: offsets[each] for each in needed}, needed[:-1])
        _copy_sources(state.checkpoint_folder, folder)
        query = StreamQuery(pipeline, replace(state, checkpoint_path=folder), context, only=number)
        query.start()
        outcomes += query.wait()
        remove_folder(folder)
        if any(outcome.outcome not in (COMMITTED, ALREADY_DONE) for outcome in outcomes):
            break
    return outcomes


def _recorded(pipeline: Pipeline, state: StreamState, context: RunContext) -> dict[int, BatchOffsets]:
    """Return the offsets of batches, as far as the checkpoint or the commits of the targets still have them."""
    found: dict[int, BatchOffsets] = {}
    names = {pipeline.name, *(pipeline.formerly or ())}
    for target in pipeline.writes_tables:
        log = context.lake.table(target).last_log()
        # A batch that a restore took out may have been read again from other offsets: it does not count, and the newest wins.
        for entry in (each for each in log.newest(None) if log.in_lineage(each.version)) if log else ():
            if entry.facts.get("pipeline") in names and (number := _number(entry.facts, state)) is not None:
                offsets = facts_offsets(entry.facts, number)
                found = {number: offsets, **found} if offsets else found
    assert state.checkpoint is not None
    for number in state.checkpoint.offsets:
        offsets = state.checkpoint.read_offsets(number)
        found |= {number: offsets} if offsets else {}
    return found


def _number(facts: object, state: StreamState) -> int | None:
    """Return the number of the batch that a commit of this stream wrote."""
    from oncelake.model.slices import parse_slice

    slice_ = parse_slice(facts["slice"])  # type: ignore[index]
    return slice_.number if isinstance(slice_, Batch) and slice_.stream == state.id.text else None


def _copy_sources(checkpoint: str, folder: str) -> None:
    """Copy where the sources of a query began: the first batch starts there."""
    place = storage(checkpoint)
    for number in place.names(SOURCES):
        for name in place.names(f"{SOURCES}/{number}"):
            if name.isdigit():
                write_file(folder, f"{SOURCES}/{number}/{name}", place.read(f"{SOURCES}/{number}/{name}"))


def failed_batch(pipeline: Pipeline, context: RunContext, error: OncelakeError) -> list[Outcome]:
    """Return the outcomes of the next batch of a stream that could not go on."""
    return _failed(pipeline, stream_state(pipeline, context), context, error)


def _failed(pipeline: Pipeline, state: StreamState, context: RunContext, error: OncelakeError) -> list[Outcome]:
    batch = Batch(state.id.text, state.finished + 1)
    failed = [failure_of(item.work, error) for item in plan_batches(pipeline, [batch], {})]
    return report_ended(failed, context, attempted=False)
