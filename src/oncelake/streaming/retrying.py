"""Write messages from quarantine after a fix: read once more from Kafka, decoded, and written to each target once.

A retry is frozen in the quarantine before anything is written, and its marker names its messages. So whatever is killed, the
next retry finishes it first, with the same messages, and writes only what a target lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.quarantine import QUARANTINED
from oncelake.errors import CannotRetry, DecodedBefore, MessagesGone, StreamsNotRemote, TableBusy
from oncelake.model.arrivals import CountedRead, QuarantinedRow
from oncelake.model.contracts import Pins, Reading
from oncelake.model.failpoints import failpoint
from oncelake.model.slices import Slice
from oncelake.model.streams import MessageSource, StreamPart
from oncelake.model.work import Plan, Report, Scope
from oncelake.planning.quarantine import Retry, StreamQuarantine
from oncelake.planning.streams import find_stream, recreated, stream_reading
from oncelake.running.context import RunContext
from oncelake.running.execute import execute
from oncelake.spark.connect import is_connect
from oncelake.spark.materialize import materialize
from oncelake.storage.lock import Busy, Holder, held_by_a_living_process, table_lock
from oncelake.streaming.failures import error_of_stream
from oncelake.streaming.micro_batch import good_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def retry_messages(pipeline: Pipeline, rows: Sequence[QuarantinedRow], context: RunContext) -> Report:
    """Finish the retries that some target lacks, then write those of the messages that can be decoded now."""
    if not isinstance(pipeline.stream, MessageSource):
        return Report(context.run, ())
    _refuse(pipeline, context)
    wanted = {tuple(row.key) for row in rows}
    with _retry_lock(pipeline, context):
        kept = _quarantine(pipeline, context)
        if other := recreated(pipeline, kept.state, stream_reading(pipeline, context.lake)):
            raise other
        retries = [retry for retry in kept.retries.values() if retry.partly_done]
        begun = {tuple(row.key) for retry in retries for row in retry.rows}
        left = [row for row in kept.rows() if row.state == QUARANTINED and tuple(row.key) in wanted - begun]
        if good := _decodable(pipeline, left, context):
            retries.append(kept.freeze(good))
            failpoint("frozen")
        report = _write(pipeline, kept, retries, context)
        kept = _quarantine(pipeline, context)
        kept.settle(retry for retry in kept.retries.values() if not retry.missing)
    return report


def _refuse(pipeline: Pipeline, context: RunContext) -> None:
    """Raise if messages cannot be written later than their batch; say so if that changes which row wins."""
    if context.lake.remote or is_connect(context.session()):
        raise StreamsNotRemote(pipeline=pipeline.name)
    for pattern in pipeline.writes:
        where, again = f"{pattern.kind} on {pattern.target}", f"oncelake restart {pipeline.name} --from-beginning"
        if pattern.needs_state:
            problem = f"{where} keeps state, which later batches have gone on from"
            raise CannotRetry(pipeline=pipeline.name, problem=problem, next=f"read everything again: {again}")
        if not pattern.takes_batches:
            problem = f"{where} would replace whole partitions by them"
            raise CannotRetry(pipeline=pipeline.name, problem=problem, next=f"read everything again: {again}")
        if pattern.ordered:
            context.warn(
                f"{where}: a retried message counts as the newest of its key; latest_by= would decide by its time"
            )


def _quarantine(pipeline: Pipeline, context: RunContext) -> StreamQuarantine:
    logs = {target: context.lake.table(target).log() for target in pipeline.writes_tables}
    return StreamQuarantine(pipeline, find_stream(pipeline, logs, context.lake), logs)


@contextmanager
def _retry_lock(pipeline: Pipeline, context: RunContext) -> Iterator[None]:
    """Hold the lock of a stream's retries: one at a time. The stream itself may run meanwhile."""
    name, lake = f"retry of {pipeline.name}", context.lake.path
    context.session()  # before the lock, which notes the JVMs there are
    try:
        with table_lock(lake, name, context.lock_timeout, lambda: held_by_a_living_process(lake, name), Holder(name)):
            yield
    except Busy as busy:
        again = f"oncelake quarantine retry {pipeline.name}"
        raise TableBusy(target=f"the quarantine of {pipeline.name}", holder=busy.holder, again=again) from busy


def _decodable(pipeline: Pipeline, rows: Sequence[QuarantinedRow], context: RunContext) -> list[QuarantinedRow]:
    """Return the messages that are still in Kafka and can be decoded now, and say what stays in quarantine, and why."""
    if not rows:
        return []
    source = pipeline.stream
    assert isinstance(source, MessageSource)
    places = Retry(0, tuple(rows)).places
    try:
        found = source.raw(source.decode(source.read_at(context.session(), places)))
        reasons = {(row["file"], row["offset"]): row["reason"] for row in found.drop("raw").collect()}
    except Exception as error:
        raise error_of_stream(error, pipeline) from error
    gone = [row for row in rows if (row.file, row.offset) not in reasons]
    bad = [row for row in rows if reasons.get((row.file, row.offset)) is not None]
    if gone:
        context.warn(f"{len(gone):,} messages stay in quarantine: they are gone from Kafka ({_name(gone)})")
    if bad:
        why = reasons[bad[0].file, bad[0].offset]
        context.warn(f"{len(bad):,} messages stay in quarantine: they still cannot be decoded ({_name(bad)}: {why})")
    left_out = {tuple(row.key) for row in (*gone, *bad)}
    return [row for row in rows if tuple(row.key) not in left_out]


def _name(rows: Sequence[QuarantinedRow]) -> str:
    more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
    return f"{rows[0].file} offset {rows[0].offset}{more}"


def _write(pipeline: Pipeline, kept: StreamQuarantine, retries: Sequence[Retry], context: RunContext) -> Report:
    """Write each retry as a slice of work like any other: what a target has is skipped."""
    assert isinstance(pipeline.stream, MessageSource)
    name = next(name for name, source in pipeline.reads.items() if source is pipeline.stream)
    source = RetriedMessages(pipeline.stream, kept.state.id.text, {retry.slice: retry for retry in retries})
    read = replace(pipeline, reads={**pipeline.reads, name: source})
    works = tuple(item for retry in retries for item in kept.plan(retry))
    scope = Scope(pipeline.name, None, 1, "messages from quarantine")
    return execute(Plan((scope,), works), {pipeline.name: read}, context)


@dataclass(frozen=True, repr=False)
class RetriedMessages(StreamPart):
    """The messages of retries, as the source of a pipeline: each slice is one retry."""

    source: MessageSource
    stream: str
    retries: Mapping[Slice, Retry]

    def pin(self, reading: Reading) -> Pins:
        """Return the messages of the retry."""
        retry = self.retries[reading.slice]
        messages = {file: ranges_text(offsets) for file, offsets in retry.places.items()}
        return {"stream": self.stream, "retry": retry.number, "messages": messages}

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> RetryRead:  # noqa: ARG002  the contract
        """Return the read of the retry."""
        return RetryRead(self.source, self.retries[reading.slice], session, reading)


@dataclass(frozen=True)
class RetryRead(CountedRead):
    """The messages of one retry, read once more, all of them: read = given to the function."""

    source: MessageSource
    retry: Retry
    session: SparkSession
    reading: Reading

    def __call__(self, slice_: Slice) -> DataFrame:  # noqa: ARG002  the contract; a retry is not cut further
        """Return the rows that are passed to the function."""
        return good_rows(self._decoded)

    def facts(self) -> Mapping[str, Any]:
        """Return the count of the messages."""
        return {"rows_read": self._count, "quarantined": 0, "filtered": 0}

    @property
    def _count(self) -> int:
        return sum(map(len, self.retry.places.values()))

    @cached_property
    def _decoded(self) -> DataFrame:
        """Read and decode the messages; raise if one is gone, or cannot be decoded any more: some targets have them."""
        places = self.retry.places
        if not places:  # all were dropped: the marker says that nothing is left to do
            places = {row.file: [row.offset] for row in self.retry.rows if row.offset is not None}
            return self.source.leave_out(self._decode(places), places)
        decoded = materialize(self._decode(places), eager=False)
        found = self.source.raw(decoded).select("file", "offset", "reason").collect()
        seen = {(row["file"], row["offset"]) for row in found}
        facts = {"pipeline": self.reading.pipeline, "what": f"retry {self.retry.number}"}
        gone = [f"{file}/{at}" for file, offsets in places.items() for at in offsets if (file, at) not in seen]
        if gone:
            raise MessagesGone(count=len(gone), places=", ".join(gone[:5]), **facts)
        if bad := sum(row["reason"] is not None for row in found):
            raise DecodedBefore(count=bad, where=self.reading.where, **facts)
        return decoded

    def _decode(self, places: Mapping[str, Sequence[int]]) -> DataFrame:
        return self.source.decode(self.source.read_at(self.session, places))


def ranges_text(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text that is short where they follow each other: "3-7,9"."""
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
