"""Execute a plan: done work is skipped, work that waits for a failed upstream is blocked, the rest is attempted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.catalog import register
from oncelake.delta.compaction import compact_if_due
from oncelake.delta.conflicts import one_line
from oncelake.delta.lake_session import fences_ranges
from oncelake.errors import TableBusy
from oncelake.model.contracts import RangeWriter
from oncelake.model.events import RunEnded, RunPlanned, WorkEnded, WorkStarted
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval
from oncelake.model.slices import count_cells
from oncelake.model.work import ALREADY_DONE, COMMITTED, Outcome, Plan, Planned, Report, Work
from oncelake.running.attempt import SplitRange, attempt, failure_of
from oncelake.running.bisect import halve, restrict, split_by_upstream
from oncelake.running.commit import Claim, hold
from oncelake.running.commit_state import CommitState, commit_state
from oncelake.running.context import RunContext
from oncelake.running.interrupts import recording_interrupts
from oncelake.spark.jobs import parallel_bytes
from oncelake.spark.session import cancel


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a range was bisected: what has ended by then, and the works in progress."""

    def __init__(self, ended: list[Outcome], works: list[Work]) -> None:
        """Keep both for the report."""
        super().__init__()
        self.ended, self.works = ended, works


def execute(
    plan: Plan, pipelines: Mapping[str, Pipeline], context: RunContext, then: Iterable[Callable[[], Plan]] = ()
) -> Report:
    """Do what is not done, in the order of the plan, and report every work.

    `then` makes the plans that can be made only after that. All of it is one run, which begins and ends once.
    """
    context.notify(RunPlanned(context.run, plan))
    report = _execute(plan, pipelines, context)
    for make_plan in then:
        if report.interrupted or any(outcome.stops_run for outcome in report.works):
            break
        more = _execute(make_plan(), pipelines, context, report.works)
        report = replace(more, works=(*report.works, *more.works))
    context.notify(RunEnded(report))
    return report


def _execute(
    plan: Plan, pipelines: Mapping[str, Pipeline], context: RunContext, earlier: Sequence[Outcome] = ()
) -> Report:
    """Execute one plan. What reads something that failed `earlier` in the run is blocked."""
    outcomes: list[Outcome] = []
    with recording_interrupts() as interrupts:
        for slices in _groups(plan, pipelines, context):
            try:
                if interrupts:
                    return Report(context.run, tuple(outcomes), interrupted=True)
                outcomes += _run_slices(slices, [*earlier, *outcomes], pipelines, context)
                if any(outcome.stops_run for outcome in outcomes):
                    return Report(context.run, tuple(outcomes))
            except KeyboardInterrupt as interrupt:
                works = [item.work for items in slices for item in items]
                if isinstance(interrupt, Interrupted):
                    outcomes += interrupt.ended
                    works = interrupt.works
                outcomes += _after_interrupt(works, context)
                return Report(context.run, tuple(outcomes), interrupted=True)
    return Report(context.run, tuple(outcomes))


def _groups(plan: Plan, pipelines: Mapping[str, Pipeline], context: RunContext) -> Iterator[list[list[Planned]]]:
    """Yield the slices of a plan in their order: one by one, or as many concurrently as was asked for and do not conflict."""
    for name, works in groupby(plan.works, key=lambda item: item.work.pipeline):
        slices = [list(group) for _, group in groupby(works, key=lambda item: item.work.slice)]
        to_run = [items for items in slices if items[0].action == "run"]
        if context.jobs > 1 and to_run and _concurrent(pipelines[name], to_run, context):
            yield from packed(slices, context.jobs, parallel_bytes(context.session()))
        else:
            yield from ([items] for items in slices)


def packed(slices: list[list[Planned]], jobs: int, room: float) -> Iterator[list[list[Planned]]]:
    """Group up to so many slices, as long as together they do not keep all cores busy anyway."""
    group: list[list[Planned]] = []
    taken = 0
    for items in slices:
        size = items[0].size.bytes or 0
        if group and (len(group) == jobs or taken + size > room):
            yield group
            group, taken = [], 0
        group.append(items)
        taken += size
    if group:
        yield group


def _concurrent(pipeline: Pipeline, slices: list[list[Planned]], context: RunContext) -> bool:
    """Return whether the slices of a pipeline lie in partitions of their own; else they only conflict with each other.

    Ranges do too, where no lock is exclusive: the commit of each must directly follow the version it was decided from.
    """
    partitioned = all(
        isinstance(pattern, RangeWriter) and pattern.partitioned_by_time(context.lake.table(pattern.target).last_log())
        for pattern in pipeline.writes
    )
    if not partitioned:
        context.warn(
            f"{pipeline.name}: one slice after another, because its tables are not partitioned by the interval"
        )
    exclusive = all(context.lake.table(pattern.target).exclusive for pattern in pipeline.writes)
    ranges = any(count_cells(items[0].work.slice, pipeline.grid) > 1 for items in slices)
    return partitioned and (exclusive or not ranges)


def _run_slices(
    slices: list[list[Planned]], earlier: list[Outcome], pipelines: Mapping[str, Pipeline], context: RunContext
) -> list[Outcome]:
    """Run some slices of a pipeline, concurrently if they are several: then the run holds the locks for all of them."""
    pipeline = pipelines[slices[0][0].work.pipeline]
    works = [item.work for items in slices for item in items if item.action == "run"]
    if len(slices) == 1 or not works:
        return [outcome for items in slices for outcome in run_slice(pipeline, items, earlier, context)]
    context.session()  # before the lock, which notes the JVMs there are
    tables = [context.lake.table(target) for target in sorted({work.target for work in works})]
    doing = f"{pipeline.name} {works[0].slice} and {len(slices) - 1} more"
    with ExitStack() as held:
        try:
            hold(Claim(tables, doing, f"oncelake run {pipeline.name}"), held, context.lock_timeout)
        except TableBusy as busy:
            items = [item for items in slices for item in items]
            done = [_skipped(item, context) for item in items if item.action == "skip"]
            left = [failure_of(item.work, busy) for item in items if item.action != "skip"]
            return report_ended(done, context, attempted=False) + report_ended(left, context, attempted=False)
        context = replace(context, held=frozenset(pipeline.writes_tables))
        with ThreadPoolExecutor(len(slices)) as pool:
            futures = [pool.submit(run_slice, pipeline, items, earlier, context) for items in slices]
            try:
                return [outcome for future in futures for outcome in future.result()]
            except KeyboardInterrupt:
                cancel(context.session())
                raise


def run_slice(pipeline: Pipeline, items: list[Planned], earlier: list[Outcome], context: RunContext) -> list[Outcome]:
    """Run the works of one slice: done ones are skipped, blocked ones reported, the rest attempted."""
    if all(item.action == "skip" for item in items):
        return report_ended([_skipped(item, context) for item in items], context, attempted=False)
    outcomes: list[Outcome] = []
    for works, blocked in split_by_upstream(pipeline, items, earlier):
        if blocked:
            targets = {work.target for work in works}
            skipped = [item for item in items if item.action == "skip" and item.target not in targets]
            outcomes += report_ended([_skipped(item, context) for item in skipped], context, attempted=False)
            outcomes += report_ended([failure_of(work, blocked) for work in works], context, attempted=False)
        elif pipeline.stream is not None:
            assert context.drain is not None
            outcomes += context.drain(pipeline, context)
        else:
            outcomes += _attempt_bisecting(pipeline, works, context)
    return outcomes


def _attempt_bisecting(pipeline: Pipeline, works: list[Work], context: RunContext) -> list[Outcome]:
    """Attempt the works of a slice. A range that fails is halved until what cannot be done is alone."""
    ended: list[Outcome] = []
    waiting = _cut_unless_fenced(pipeline, works, context)
    while waiting:
        current = waiting.pop(0)
        context.notify(WorkStarted(context.run, tuple(current)))
        try:
            result = attempt(pipeline, current, context)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(ended, current) from interrupt
        outcomes = [] if isinstance(result, SplitRange) else result
        parts = halve(current, outcomes, pipeline)
        split = {work.target for work in parts[0]} if parts else set()
        ended += report_ended([outcome for outcome in outcomes if outcome.target not in split], context)
        waiting = parts + waiting
    _keep_up(pipeline, ended, context)
    return ended


def _cut_unless_fenced(pipeline: Pipeline, works: list[Work], context: RunContext) -> list[list[Work]]:
    """Return the works of a slice; of a range, interval by interval, if another driver could restate one of them unseen."""
    slice_, tables = works[0].slice, [context.lake.table(work.target) for work in works]
    if count_cells(slice_, pipeline.grid) == 1 or all(table.exclusive for table in tables):
        return [works]
    try:
        if fences_ranges(context.lake.path, context.session()):
            return [works]
    except Exception as error:  # noqa: BLE001  the attempt meets the same fault, and reports it or starts Spark again
        context.warn(f"{pipeline.name}: interval by interval, because the session does not answer: {one_line(error)}")
    assert pipeline.grid is not None
    assert isinstance(slice_, Interval)
    cells = pipeline.grid.cells(slice_.start, slice_.end)
    return [[restrict(work, cell, pipeline) for work in works] for cell in cells]


def _keep_up(pipeline: Pipeline, outcomes: list[Outcome], context: RunContext) -> None:
    """Do what is due to the tables that were written: compact small files, make them known to the catalog."""
    for target in dict.fromkeys(outcome.target for outcome in outcomes if outcome.outcome == COMMITTED):
        table, wanted = context.lake.table(target), context.register
        if pipeline.pattern(target).compacts:
            compact_if_due(table, context.session, context.warn)
        if (wanted is True or (wanted and target in wanted)) and target not in context.registered:
            context.registered.add(target)
            register(context.session(), target, table.path, context.warn)


def report_ended(outcomes: list[Outcome], context: RunContext, attempted: bool = True) -> list[Outcome]:
    """Tell the listeners what came of some works."""
    if outcomes:
        context.notify(WorkEnded(context.run, tuple(outcomes), attempted))
        if attempted:
            failpoint("recorded")
    return outcomes


def _skipped(item: Planned, context: RunContext) -> Outcome:
    """Return the outcome of a work that the plan found done, from the log that the plan read."""
    log = context.lake.table(item.work.target).last_log()
    commit = log.commit(item.work.marker.app_id) if log else None
    return CommitState(done=True, commit=commit).outcome(item.work)


def _after_interrupt(works: list[Work], context: RunContext) -> Iterator[Outcome]:
    """Yield the outcomes of the works in progress that are committed."""
    for work in works:
        state = commit_state(work, context.lake.table(work.target))
        if state.done:
            same_run = state.commit is not None and state.commit.facts.get("run") == context.run
            yield replace(state.outcome(work), outcome=COMMITTED if same_run else ALREADY_DONE)
