"""Carrying out a plan: what is done is skipped, what waits for something that failed is blocked, the rest is attempted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.compaction import compact_if_due
from oncelake.delta.log import find_log
from oncelake.errors import Blocked, TableBusy, WorkFailed
from oncelake.model.contracts import RangeWriter
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval, subtract
from oncelake.model.slices import Slice, Whole
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome, Plan, Planned, Report, Work
from oncelake.planning.plan import restrict
from oncelake.running.attempt import RunContext, SplitRange, attempt, claim, failure_of, outcome_of, skipped
from oncelake.running.commit_state import CommitState, commit_state
from oncelake.running.interrupts import listening
from oncelake.spark.jobs import read_at_once
from oncelake.spark.session import cancel

# What one interval may bring upon the others it is written with.
_ALONE = {error.code for error in WorkFailed.__subclasses__()}


def execute(plan: Plan, pipelines: Mapping[str, Pipeline], context: RunContext) -> Report:
    """Do what is not done, in the order of the plan, and report every work."""
    outcomes: list[Outcome] = []
    context.watcher.planned(plan)
    with listening() as heard:
        for slices in _batches(plan, pipelines, context):
            try:
                if heard:
                    return Report(context.run, tuple(outcomes), interrupted=True)
                outcomes += _batch(slices, outcomes, pipelines, context)
            except KeyboardInterrupt:
                outcomes += _after_interrupt([item for items in slices for item in items], context)
                return Report(context.run, tuple(outcomes), interrupted=True)
    return Report(context.run, tuple(outcomes))


def _batches(plan: Plan, pipelines: Mapping[str, Pipeline], context: RunContext) -> Iterator[list[list[Planned]]]:
    """The slices of a plan in their order: one by one, or as many at once as was asked for and does not conflict."""
    for name, works in groupby(plan.works, key=lambda item: item.work.pipeline):
        slices = [list(group) for _, group in groupby(works, key=lambda item: item.work.slice)]
        if context.jobs > 1 and any(items[0].action == "run" for items in slices) and _apart(pipelines[name], context):
            yield from packed(slices, context.jobs, read_at_once(context.session()))
        else:
            yield from ([items] for items in slices)


def packed(slices: list[list[Planned]], jobs: int, room: float) -> Iterator[list[list[Planned]]]:
    """Up to so many slices at once, as long as together they do not keep all cores busy anyway."""
    batch: list[list[Planned]] = []
    taken = 0
    for items in slices:
        size = items[0].size.bytes or 0
        if batch and (len(batch) == jobs or taken + size > room):
            yield batch
            batch, taken = [], 0
        batch.append(items)
        taken += size
    if batch:
        yield batch


def _apart(pipeline: Pipeline, context: RunContext) -> bool:
    """Whether the slices of a pipeline lie in partitions of their own; else they only conflict with each other."""
    apart = all(
        isinstance(pattern, RangeWriter)
        and pattern.partitioned_by_time(find_log(pattern.target, context.address.table(pattern.target)))
        for pattern in pipeline.writes
    )
    if not apart:
        context.watcher.warn(f"{pipeline.name}: one slice after another; its tables are not partitioned by them")
    return apart


def _batch(
    slices: list[list[Planned]], earlier: list[Outcome], pipelines: Mapping[str, Pipeline], context: RunContext
) -> list[Outcome]:
    """What comes of some slices of a pipeline, at once if they are several."""
    pipeline = pipelines[slices[0][0].work.pipeline]
    works = [item.work for items in slices for item in items if item.action == "run"]
    if len(slices) == 1 or not works:
        return [outcome for items in slices for outcome in run_slice(pipeline, items, earlier, pipelines, context)]
    context.session()  # before the lock, which notes the JVMs there are
    with ExitStack() as held:
        try:
            claim(works, held, context)
        except TableBusy as lost:
            return [_told(failure_of(work, lost, None, 0.0), context) for work in works]
        context = replace(context, held=frozenset(pipeline.writes_tables))
        with ThreadPoolExecutor(len(slices)) as pool:
            found = [pool.submit(run_slice, pipeline, items, earlier, pipelines, context) for items in slices]
            try:
                return [outcome for future in found for outcome in future.result()]
            except KeyboardInterrupt:
                cancel(context.session())
                raise


def run_slice(
    pipeline: Pipeline,
    items: list[Planned],
    earlier: list[Outcome],
    pipelines: Mapping[str, Pipeline],
    context: RunContext,
) -> list[Outcome]:
    """Run the works of one slice: done ones are skipped, blocked ones reported, the rest attempted."""
    skipped_items = [_skipped(item, context) for item in items]
    if all(skipped_items):
        return [_told(outcome, context) for outcome in skipped_items if outcome]
    outcomes: list[Outcome] = []
    for works, blocked in _cut(pipeline, items, earlier, pipelines):
        if blocked:
            outcomes += [_told(failure_of(work, blocked, None, 0.0), context) for work in works]
        else:
            outcomes += _attempted(pipeline, works, context)
    return outcomes


def _attempted(pipeline: Pipeline, works: list[Work], context: RunContext) -> list[Outcome]:
    """The works of a slice, attempted and recorded."""
    context.ledger.started(context.run, works)
    outcomes = _halved(pipeline, works, context)
    context.ledger.ended(context.run, outcomes)
    failpoint("recorded")
    for target in dict.fromkeys(outcome.target for outcome in outcomes if outcome.outcome == COMMITTED):
        if pipeline.pattern(target).compacts:
            compact_if_due(target, context.address, context.session, context.watcher.warn)
    return outcomes


def _halved(pipeline: Pipeline, works: list[Work], context: RunContext) -> list[Outcome]:
    """The works of a slice, attempted. A range that fails is halved until what cannot be done is alone."""
    for work in works:
        context.watcher.started(work)
    halves = _halves(works[0].slice, pipeline)
    try:
        outcomes = attempt(pipeline, works, context)
    except SplitRange:
        outcomes = []
    apart = [work for work in works if halves and not _stands(work, outcomes)]
    ended = [_told(outcome, context) for outcome in outcomes if outcome.work not in apart]
    for half in halves if apart else ():
        ended += _halved(pipeline, [restrict(work, half, pipeline) for work in apart], context)
    return ended


def _stands(work: Work, outcomes: list[Outcome]) -> bool:
    """Whether a work has an outcome that smaller slices of it would not change for the better."""
    return any(outcome.work == work and outcome.code not in _ALONE for outcome in outcomes)


def _halves(slice_: Slice, pipeline: Pipeline) -> list[Interval]:
    if not isinstance(slice_, Interval) or pipeline.grid is None:
        return []
    cells = pipeline.grid.count(slice_)
    middle = pipeline.grid.step(slice_.start, cells // 2)
    if not slice_.start < middle < slice_.end:
        return []
    return [Interval(slice_.start, middle, slice_.zone), Interval(middle, slice_.end, slice_.zone)]


def _told(outcome: Outcome, context: RunContext) -> Outcome:
    context.watcher.ended(outcome)
    return outcome


def _skipped(item: Planned, context: RunContext) -> Outcome | None:
    """The outcome of a work that is done: as the plan found it, or as somebody else did it since."""
    log = context.logs.get(item.work.target)
    if item.action == "skip" and log is not None:
        return outcome_of(item.work, CommitState(done=True, commit=log.commit(item.work.marker.app_id)))
    return skipped(item.work, context.address)


def _cut(
    pipeline: Pipeline, items: list[Planned], earlier: list[Outcome], pipelines: Mapping[str, Pipeline]
) -> Iterator[tuple[list[Work], Blocked | None]]:
    """The works of a slice, cut where something they read has failed upstream."""
    works, slice_ = [item.work for item in items], items[0].work.slice
    if any(item.action == "wait" for item in items):
        owner, table = _feeding(pipeline, pipelines)
        yield works, Blocked(upstream=owner, slice=str(slice_), pipeline=pipeline.name, table=table)
        return
    failed = [o.work for o in earlier if o.outcome not in (COMMITTED, ALREADY_DONE)]
    failed = [work for work in failed if work.target in pipeline.reads_tables]
    parts: list[tuple[Slice, Blocked | None]] = []
    left = [slice_] if isinstance(slice_, Interval) else []
    for work in failed:
        told = Blocked(upstream=work.pipeline, slice=str(work.slice), pipeline=pipeline.name, table=work.target)
        touched = _touched(work, slice_, pipeline)
        if touched is None:
            continue
        if not isinstance(touched, Interval):
            yield works, told
            return
        parts += [(part, told) for part in subtract([touched], subtract([touched], left))]
        left = subtract(left, [touched])
    parts += [(part, None) for part in left] if isinstance(slice_, Interval) else [(slice_, None)]
    for part, blocked in sorted(parts, key=lambda found: found[0].text):
        if isinstance(part, Interval) and part != slice_:
            yield [restrict(work, part, pipeline) for work in works], blocked
        else:
            yield works, blocked


def _touched(failed: Work, slice_: Slice, pipeline: Pipeline) -> Slice | None:
    """The part of a slice that reads what failed: of an interval its cells, or all of it."""
    by_interval = all(s.by_interval for s in pipeline.reads.values() if failed.target in s.tables)
    if not by_interval or failed.interval is None or not isinstance(slice_, Interval) or pipeline.grid is None:
        return Whole()
    if not failed.interval.overlaps(slice_):
        return None
    start, end = max(failed.interval.start, slice_.start), min(failed.interval.end, slice_.end)
    return pipeline.grid.around(Interval(start, end, slice_.zone))


def _feeding(pipeline: Pipeline, pipelines: Mapping[str, Pipeline]) -> tuple[str, str]:
    for other in pipelines.values():
        for table in other.writes_tables & pipeline.reads_tables:
            return other.name, table
    raise LookupError(pipeline.name)


def _after_interrupt(items: list[Planned], context: RunContext) -> Iterator[Outcome]:
    """Say what is committed of the works that were under way."""
    for item in items:
        settled = commit_state(item.work, context.address.table(item.work.target), None)
        if settled.done:
            outcome = outcome_of(item.work, settled)
            same_run = settled.commit is not None and settled.commit.facts.get("run") == context.run
            yield replace(outcome, outcome=COMMITTED if same_run else ALREADY_DONE)
