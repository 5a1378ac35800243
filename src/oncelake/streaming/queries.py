"""The query of a stream pipeline: Structured Streaming reads, and every micro-batch is a slice of work like any other.

Spark numbers the batches, records their offsets before they run, and repeats one that it did not finish. The batch enters
at `run_slice`: the log of each target is asked, and only what is missing is written, in a commit that carries the stream,
the number and the offsets.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import WriteFailed
from oncelake.model.failpoints import failpoint
from oncelake.model.slices import Batch
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome
from oncelake.planning.batches import plan_batches
from oncelake.planning.streams import DECLARED, PROGRESS, StreamState, declared_content, stream_reading
from oncelake.running.attempt import failure_of
from oncelake.running.context import RunContext
from oncelake.running.execute import report_ended, run_slice
from oncelake.spark.materialize import run_plan
from oncelake.spark.session import clone_session
from oncelake.storage.objects import storage, write_file
from oncelake.storage.stream_checkpoint import (
    COMMITS,
    begin_checkpoint,
    load_checkpoint,
    read_first,
    read_offsets,
    remove_entries,
)
from oncelake.streaming.failures import error_of_stream, known_failure
from oncelake.streaming.micro_batch import MicroBatch, good_rows
from oncelake.streaming.one_pass import OnePass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE = "spark.sql.streaming.stateStore."
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {f"{_STATE}providerClass": _ROCKSDB, f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true"}
# How long the driver waits for the end of a query before it looks for Ctrl-C, in seconds.
_LOOK = 1
# How long it waits at most for Spark to record a finished batch, and between two looks.
_RECORDING, _MOMENT = 10, 0.05
# PySpark takes no 0.
_AT_ONCE = 0.001


class BatchFailed(Exception):
    """A batch was not committed everywhere: the query stops, and Spark repeats the batch at the next start."""


class StreamQuery:
    """One query of a pipeline, from its start to its end, and the outcomes of its batches."""

    def __init__(self, pipeline: Pipeline, state: StreamState, context: RunContext, only: int | None = None) -> None:
        """Nothing is started yet. With `only` the query ends after the batch of that number."""
        self.pipeline, self.state, self.context, self.only = pipeline, state, context, only
        self.outcomes: list[Outcome] = []
        self._query: StreamingQuery | None = None
        # Held while a batch is written: a query is stopped between two batches.
        self._writing, self._stopping = threading.Lock(), False
        # The last batch that every target has.
        self._written: int | None = None
        self._told = -1
        self._one_pass = OnePass(pipeline)
        # What ended the process in a batch: Spark's thread would wait for ever for an answer to its call.
        self._raised: BaseException | None = None

    def start(self, seconds: float | None = None) -> None:
        """Start the query: with what is available now, or, with `seconds`, with a look for more every so many of them."""
        session = _stream_session(self.context.session())
        _forget_error(self.state.folder)
        rows = self._open(session)
        mode = "update" if self.pipeline.stateful else "append"
        trigger: dict[str, Any] = (
            {"availableNow": True} if seconds is None else {"processingTime": f"{seconds} seconds"}
        )
        # A pool each, so that streams that run together share the cores.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self.pipeline.name)
        try:
            writer = rows.writeStream.outputMode(mode).foreachBatch(self._process).trigger(**trigger)
            writer = writer.queryName(self.pipeline.name).option("checkpointLocation", self.state.checkpoint_folder)
            self._query = writer.start()
        finally:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def wait(self) -> list[Outcome]:
        """Wait for the end of the query, and return the outcomes of its batches."""
        try:
            while not self.ended(_LOOK):
                pass
        except KeyboardInterrupt:
            self.stop()
            raise
        except Exception as error:  # noqa: BLE001  whatever ended the query, the report says it
            if self._raised is not None:
                raise self._raised from None
            self._end_with(error)
        return self.outcomes

    def ended(self, seconds: float = _AT_ONCE) -> bool:
        """Return whether the query has ended within so many seconds; raise what ended it."""
        assert self._query is not None
        done = self._query.awaitTermination(seconds)  # type: ignore[arg-type]
        self._note_progress()
        return bool(done)

    def stop(self) -> None:
        """Stop the query after the batch that is being written."""
        self._stopping = True
        with self._writing:
            pass  # a batch that begins after this one is refused at once, so that the query can end
        with suppress(Exception):
            self._await_commit()
        with suppress(Exception):
            if self._query is not None:
                self._query.stop()

    def _await_commit(self) -> None:
        """Wait until Spark has recorded the last batch as finished: without that the next start goes through it again."""
        until = time.monotonic() + _RECORDING
        while self._query is not None and self._written is not None and time.monotonic() < until:
            commits = storage(self.state.checkpoint_folder).names(COMMITS)
            if str(self._written) in commits or self._query.awaitTermination(_MOMENT):  # type: ignore[arg-type]
                return

    def _end_with(self, error: Exception) -> None:
        """Take in why the query ended, unless a batch has reported that already."""
        if self.only is not None and self._stopping:
            return
        bad = [outcome for outcome in self.outcomes if outcome.outcome not in (COMMITTED, ALREADY_DONE)]
        found = error_of_stream(error, self.pipeline)
        self._note_progress((bad[0].error or "").partition("\n")[0] if bad else found.message)
        if bad:
            return
        checkpoint = load_checkpoint(self.state.checkpoint_folder)
        batch = Batch(self.state.id.text, (checkpoint.finished if checkpoint else -1) + 1)
        failed = [failure_of(item.work, found) for item in plan_batches(self.pipeline, [batch], {})]
        self.outcomes += report_ended(failed, self.context, attempted=False)

    def _open(self, session: SparkSession) -> DataFrame:
        stream, reading = self.pipeline.stream, stream_reading(self.pipeline, self.context.lake)
        assert stream is not None
        rows = stream.open_stream(session, reading)
        if not self.pipeline.stateful:
            return rows
        decoded = stream.decode(rows)
        (name,) = self.pipeline.reads
        result: Any = self.pipeline.function(**{name: good_rows(decoded)})
        frame: DataFrame = result[self.pipeline.writes[0].target] if isinstance(result, dict) else result
        return frame

    def _process(self, frame: DataFrame, number: int) -> None:
        """Write one batch to every target that lacks it. Called by Spark, in a thread of its own."""
        with self._writing:
            if self._stopping or (self.only is not None and number > self.only):
                self._stopping = True
                raise BatchFailed("stopped between two batches")
            try:
                failpoint("batch")
                outcomes = self._write(frame, int(number))
            except Exception:
                raise
            except BaseException as raised:  # noqa: BLE001  it is raised again where the query is waited for
                self._raised = raised
                raise BatchFailed("the process ends") from None
            self.outcomes += outcomes
        bad = [outcome for outcome in outcomes if outcome.outcome not in (COMMITTED, ALREADY_DONE)]
        if bad:
            raise BatchFailed(f"batch {number}: {bad[0].error}")
        self._written = int(number)

    def _write(self, frame: DataFrame, number: int) -> list[Outcome]:
        name = next(name for name, source in self.pipeline.reads.items() if source is self.pipeline.stream)
        logs = {target: self.context.lake.table(target).log() for target in self.pipeline.writes_tables}
        items = list(plan_batches(self.pipeline, [Batch(self.state.id.text, number)], logs))
        batch = self._micro_batch(frame, number, any(item.action == "skip" for item in items))
        self._one_pass.choose(batch)
        function = self._one_pass.function(name, batch)
        if self.pipeline.stateful:
            function = wraps(function)(lambda **frames: frames[name])
        pipeline = replace(self.pipeline, reads={**self.pipeline.reads, name: batch}, function=function)
        # A batch runs in a session of its query. A JVM that dies takes the query along, so it is not started again here.
        context = replace(self.context, session=lambda: frame.sparkSession, restart=lambda: False)
        outcomes = [self._explained(outcome) for outcome in run_slice(pipeline, items, [], context)]
        self._one_pass.note(batch)
        if self.pipeline.stateful and all(outcome.outcome == ALREADY_DONE for outcome in outcomes):
            # The target has it, and nothing has read the frame: the state would stay that of the batch before.
            run_plan(frame)
        return outcomes

    def _explained(self, outcome: Outcome) -> Outcome:
        """Return an outcome with the error of ours, if the source or the state failed while the rows were computed."""
        failed = outcome.code == WriteFailed.code
        known = known_failure(outcome.error or "", self.pipeline.name, self.pipeline.where) if failed else None
        return failure_of(outcome.work, known) if known else outcome

    def _micro_batch(self, frame: DataFrame, number: int, begun: bool) -> MicroBatch:
        assert self.pipeline.stream is not None
        offsets = read_offsets(self.state.checkpoint_folder, number)
        if offsets is None:
            raise BatchFailed(f"the checkpoint has no offsets of batch {number}")
        before = read_offsets(self.state.checkpoint_folder, number - 1)
        first = read_first(self.state.checkpoint_folder) if number == 0 else None
        # A lost checkpoint is rebuilt from these, so they say all that it says of the batch.
        pins = {
            "stream": self.state.id.text,
            "batch": number,
            "offsets": offsets.document(),
            "from": list(before.sources) if before else [first] if first else None,
            "source": dict(self.pipeline.stream.stream_identity),
        }
        return MicroBatch(self.pipeline.stream, frame, pins, self.state.folder, self.pipeline.stateful, begun)

    def _note_progress(self, error: str | None = None) -> None:
        """Write how far the query is where `status` finds it. It is for people: nothing depends on it."""
        with suppress(Exception):
            progress = self._query.lastProgress if self._query else None
            if error is None and (progress is None or progress["batchId"] == self._told):
                return
            self._told = progress["batchId"] if progress else self._told
            document = progress_document(progress, error)
            write_file(self.state.folder, PROGRESS, json.dumps(document).encode())


def progress_document(progress: Any, error: str | None) -> dict[str, Any]:
    """Return what `status` shows of a query, by Spark's account of its last batch."""
    found = json.loads(progress.json) if hasattr(progress, "json") else dict(progress or {})
    source, state = (found.get("sources") or [{}])[0], found.get("stateOperators") or []
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "batch": found.get("batchId"),
        "rows_per_second": found.get("processedRowsPerSecond"),
        "watermark": (found.get("eventTime") or {}).get("watermark"),
        "behind": (source.get("metrics") or {}).get("maxOffsetsBehindLatest"),
        "state_rows": sum(each.get("numRowsTotal", 0) for each in state) if state else None,
        "state_bytes": sum(each.get("memoryUsedBytes", 0) for each in state) if state else None,
        "error": error,
    }


def _forget_error(folder: str) -> None:
    """Take out of what was noted of a stream why its last query ended: another one begins."""
    with suppress(OSError, ValueError, AttributeError):
        noted = json.loads(storage(folder).read(PROGRESS))
        if noted.pop("error", None):
            write_file(folder, PROGRESS, json.dumps(noted).encode())


def prepare_checkpoint(pipeline: Pipeline, state: StreamState) -> None:
    """Make a checkpoint ready for its query: with the id of the stream, and without what a kill left half written.

    Spark refuses a new checkpoint that has temporary files, which a kill during the first batch leaves, and it cannot write a
    commit beside the checksum of one that was removed.
    """
    if state.checkpoint is not None:
        remove_entries(state.checkpoint_folder, state.checkpoint.temporary)
    if state.checkpoint is None or state.checkpoint.is_empty:
        write_file(state.folder, DECLARED, declared_content(pipeline))
        if state.checkpoint is None or state.checkpoint.query != state.id.query:
            begin_checkpoint(state.checkpoint_folder, state.id.query)
    failpoint("checkpoint")


def _stream_session(session: SparkSession) -> SparkSession:
    """Return a session of the query's own, whose settings are not the user's: state in RocksDB, with changelogs."""
    cloned = clone_session(session)
    for name, value in SETTINGS.items():
        cloned.conf.set(name, value)
    return cloned
