"""`run --watch` for streams: all of them together in one session, started again with backoff, stopped between two batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import OncelakeError, SparkLost
from oncelake.model.contracts import Listener
from oncelake.model.events import Event
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome
from oncelake.running.context import RunContext
from oncelake.streaming.draining import failed_batch, ready_state, replay_missing, stream_lock
from oncelake.streaming.failures import error_of_stream
from oncelake.streaming.queries import StreamQuery

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# A stream that runs for weeks: the report has its newest batches.
_REPORTED = 1000


@dataclass
class _Watched:
    """One stream: its query while it runs, and when it is started again after it failed."""

    pipeline: Pipeline
    context: RunContext
    query: StreamQuery | None = None
    pause: float = _FIRST_PAUSE
    start_at: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)


class StreamWatch:
    """The running streams of a project."""

    def __init__(self, pipelines: Iterable[Pipeline], context: RunContext, seconds: float) -> None:
        """Nothing is started yet. Every stream looks for new rows every so many seconds."""
        listeners = tuple(_OneAtATime(listener) for listener in context.listeners)
        # Each stream has tables of its own: what one knows of its locks is no other's.
        self._streams = [
            _Watched(pipeline, replace(context, listeners=listeners, lake=replace(context.lake, _tables={})))
            for pipeline in pipelines
        ]
        self._context, self._seconds, self._held = context, seconds, ExitStack()

    def __enter__(self) -> Self:
        """Take the locks of all streams and start them; raise TableBusy if another process runs one of them, SparkLost without a JVM."""
        try:
            for stream in self._streams:
                self._held.enter_context(stream_lock(stream.pipeline, stream.context))
        except Exception as error:
            self._held.close()
            if isinstance(error, OncelakeError):
                raise
            raise error_of_stream(error, stream.pipeline) from error
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every stream after the batch that it is writing, and release the locks."""
        for stream in self._streams:
            if stream.query is not None:
                stream.query.stop()
                self._take(stream)
        self._held.close()

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of the newest batches; of one that failed and was written later, the later one."""
        last = {
            (outcome.pipeline, outcome.target, outcome.slice): outcome
            for stream in self._streams
            for outcome in stream.outcomes
        }
        return list(last.values())

    def look(self) -> None:
        """Take in what has happened, and start the streams again that have ended and waited long enough."""
        for stream in self._streams:
            if stream.query is None and time.monotonic() >= stream.start_at:
                self._start(stream)
            elif stream.query is not None:
                self._check(stream)

    def _start(self, stream: _Watched) -> None:
        pipeline, context = stream.pipeline, stream.context
        try:
            state = ready_state(pipeline, context)
            replayed = replay_missing(pipeline, state, context)
            stream.outcomes += replayed
            if any(outcome.outcome not in (COMMITTED, ALREADY_DONE) for outcome in replayed):
                self._back_off(stream)
                return
            query = StreamQuery(pipeline, state, context)
            query.start(self._seconds)
            stream.query = query
        except Exception as error:  # noqa: BLE001  whatever it is, the stream is started again
            self._fail(stream, error_of_stream(error, pipeline))

    def _check(self, stream: _Watched) -> None:
        """Note the batches of a stream, and whether it has ended."""
        assert stream.query is not None
        try:
            ended = stream.query.ended()
        except Exception as error:  # noqa: BLE001  whatever ended it, it is started again
            found = error_of_stream(error, stream.pipeline)
            outcomes = self._take(stream)
            stream.query = None
            if any(outcome.error for outcome in outcomes):
                self._back_off(stream)
            else:
                self._fail(stream, found)
            return
        if self._take(stream):
            stream.pause = _FIRST_PAUSE
        if ended:
            stream.query = None

    def _take(self, stream: _Watched) -> list[Outcome]:
        """Take over the outcomes of a query since the last look."""
        assert stream.query is not None
        found, stream.query.outcomes = stream.query.outcomes, []
        stream.outcomes = [*stream.outcomes, *found][-_REPORTED:]
        return found

    def _fail(self, stream: _Watched, error: OncelakeError) -> None:
        if isinstance(error, SparkLost) and self._context.restart():
            # The other queries died with it: they are started in the new session at the next look.
            for other in self._streams:
                other.query = None
        self._context.warn(f"the stream {stream.pipeline.name} is started again in {stream.pause:g} s")
        stream.outcomes = [*stream.outcomes, *failed_batch(stream.pipeline, stream.context, error)][-_REPORTED:]
        self._back_off(stream)

    @staticmethod
    def _back_off(stream: _Watched) -> None:
        stream.start_at = time.monotonic() + stream.pause
        stream.pause = min(2 * stream.pause, _LONGEST_PAUSE)


class _OneAtATime:
    """A listener of several streams, which report from threads of their own."""

    _lock = threading.Lock()

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on(self, event: Event) -> None:
        """Pass the event on."""
        with self._lock:
            self._listener.on(event)
