"""Cases in which the surroundings of a job change: an upstream by another time column, no lock, a lost JVM, another grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from oncelake.errors import OtherTimezone, PartlyDone, WrongTimeType
from oncelake.model.intervals import Grid, Interval, instant_text, parse_interval
from oncelake.model.work import STALE
from oncelake.proving.calls import JVM, KILL, Act
from oncelake.proving.cases import Case, prefix_story
from oncelake.proving.crashes import Recording
from oncelake.proving.input_copies import InputCopies
from oncelake.proving.scenarios import judge_race
from oncelake.proving.testbed import Span, Testbed, same_content
from oncelake.proving.verdict import Violation
from oncelake.proving.worker_handle import WorkerDied

Works = list[dict[str, Any]]
_FINER = {"day": "hour", "week": "day", "month": "day"}
_COARSER = {"hour": "day", "day": "month", "week": "month"}
# Its days begin at 18:30 UTC, its hours at half past.
_ZONE = "Asia/Kolkata"
# The last failpoint before a commit.
_BEFORE_COMMIT = "committing"


def other_time(testbed: Testbed) -> Iterator[Case]:
    """Let rows of a finished interval arrive in a slice that the upstream cut by another time column."""
    if copies := testbed.input_copies:
        story = f"rows of {copies.late} arrived in a slice that the upstream cut by another time column"
        yield Case("other_time", "other_time", story, partial(_arrive_by_other_time, testbed, copies))


def _arrive_by_other_time(testbed: Testbed, copies: InputCopies) -> Violation | None:
    job, inputs = testbed.job, copies.paths
    testbed.reset()
    with copies.withheld():
        first = testbed.run(inputs=inputs)
    if problem := testbed.judge(first, testbed.fingerprints()):
        return prefix_story(problem, "before they arrived")
    seen = [item for item in testbed.plan(inputs=inputs) if _overlaps(item, copies.late)]
    if not any(item["cause"] == STALE for item in seen):
        why = ", ".join(sorted({item["why"] for item in seen})) or "nothing"
        target = min(job.tables)
        return Violation("", "", f"the plan of {target} says {why!r} of {copies.late}, whose input changed", target)
    if not job.restates:
        return None
    if not job.replaces:
        return testbed.judge(testbed.run(inputs=inputs, rebuild=True))
    return testbed.judge(testbed.run(inputs=inputs, stale=True)) or _still_to_do(testbed, stale=True, inputs=inputs)


def _overlaps(item: Mapping[str, Any], interval: Interval) -> bool:
    return parse_interval(f"{item['start']}..{item['end']}").overlaps(interval)


def _still_to_do(testbed: Testbed, **request: Any) -> Violation | None:
    """Return a violation if there is still something to do after everything was done."""
    for item in testbed.plan(**request):
        if item["action"] != "skip":
            story = f"{item['target']} is never done: {item['slice']} is planned again ({item['why']})"
            return Violation("", "", story, item["target"])
    return None


def no_lock(testbed: Testbed, threads: Sequence[int]) -> Iterator[Case]:
    """Run concurrently without a lock, as on an object store: threads, and a run that is stalled while another commits."""
    if not testbed.job.is_pipeline:
        return
    for number in threads:
        story = f"run concurrently in {number} threads without a lock"
        yield Case(f"no_lock:{number}-threads", "no_lock", story, partial(_race_unlocked, testbed, number))
    story = "stalled before its commit without a lock, while another process ran"
    yield Case("no_lock:2-processes", "no_lock", story, partial(_stall_process, testbed))
    works = {"first": testbed.job.spans[0]} if testbed.job.ordered else _ends(testbed)
    for name, span in works.items():
        testbed.reset()
        reached = testbed.request_run(testbed.main, [span], no_lock=True)["reached"]
        for number, point in enumerate(reached, 1):
            story = f"the {name} work stalled at {point} ({number} of {len(reached)}) without a lock, while another run committed"
            execute = partial(_stall, testbed, span, number)
            yield Case(f"no_lock:{name}-stalled-at-{number}", "no_lock", story, execute)


def _ends(testbed: Testbed) -> dict[str, Span]:
    spans = testbed.job.spans
    return {"first": spans[0], "last": spans[-1]} if len(spans) > 1 else {"first": spans[0]}


def _others(testbed: Testbed, span: Span) -> list[Span]:
    """Return the other works, or all if their order matters or there is only one."""
    others = [each for each in testbed.job.spans if each != span]
    return others if others and not testbed.job.ordered else list(testbed.job.spans)


def _race_unlocked(testbed: Testbed, number: int) -> Violation | None:
    testbed.reset()
    works = testbed.run(threads=number, no_lock=True, rotate=not testbed.job.ordered)
    return judge_race(testbed, works, no_lock=True)


def _stall(testbed: Testbed, span: Span, number: int) -> Violation | None:
    """Stall a work at a failpoint, run others in another thread, and let the first one go on."""
    testbed.reset()
    works = testbed.run(spans=[span], no_lock=True, stall_at=number, meanwhile=_others(testbed, span))
    return judge_race(testbed, works, no_lock=True)


def _stall_process(testbed: Testbed) -> Violation | None:
    """Stall a run in another process before its commit, run here, and let the other one go on.

    Only one of them commits at a time: Delta's log store for local disks is not safe for two processes.
    """
    span, gate = testbed.job.spans[0 if testbed.job.ordered else -1], testbed.setting.sandbox / "gate"
    with closing(testbed.start_worker()) as other:
        other.request("warm")
        testbed.reset()
        testbed.begin(other, [span], no_lock=True, stall_at=_BEFORE_COMMIT, gate=str(gate))
        works: Works = []
        if other.wait_for(gate.with_suffix(".stalled"), 120):
            works = testbed.run(spans=_others(testbed, span), no_lock=True)
        gate.touch()
        works += other.answer()["works"]
        return judge_race(testbed, works, no_lock=True)


def lost_jvms(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Kill only the JVM at one of its calls: the same run starts it again and finishes the works."""
    for number in recording.calls if testbed.job.is_pipeline else ():
        call = recording.call(number)
        if call.jvm:
            story = f"the JVM killed (SIGKILL) before {recording.describe(call)}"
            yield Case(f"lost_jvm:{recording.names[number]}", "lost_jvm", story, partial(_lose_jvm, testbed, number))


def _lose_jvm(testbed: Testbed, number: int) -> Violation | None:
    testbed.reset()
    with closing(testbed.start_worker()) as other:
        other.request("warm")
        try:
            with other.watching(Act(number, KILL, JVM)):
                works = testbed.run(by=other)
        except WorkerDied:
            return Violation("", "", f"the process that writes {min(testbed.job.tables)} ended with its JVM")
    return testbed.judge(works, who="the run itself")


@dataclass(frozen=True)
class _FormerGrid:
    """A grid that the pipeline had before, and the part of the time that was done on it."""

    name: str
    grid: Grid
    done: Interval

    @property
    def request(self) -> dict[str, str]:
        """The grid as a request names it."""
        return {"every": self.grid.every, "zone": self.grid.zone}


def grid_changed(testbed: Testbed) -> Iterator[Case]:
    """Do some works on another grid before, so that the declared one finds intervals that are done in part."""
    copies = testbed.input_copies
    if copies is None or not copies.complete:
        return
    for former in _former_grids(copies, _interval(testbed.job.spans[0]), testbed.job.ordered):
        testbed.reset()
        works = _run_on(testbed, copies, former, former.grid.cell(former.done.start))
        if any(work.get("code") == WrongTimeType.code for work in works):
            continue  # a column of dates cannot be cut by hours
        grid = f"every {former.grid.every} in {former.grid.zone}"
        story = f"{former.done} done {grid}, then every {copies.grid.every} in {copies.grid.zone}"
        execute = partial(_change_grid, testbed, copies, former)
        yield Case(f"grid_changed:from-{former.name}", "grid_changed", story, execute)


def _former_grids(copies: InputCopies, first: Interval, ordered: bool) -> Iterator[_FormerGrid]:
    every, zone = copies.grid.every, copies.grid.zone
    if every in _FINER:
        grid = Grid(_FINER[every], zone)
        # In the middle of the rows, so that some are there and some are not.
        middle = grid.cell(copies.middle)
        yield _FormerGrid(_FINER[every], grid, Interval(first.start if ordered else middle.start, middle.end, zone))
    if every in _COARSER:
        grid = Grid(_COARSER[every], zone)
        yield _FormerGrid(_COARSER[every], grid, grid.around(first))
    grid = Grid(every, "UTC" if zone == _ZONE else _ZONE)
    yield _FormerGrid("other-zone", grid, grid.around(first))


def _change_grid(testbed: Testbed, copies: InputCopies, former: _FormerGrid) -> Violation | None:
    testbed.reset()
    works = _run_on(testbed, copies, former, former.done) + testbed.run(inputs=copies.paths)
    codes = {OtherTimezone.code} if testbed.job.restates else {OtherTimezone.code, PartlyDone.code}
    refused = [work for work in works if work.get("code") in codes]
    if refused:
        # Rows that cannot be written twice, or have dates of another zone: the error names the way out.
        works = [work for work in works if work not in refused]
        works += testbed.run(inputs=copies.paths, rebuild=True) + testbed.run(inputs=copies.paths)
    found = testbed.judge(works, who="the run") or _still_to_do(testbed, inputs=copies.paths)
    if found is None:
        return None
    if testbed.job.restates:
        way_out: dict[str, Any] = {"restate": True} if testbed.job.replaces else {"rebuild": True}
        if left := testbed.judge(testbed.run(inputs=copies.paths, **way_out), who="the restatement"):
            return prefix_story(left, "also after it was restated")
    return found if _is_independent(testbed, copies, former) else None


def _run_on(testbed: Testbed, copies: InputCopies, former: _FormerGrid, interval: Interval) -> Works:
    span = instant_text(interval.start), instant_text(interval.end)
    return testbed.run(spans=[span], inputs=copies.paths, grid=former.request)


def _is_independent(testbed: Testbed, copies: InputCopies, former: _FormerGrid) -> bool:
    """Return whether clean runs on both grids give the same tables. A sum per interval does not.

    One interval shows it where the former grid is finer: it has many works.
    """
    finer = former.name == _FINER.get(copies.grid.every)
    spans = testbed.job.spans[: 1 if finer else None]
    testbed.reset()
    testbed.run(spans=spans, inputs=copies.paths)
    expected = testbed.fingerprints()
    testbed.reset()
    whole = Interval(_interval(spans[0]).start, _interval(spans[-1]).end)
    _run_on(testbed, copies, former, former.grid.around(whole))
    return all(same_content(seen, expected[name]) for name, seen in testbed.fingerprints().items())


def _interval(span: Span) -> Interval:
    start, end = (datetime.fromisoformat(str(text)) for text in span)
    return Interval(start, end)
