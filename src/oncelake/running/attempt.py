"""One attempt at the works of a slice: pin the inputs, start the session, hold the locks, call the function, commit each target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from oncelake.declare.code_fingerprint import pipeline_fingerprint
from oncelake.declare.pipelines import Pipeline
from oncelake.delta.conflicts import ErrorKind, TableChanged, classify, is_lost_server, one_line
from oncelake.errors import (
    OncelakeError,
    OvertakenInputGone,
    PartlyDone,
    PinnedInputGone,
    SourceChanged,
)
from oncelake.model.arrivals import ArrivalSource, CountedRead
from oncelake.model.contracts import Log, Reading
from oncelake.model.events import Retrying
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval
from oncelake.model.slices import Batch, count_cells, parse_slice, slice_options
from oncelake.model.work import Outcome, Rows, Work
from oncelake.running.commit import Claim, Retryable, commit_once, make_facts, make_writing, write_once
from oncelake.running.commit_state import CommitState, commit_state
from oncelake.running.context import RunContext
from oncelake.running.failures import error_of_work
from oncelake.running.transform import SchemasDiffer, SliceFrame, call_transform, open_reads, unite
from oncelake.spark.connect import describe_session
from oncelake.spark.session import attempt_session, cancel

Pins = Mapping[str, Any]


@dataclass(frozen=True)
class SplitRange:
    """A range cannot be written as one: part of it is done already, or its intervals have different columns."""


def attempt(pipeline: Pipeline, works: Sequence[Work], context: RunContext) -> list[Outcome] | SplitRange:
    """Try to commit the works of one slice until they are done, or it is known why not. Retries are bounded."""
    begun = time.monotonic()
    trying = _Attempt(pipeline, works, context)
    try:
        try:
            result = trying.commit()
        except Exception as error:
            if classify(error) is not ErrorKind.LOST_JVM or not context.restart():
                raise
            lost = "the Spark Connect server did not answer" if is_lost_server(error) else "Spark's JVM died"
            context.warn(f"{lost} at {pipeline.name} {works[0].slice}; there is a new session")
            result = trying.commit()
        if isinstance(result, SplitRange):
            return result
    except Exception as error:  # noqa: BLE001  whatever Spark raised, the log is asked and a report is due
        trying.fail(error_of_work(error, works[0]))
    seconds = time.monotonic() - begun
    return [replace(trying.outcomes[work.target], seconds=seconds) for work in works]


@dataclass(frozen=True)
class _Attempt:
    """The works of a slice on their way, and the outcomes that are known so far, by target."""

    pipeline: Pipeline
    works: Sequence[Work]
    context: RunContext
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def commit(self) -> SplitRange | None:
        """Commit what is not done, under the locks of its targets; frames are built again for every retry."""
        first = [self._pins()]
        # Before the lock: it notes the JVMs there are when it is taken, and one it does not know of outlives a kill unseen.
        grid = self.pipeline.grid
        with attempt_session(self.context.session(), grid.zone if grid else None) as session:

            def act() -> SplitRange | None:
                try:
                    return self._commit(session, first.pop if first else self._pins)
                except KeyboardInterrupt:
                    # While the lock is still held: nobody else should begin before Spark has stopped.
                    cancel(session)
                    raise

            return commit_once(act, self._claim(describe_session(session)), self.context.lock_timeout)

    def fail(self, error: OncelakeError) -> None:
        """Give every work without an outcome the error's, with what is committed for the reader."""
        for work in self.works:
            if work.target not in self.outcomes:
                self.outcomes[work.target] = failure_of(work, error, self._committed(work))

    def _claim(self, session: str | None) -> Claim:
        slice_ = self.works[0].slice
        tables = [self.context.lake.table(w.target) for w in self.works if w.target not in self.context.held]
        return Claim(
            tables,
            f"{self.pipeline.name} {slice_}",
            f"oncelake run {self.pipeline.name}",
            lambda: all(self._state(work).done for work in self.works),
            lambda *facts: self.context.notify(Retrying(self.context.run, self.works[0], *facts)),
            self.works[0].target,
            session,
        )

    def _commit(self, session: Any, make_pins: Callable[[], Pins]) -> SplitRange | None:
        states = {work.target: self._state(work) for work in self.works}
        done = {work: states[work.target] for work in self.works if states[work.target].done}
        for work, state in done.items():
            self.outcomes.setdefault(work.target, state.outcome(work))
        overtaken = {work: states[work.target] for work in self.works if states[work.target].overtaken is not None}
        pins = cache(make_pins)
        for work, state in overtaken.items():
            if self._reapply(work, state, pins, session):
                return SplitRange()
        left = [work for work in self.works if work.target not in self.outcomes]
        if not left:
            return None
        if partly := [work for work in left if states[work.target].partly]:
            if count_cells(partly[0].slice, self.pipeline.grid) > 1:
                return SplitRange()
            self._refuse_repeating(partly)
        finished = {**done, **overtaken}
        recorded = None if self.context.accept_new_input else recorded_pins(left, list(finished.values()))
        if recorded is None:
            self._refuse_unknown_pins(left, finished)
            return self._write_all(left, pins(), session)
        self._require_inputs(recorded, left, next(iter(finished)))
        try:
            return self._write_all(left, recorded, session)
        except Exception:
            # If the input went away while it was read, that is the reason; otherwise the error is.
            self._require_inputs(recorded, left, next(iter(finished)))
            raise

    def _reapply(self, work: Work, state: CommitState, pins: Callable[[], Pins], session: Any) -> SplitRange | None:
        """Apply a work once more that another commit had overtaken, from the input that it was committed from."""
        recorded = state.commit.facts.get("pins") if state.commit else None
        if recorded is None or self.context.accept_new_input:
            return self._write_all([work], pins(), session)
        for name, source in self.pipeline.reads.items():
            try:
                source.verify(self._reading(), recorded[name])
            except (SourceChanged, KeyError) as error:
                facts = {"slice": str(work.slice), "pipeline": work.pipeline, "version": state.overtaken}
                raise OvertakenInputGone(target=work.target, problem=one_line(error), **facts) from error
        return self._write_all([work], recorded, session)

    def _require_inputs(self, pins: Pins, left: Sequence[Work], sibling: Work) -> None:
        """Raise PinnedInputGone if the input of the finished targets, which the others are written from, is gone."""
        try:
            for name, source in self.pipeline.reads.items():
                source.verify(self._reading(), pins[name])
        except SourceChanged as error:
            lost = next(work for work in left if work.target not in self.outcomes)
            raise self._input_gone(lost, sibling, one_line(error)) from error

    def _refuse_unknown_pins(self, left: Sequence[Work], finished: Mapping[Work, CommitState]) -> None:
        """Raise PinnedInputGone if a finished target may be of the same attempt, and its log no longer says what it read."""
        if self.context.accept_new_input:
            return
        for sibling, state in finished.items():
            log = self.context.lake.table(sibling.target).last_log()
            if log is None or (state.commit is not None and state.commit.facts.get("siblings", ()) is not None):
                continue
            if isinstance(sibling.slice, Batch) and log.recorded(sibling.marker.app_id) != sibling.marker.version:
                # It has later batches, so this is no crash between two targets: a redo reads the files there are now.
                continue
            for work in left:
                if was_sibling(work, sibling, log):
                    problem = f"the log of {sibling.target} no longer shows what {sibling.slice} was written from"
                    raise self._input_gone(work, sibling, problem)

    def _input_gone(self, work: Work, sibling: Work, problem: str) -> PinnedInputGone:
        facts = {"slice": str(work.slice), "pipeline": work.pipeline, "sibling": sibling.target}
        facts["options"] = slice_options(work.slice, self.pipeline.grid)
        return PinnedInputGone(target=work.target, problem=problem, **facts)

    def _write_all(self, left: Sequence[Work], pins: Pins, session: Any) -> SplitRange | None:
        batch: CountedRead | None = None
        try:
            reads = open_reads(self.pipeline, session, self._reading(), pins)
            counted: list[Any] = [read for read in reads.values() if isinstance(read, CountedRead)]
            batch = counted[0] if counted else None
            parts = call_transform(self.pipeline, session, self._reading(), reads)
            for work in left:
                self.outcomes[work.target] = self._write(work, parts[work.target], pins, batch)
            for note in batch.notes() if batch else ():
                self.context.warn(note)
        except SchemasDiffer:
            return SplitRange()
        except Exception as error:
            if batch is not None and batch.read_again(error):
                raise TableChanged(one_line(error)) from error
            raise
        return None

    def _write(self, work: Work, parts: Sequence[SliceFrame], pins: Pins, batch: CountedRead | None) -> Outcome:
        pattern = self.pipeline.pattern(work.target)
        facts = make_facts(work, self.context.run, pins, pipeline_fingerprint(self.pipeline, pattern), pattern)
        facts |= batch.facts() if batch else {}
        facts["siblings"] = [each.target for each in self.works]
        if len({each.generation for each in self.works}) > 1:
            facts["generations"] = {each.target: each.generation for each in self.works}
        writing = make_writing(work, facts, self.context, self.pipeline)
        replaced = batch.replaced_files() if batch else ()
        writing = replace(writing, verify_inputs=self._verify(pins), replaced_files=replaced)
        try:
            return write_once(unite(parts, pattern, writing), pattern, writing)
        except (Retryable, SchemasDiffer):
            raise
        except Exception as error:
            if classify(error) is ErrorKind.LOST_JVM:
                raise
            raise error_of_work(error, work) from error

    def _verify(self, pins: Pins) -> Callable[[], None] | None:
        """Return what compares the inputs with their pins after the read; None if no input can change."""
        unversioned = {
            name: source
            for name, source in self.pipeline.reads.items()
            # The read of a batch compares its files itself, once it has read them.
            if not source.versioned and not isinstance(source, ArrivalSource)
        }

        def verify() -> None:
            for name, source in unversioned.items():
                source.verify(self._reading(), pins[name])

        return verify if unversioned else None

    def _refuse_repeating(self, partly: list[Work]) -> None:
        """Refuse an interval that is partly done, under another grid, where to write all of it would write rows twice."""
        for work in partly:
            if not self.pipeline.pattern(work.target).restates:
                raise PartlyDone(target=work.target, pipeline=work.pipeline, slice=str(work.slice))

    def _pins(self) -> Pins:
        """Pin the versions of everything the pipeline reads. What is missing is found here, before Spark starts."""
        reading = self._reading()
        pins = {name: dict(source.pin(reading)) for name, source in self.pipeline.reads.items()}
        failpoint("pinned")
        return pins

    def _reading(self) -> Reading:
        pipeline, slice_ = self.pipeline, self.works[0].slice
        formerly = pipeline.formerly or ()
        writes = tuple(pipeline.writes)
        return Reading(pipeline.name, slice_, pipeline.grid, self.context.lake, pipeline.where, formerly, writes)

    def _state(self, work: Work) -> CommitState:
        return commit_state(work, self.context.lake.table(work.target))

    def _committed(self, work: Work) -> str:
        """Return what is committed, for the reader of the error."""
        try:
            state = self._state(work)
        except (OncelakeError, OSError):
            return f"the log of {work.target} cannot be read"
        if state.version is None:
            return f"{work.target} does not exist"
        return f"nothing of {work.slice} was written; {work.target} is at version {state.version}"


def recorded_pins(left: Sequence[Work], done: Sequence[CommitState]) -> Pins | None:
    """Return the pins that the rest of an interrupted attempt is finished from; None if there is none.

    Only a commit of the same slice that names the targets as its siblings, in their generations, lends its pins: a redo,
    or a target that was added later, reads the inputs as they are now.
    """
    for state in done:
        facts = state.commit.facts if state.commit else {}
        if "pins" in facts and all(_siblings(work, facts) for work in left):
            return dict(facts["pins"])
    return None


def _siblings(work: Work, facts: Mapping[str, Any]) -> bool:
    generation = facts.get("generations", {}).get(work.target, facts.get("generation"))
    if generation != work.generation or work.target not in (facts.get("siblings") or ()):
        return False
    written = parse_slice(facts["slice"])
    if isinstance(written, Interval) and isinstance(work.slice, Interval):
        return written.start <= work.slice.start and work.slice.end <= written.end
    return written == work.slice


def was_sibling(work: Work, sibling: Work, log: Log) -> bool:
    """Return whether a target may have been written by one attempt with a finished one, whose own commit its log has lost.

    The oldest commit of the pipeline that the log still shows names the targets there were. A redo of one target alone,
    and a target that was added since, read the inputs as they are now.
    """
    if work.generation not in (1, sibling.generation):
        return False
    written = (facts for _, facts in log.newest_facts() if facts.get("pipeline") == work.pipeline)
    return work.target in next((facts["siblings"] for facts in written if facts.get("siblings")), ())


def failure_of(work: Work, error: OncelakeError, committed: str | None = None) -> Outcome:
    """Return the outcome that an error makes of a work."""
    message = str(error) if committed is None else f"{error.message}\n  committed: {committed}\n  next: {error.next}"
    counts = Rows(None, None, None, None)
    return Outcome(work, error.outcome, None, counts, 0.0, message, error.code, error.splittable, error.stops_run)
