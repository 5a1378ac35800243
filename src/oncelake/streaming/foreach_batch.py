"""`once.each_batch`: the guard around the `foreachBatch` function of a stream that exists already.

Spark repeats a micro-batch after a restart, so a plain `foreachBatch` is at-least-once. Here every write of a batch carries
the stream and the number of the batch inside its commit: a batch that is replayed writes only what is missing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelake.declare.settings import LOCK_TIMEOUT
from oncelake.delta.compaction import compact_if_due
from oncelake.delta.log import TableLog
from oncelake.delta.tables import Lake
from oncelake.errors import BadDeclaration, OlderCheckpoint, OtherCheckpoint
from oncelake.model.contracts import Pattern
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, marker, parse_stream
from oncelake.model.names import lake_path
from oncelake.model.slices import Batch
from oncelake.model.source_location import declared_at
from oncelake.model.work import COMMITTED, Outcome, Work
from oncelake.running.commit import write_work
from oncelake.running.context import RunContext
from oncelake.spark.materialize import run_plan
from oncelake.spark.running_query import batch_inputs, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What the facts of a commit say of the batch: up to where it read its sources.
_INPUTS = "inputs"


@dataclass(frozen=True)
class _Declared:
    """Where the guard was declared; a stream has no grid."""

    where: str
    grid: Grid | None = None


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a stream, as the guarded function gets it."""

    name: str
    stream: str
    number: int
    context: RunContext
    declared: _Declared
    # Up to where it reads its sources, as its checkpoint says; None if that is not known.
    inputs: list[Any] | None = None
    # What came of the writes of the batch.
    outcomes: list[str] = field(default_factory=list, repr=False, compare=False)

    def write(self, frame: DataFrame, pattern: Pattern) -> Outcome:
        """Write a frame of the batch exactly once; if it is written already, say so and skip it."""
        if not pattern.takes_batches:
            problem = f"{pattern.kind} on {pattern.target} replaces rows of earlier batches; a stream appends or merges"
            raise BadDeclaration(where=self.declared.where, problem=problem)
        table = self.context.lake.table(pattern.target)
        self._refuse_other_batches(pattern.target, table.log())
        work = Work(self.name, pattern.target, self._slice, 1, pattern.marker(self.name, self._slice, 1))
        outcome = write_work(
            work, lambda: frame, pattern, table, self.context, self.declared, more_facts={_INPUTS: self.inputs}
        )
        self.outcomes.append(outcome.outcome)
        if outcome.outcome == COMMITTED and pattern.compacts:
            compact_if_due(table, self.context.session, warnings.warn)
        return outcome

    def marker(self, target: str) -> Mapping[str, str]:
        """Return the options of a plain Delta write to a target that make it once: `frame.write.options(**…)`."""
        self._refuse_other_batches(target, self.context.lake.table(target).log())
        found = self._marker(target)
        facts: dict[str, Any] = {"pipeline": self.name, "target": target, "slice": self._slice.text}
        facts |= {"pins": {}, _INPUTS: self.inputs}
        options = {"txnAppId": found.app_id, "txnVersion": str(found.version)}
        return {**options, "userMetadata": json.dumps({"oncelake": facts})}

    def is_done(self, target: str) -> bool:
        """Return whether a target has this batch, by its own log."""
        log = self.context.lake.table(target).log()
        self._refuse_other_batches(target, log)
        return log is not None and log.done(self._marker(target))

    @property
    def _slice(self) -> Batch:
        return Batch(self.stream, self.number)

    def _marker(self, target: str) -> Marker:
        return marker(self.name, target, self._slice, 1)

    def _refuse_other_batches(self, target: str, log: TableLog | None) -> None:
        """Refuse a stream whose numbers say nothing of what is in the table: its checkpoint is another, or an older copy."""
        if log is None:
            return
        known = [parse_stream(app_id) for app_id in log.markers]
        others = {found[2] for found in known if found and found[:2] == (self.name, target)} - {self.stream}
        if others:
            raise OtherCheckpoint(stream=self.name, target=target, known=min(others), found=self.stream)
        mine = self._marker(target)
        last = log.recorded(mine.app_id)
        if last is None or last < mine.version:
            return
        commit = log.commit(mine.app_id)
        inputs = commit.facts.get(_INPUTS) if commit else None
        # Spark repeats the last batch and no other, from the same offsets.
        if last > mine.version or (inputs and self.inputs and inputs != self.inputs):
            where = json.dumps(inputs, separators=(",", ":"))
            raise OlderCheckpoint(stream=self.name, target=target, last=last, number=self.number, inputs=where)


def each_batch(
    function: Callable[[DataFrame, MicroBatch], Any], *, name: str, lake: str, targets: Iterable[str] = ()
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that calls yours with the frame and the batch, so that each batch counts once.

    `name` is the stream's name, part of every marker. If all `targets` have a batch already, your function is not called.
    The identity of the stream is the id in its checkpoint: with a new checkpoint the numbers start again, and the write is
    refused. So it is with an older copy of the checkpoint, whose numbers come again with other rows.
    """
    where, names = declared_at(), tuple(targets)
    if not isinstance(name, str) or not name.strip():
        raise BadDeclaration(where=where, problem=f"name={name!r} names no stream")
    if not callable(function):
        raise BadDeclaration(where=where, problem=f"each_batch takes a function, not {function!r}")
    try:
        place = Lake(lake_path(lake), ".")
    except ValueError as error:
        raise BadDeclaration(where=where, problem=str(error)) from error

    def guarded(frame: DataFrame, number: int) -> None:
        session = frame.sparkSession
        stream = query_id(session)
        if stream is None:
            problem = "Spark tells no query id here: call it by foreachBatch of a stream with a checkpoint"
            raise BadDeclaration(where=where, problem=problem)
        context = RunContext(place, lambda: session, (), LOCK_TIMEOUT)
        inputs = batch_inputs(session, stream, int(number))
        batch = MicroBatch(name, stream, int(number), context, _Declared(where), inputs)
        if not names or not all(batch.is_done(target) for target in names):
            function(frame, batch)
            if not batch.outcomes or COMMITTED in batch.outcomes:
                return
        # Nothing has read the frame: a query that keeps state would stay at the batch before.
        run_plan(frame)

    return guarded
