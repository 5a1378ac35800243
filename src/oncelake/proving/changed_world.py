"""Cases in which the world changes between two runs: corrected input, restores, a second target, another name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from oncelake.delta.log import find_log
from oncelake.errors import CannotRestate, PinnedInputGone, RenamedPipeline
from oncelake.model.work import FAILED
from oncelake.proving.cases import Case, prefix_story
from oncelake.proving.testbed import SECOND, AlteredInput, Span, Testbed, same_content
from oncelake.proving.verdict import Violation

Works = list[dict[str, Any]]
_REBUILD_STEPS = ("written", "replayed", "rebuilt")
_RUN_STEPS = ("transformed", "prepared", "written")
# After the commit of the first of two targets.
_BETWEEN_TARGETS = ("written", "settled")


def _case(testbed: Testbed, name: str, story: str, execute: Callable[..., Violation | None], *more: Any) -> Case:
    return Case(name, name.partition(":")[0], story, partial(execute, testbed, *more))


# Corrected input


def corrected(testbed: Testbed) -> Iterator[Case]:
    """Correct the input after a run, and redo the work: the tables must equal those of a clean run on the corrected input."""
    job, altered = testbed.job, testbed.altered
    if altered is None:
        return
    if job.replaces:
        story = "rows of the input were corrected and the work restated"
        yield _case(testbed, "corrected:restated", story, _restate_corrected, altered)
        story = "rows of the input were changed, withdrawn and added, and the work restated"
        yield _case(testbed, "corrected:restated-other", story, _restate_other, altered)
    story = "rows of the input were corrected and the tables restored to nothing"
    yield _case(testbed, "corrected:restored", story, _restore_corrected, altered)
    story = "rows of the input were changed, withdrawn and added, and the tables restored to nothing"
    yield _case(testbed, "corrected:restored-other", story, _restore_other, altered)
    yield _case(testbed, "corrected:rebuilt", "rows of the input were corrected, rebuilt", _rebuild_corrected, altered)
    story = "rows of the input were changed, withdrawn and added, and the table rebuilt"
    yield _case(testbed, "corrected:rebuilt-other", story, _rebuild_other, altered)
    for point in _REBUILD_STEPS:
        story = f"rows of the input were corrected and the rebuild was stopped at {point}"
        yield _case(testbed, f"corrected:stopped-{point}", story, _stop_rebuild, altered, point)
    if len(job.spans) > 1:
        story = "the input was corrected after the first work, and all of it redone"
        yield _case(testbed, "corrected:partly", story, _correct_partly, altered)
        story = "rows of the input were corrected and the table rebuilt before the remaining work ran"
        yield _case(testbed, "corrected:resumed", story, _resume_after_rebuild, altered)


def _redo(testbed: Testbed) -> dict[str, Any]:
    """Return the request that redoes finished work: a restatement where rows are replaced, else a rebuild."""
    return {"restate": not testbed.job.redoes} if testbed.job.replaces else {"rebuild": True}


def _restate_corrected(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    testbed.run(root=altered.root)
    return testbed.judge([*testbed.run(restate=not testbed.job.redoes), *testbed.run()])


def _restate_other(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    testbed.run()
    works = testbed.run(restate=not testbed.job.redoes, root=altered.root)
    return testbed.judge([*works, *testbed.run(root=altered.root)], altered.reference)


def _restore_corrected(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    """What cannot be restated is refused; after a restore the next run reads the new input."""
    testbed.reset()
    empty = _versions(testbed)
    works, before = testbed.run(root=altered.root), testbed.fingerprints()
    if not testbed.job.restates:
        problem = expect_refusal(testbed, testbed.run(restate=True), CannotRestate.code, before)
        if problem:
            return prefix_story(problem, "and restated, which must be refused")
    works += testbed.run(restore=empty)
    return testbed.judge([*works, *testbed.run()])


def _restore_other(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    empty = _versions(testbed)
    works = testbed.run() + testbed.run(restore=empty)
    return testbed.judge([*works, *testbed.run(root=altered.root)], altered.reference)


def _rebuild_corrected(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    testbed.run(root=altered.root)
    return testbed.judge([*testbed.run(rebuild=True), *testbed.run()])


def _rebuild_other(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    testbed.run()
    works = testbed.run(rebuild=True, root=altered.root)
    return testbed.judge([*works, *testbed.run(root=altered.root)], altered.reference)


def _stop_rebuild(testbed: Testbed, altered: AlteredInput, point: str) -> Violation | None:
    """Stop a rebuild: each table must be the old one or the new one, and the next rebuild must finish."""
    testbed.reset()
    testbed.run(root=altered.root)
    testbed.run(rebuild=True, stop_at=point)
    for name, seen in testbed.fingerprints().items():
        if not any(same_content(seen, whole[name]) for whole in (altered.reference, testbed.reference)):
            return Violation("", "", f"{name} is neither the old table nor the rebuilt one", name)
    return testbed.judge([*testbed.run(rebuild=True), *testbed.run()])


def _correct_partly(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    works = testbed.run(spans=testbed.job.spans[:1], root=altered.root)
    works += testbed.run()
    return testbed.judge([*works, *testbed.run(**_redo(testbed))])


def _resume_after_rebuild(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    """Rebuild before the rest is run. Where any order is allowed the rest is older: it meets the tombstones."""
    spans = testbed.job.spans[:-1] if testbed.job.ordered else testbed.job.spans[1:]
    testbed.reset()
    works = testbed.run(spans=spans, root=altered.root)
    works += testbed.run(rebuild=True)
    return testbed.judge([*works, *testbed.run()])


# Restored tables


def restored(testbed: Testbed) -> Iterator[Case]:
    """Restore the tables to earlier versions between runs: the next run must bring back exactly what was undone."""
    if not testbed.job.is_pipeline:
        return
    number = len(testbed.job.spans)
    for done in range(1, number + 1):
        for kept in range(done):
            story = f"{_count(done)} run, then the tables restored to {_count(kept)}"
            yield _case(testbed, f"restored:{done}-to-{kept}", story, _restore, done, kept)
    for kept in range(number):
        story = f"restored to {_count(kept)}, run, restored again, and that restore undone"
        yield _case(testbed, f"restored:undone-{kept}", story, _undo_restore, kept)
    if len(testbed.job.tables) > 1:
        yield _case(testbed, "restored:one-table", "one of the tables restored to nothing", _restore_one)
    for point in _RUN_STEPS:
        story = f"restored to nothing, and the next run stopped at {point}"
        yield _case(testbed, f"restored:stopped-{point}", story, _stop_after_restore, point)


def _count(works: int) -> str:
    return "nothing" if not works else "1 work" if works == 1 else f"{works} works"


def _versions(testbed: Testbed) -> dict[str, int]:
    """Return the versions of the tables. The first version of a table that does not exist yet will be 0, without rows."""
    found = {name: find_log(name, str(path)) for name, path in testbed.job.tables.items()}
    return {name: log.version if log else 0 for name, log in found.items()}


def _run_one_by_one(testbed: Testbed, spans: Sequence[Span], **request: Any) -> tuple[Works, list[dict[str, int]]]:
    """Run works one after the other, and return the versions before the first and after each."""
    testbed.reset()
    works, versions = [], [_versions(testbed)]
    for span in spans:
        works += testbed.run(spans=[span], **request)
        versions.append(_versions(testbed))
    return works, versions


def _restore(testbed: Testbed, done: int, kept: int) -> Violation | None:
    works, versions = _run_one_by_one(testbed, testbed.job.spans[:done])
    works += testbed.run(restore=versions[kept])
    return testbed.judge([*works, *testbed.run(), *testbed.run()])


def _undo_restore(testbed: Testbed, kept: int) -> Violation | None:
    works, versions = _run_one_by_one(testbed, testbed.job.spans)
    works += testbed.run(restore=versions[kept])
    if problem := testbed.judge([*works, *testbed.run()]):
        return problem
    newest = _versions(testbed)
    works += testbed.run(restore=versions[kept])
    works += testbed.run(restore=newest)
    return testbed.judge(works) or testbed.judge(testbed.run())


def _restore_one(testbed: Testbed) -> Violation | None:
    works, versions = _run_one_by_one(testbed, testbed.job.spans)
    table = min(testbed.job.tables)
    works += testbed.run(restore={table: versions[0][table]})
    return testbed.judge([*works, *testbed.run()])


def _stop_after_restore(testbed: Testbed, point: str) -> Violation | None:
    works, versions = _run_one_by_one(testbed, testbed.job.spans)
    works += testbed.run(restore=versions[0])
    testbed.run(stop_at=point)
    return testbed.judge([*works, *testbed.rerun()])


# A second target


def second_target(testbed: Testbed) -> Iterator[Case]:
    """Declare a second target for the same rows, before or after other input arrives."""
    if not testbed.job.second:
        return
    altered = testbed.altered
    changed = "with other input before" if altered else "with the same input before"
    story = f"a second target declared after the first run, {changed}"
    yield _case(testbed, "second_target:added", story, _add_target, altered)
    for point in _BETWEEN_TARGETS:
        story = f"stopped at {point} between the commits of two targets"
        yield _case(testbed, f"second_target:stopped-{point}", story, _stop_between, point)
    if altered is None:
        return
    for point in _BETWEEN_TARGETS:
        story = f"stopped at {point} between the commits of two targets, then the input corrected"
        yield _case(testbed, f"second_target:corrected-{point}", story, _correct_between, altered, point)
    if testbed.job.restates and not testbed.job.redoes:
        story = "two targets, the input corrected, both restated"
        yield _case(testbed, "second_target:restated", story, _restate_both, altered)
        story = "two targets, the input corrected, the restatement stopped between its requests"
        yield _case(testbed, "second_target:requested", story, _stop_between_requests, altered)


def _add_target(testbed: Testbed, altered: AlteredInput | None) -> Violation | None:
    """The second target is made from the present input; the first keeps what it was made from, unless it redoes itself."""
    testbed.reset()
    works = testbed.run(root=altered.root) if altered else testbed.run()
    works += testbed.run(second=True)
    first = altered.reference if altered and not testbed.job.redoes else testbed.reference
    return _judge_both(testbed, works, first, testbed.reference)


def _stop_between(testbed: Testbed, point: str) -> Violation | None:
    testbed.reset()
    testbed.run(second=True, stop_at=point)
    return _judge_both(testbed, testbed.run(second=True))


def _correct_between(testbed: Testbed, altered: AlteredInput, point: str) -> Violation | None:
    """Finish from the recorded input, or say that it is gone and name a command after which all is well."""
    testbed.reset()
    testbed.run(second=True, root=altered.root, stop_at=point)
    works = testbed.run(second=True)
    failed = [work for work in works if work["outcome"] == FAILED]
    if not failed:
        return _judge_both(testbed, works, *[testbed.fingerprints()] * 2)
    if wrong := [work for work in failed if work["code"] != PinnedInputGone.code]:
        return testbed.judge(wrong)
    if testbed.job.replaces:
        works = testbed.run(second=True, restate=True)
        return _judge_both(testbed, [*works, *testbed.run(second=True)])
    # Written from the present input, the second target is as if it had been added now. A rebuild makes both so.
    works = testbed.run(second=True, accept_new_input=True)
    if problem := _judge_both(testbed, works, testbed.fingerprints(), testbed.reference):
        return prefix_story(problem, "and run with --accept-new-input")
    return _judge_both(testbed, testbed.run(second=True, rebuild=True))


def _restate_both(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    testbed.reset()
    testbed.run(second=True, root=altered.root)
    works = testbed.run(second=True, restate=True)
    first, second = testbed.fingerprints(), testbed.fingerprints(second=True)
    return _judge_restated(testbed, works) or _same_targets(first, second)


def _stop_between_requests(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    """One of two targets is requested: `run` redoes it from the present input, the same command then both."""
    testbed.reset()
    testbed.run(second=True, root=altered.root)
    testbed.run(second=True, restate=True, stop_at="requested")
    works = testbed.run(second=True)
    if testbed.job.replaces and (problem := _judge_both(testbed, works, None, altered.reference)):
        return prefix_story(problem, "and run")
    return _judge_restated(testbed, [*works, *testbed.run(second=True, restate=True)])


def _judge_restated(testbed: Testbed, works: Works) -> Violation | None:
    """Judge two restated targets. Where rows are not replaced, those that the input no longer has remain until a rebuild."""
    if not testbed.job.replaces:
        works = works + testbed.run(second=True, rebuild=True)
    return _judge_both(testbed, works)


def _judge_both(
    testbed: Testbed,
    works: Works,
    first: Mapping[str, Any] | None = None,
    second: Mapping[str, Any] | None = None,
) -> Violation | None:
    """Judge the first and the second targets, by default with the clean run's."""
    second = testbed.reference if second is None else second
    return testbed.judge(works, first) or _same_targets(second, testbed.fingerprints(second=True))


def _same_targets(expected: Mapping[str, Any], second: Mapping[str, Any]) -> Violation | None:
    """Return the first difference of the second targets from what is expected of the first ones."""
    for name, wanted in expected.items():
        seen = second[f"{name}{SECOND}"]
        if not same_content(seen, wanted):
            found, rows = (f"{each['rows']:,} rows" if each else "no table" for each in (seen, wanted))
            return Violation("", "", f"{name}{SECOND} has {found}, expected {rows} with other content", name)
    return None


# Another name


def renamed(testbed: Testbed) -> Iterator[Case]:
    """Rename the pipeline between runs: with `formerly=` its works count, without it nothing may be written twice."""
    job = testbed.job
    if not job.is_pipeline:
        return
    for done in sorted({1, len(job.spans)}):
        story = f"renamed after {_count(done)}, with formerly="
        yield _case(testbed, f"renamed:{done}-formerly", story, _rename, done, _new_name(testbed, formerly=True))
        story = f"renamed after {_count(done)}, without formerly="
        execute = _rename if job.restates else _refuse_renamed
        yield _case(testbed, f"renamed:{done}", story, execute, done, _new_name(testbed))
    story = "renamed with formerly=, then the tables restored to nothing"
    yield _case(testbed, "renamed:restored", story, _restore_renamed)
    if altered := testbed.altered:
        story = "renamed with formerly=, then the input corrected and the work redone"
        yield _case(testbed, "renamed:corrected", story, _correct_renamed, altered)


def _new_name(testbed: Testbed, *, formerly: bool = False) -> dict[str, Any]:
    return {"name": f"{testbed.job.name}_renamed", "formerly": formerly}


def _rename(testbed: Testbed, done: int, name: Mapping[str, Any]) -> Violation | None:
    testbed.reset()
    works = testbed.run(spans=testbed.job.spans[:done])
    return testbed.judge([*works, *testbed.run(**name), *testbed.run(**name)])


def _refuse_renamed(testbed: Testbed, done: int, name: Mapping[str, Any]) -> Violation | None:
    testbed.reset()
    testbed.run(spans=testbed.job.spans[:done])
    before = testbed.fingerprints()
    if problem := expect_refusal(testbed, testbed.run(**name), RenamedPipeline.code, before):
        return prefix_story(problem, "and run, which must be refused")
    return testbed.judge(testbed.run(**_new_name(testbed, formerly=True)))


def _restore_renamed(testbed: Testbed) -> Violation | None:
    works, versions = _run_one_by_one(testbed, testbed.job.spans)
    name = _new_name(testbed, formerly=True)
    works += testbed.run(**name)
    works += testbed.run(restore=versions[0], **name)
    return testbed.judge([*works, *testbed.run(**name)])


def _correct_renamed(testbed: Testbed, altered: AlteredInput) -> Violation | None:
    name = _new_name(testbed, formerly=True)
    testbed.reset()
    testbed.run(root=altered.root)
    return testbed.judge([*testbed.run(**_redo(testbed), **name), *testbed.run(**name)])


def expect_refusal(testbed: Testbed, works: Works, code: str, before: Mapping[str, Any]) -> Violation | None:
    """Return a violation unless works were refused with a code, and nothing was written."""
    for work in works:
        if work.get("code") != code:
            found = f"{work['outcome']}: {work['error']}" if work["error"] else work["outcome"]
            return Violation("", "", f"{work.get('target')} was not refused, but {found}", work.get("target"))
    for table, seen in testbed.fingerprints().items():
        if seen != before[table]:
            return Violation("", "", f"{table} was refused, and yet it was written", table)
    return None
