"""Cases without failures: other orders, concurrent runs, late input. The tables must equal those of a clean run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import permutations
from random import Random
from typing import Any

from oncelake.model.failpoints import FAILPOINTS
from oncelake.model.work import BUSY
from oncelake.proving.cases import Case, prefix_story
from oncelake.proving.testbed import Testbed, same_content
from oncelake.proving.verdict import Violation

_LAYOUTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "scattered": ("the rows of the input in another order", {"scatter": 5}),
    "small": (
        "the input in many small tasks",
        {
            "settings": {
                "spark.sql.shuffle.partitions": "5",
                "spark.sql.files.maxPartitionBytes": "256",
                "spark.sql.files.openCostInBytes": "0",
                "spark.sql.adaptive.enabled": "false",
            }
        },
    ),
}
Works = list[dict[str, Any]]


def clean_runs(testbed: Testbed) -> Iterator[Case]:
    """Run the job again from the beginning: the same input must give the same tables."""
    yield Case("clean", "clean", "a second clean run, with the same input", partial(_run_clean, testbed))


def _run_clean(testbed: Testbed, **request: Any) -> Violation | None:
    testbed.reset()
    return testbed.judge(testbed.run(**request))


def twice(testbed: Testbed) -> Iterator[Case]:
    """Run the job twice."""
    yield Case("twice", "twice", "run twice", partial(_run_twice, testbed))


def _run_twice(testbed: Testbed) -> Violation | None:
    testbed.reset()
    testbed.run()
    return testbed.judge(testbed.rerun())


def orders(testbed: Testbed, random: Random, limit: int = 24) -> Iterator[Case]:
    """Run the works in every order, if any is declared to do; with more than four works, in a sample of orders."""
    # A pipeline that is written in the order of time refuses every other one.
    works = range(0 if testbed.job.ordered else len(testbed.job.spans))
    if len(works) <= 4:
        chosen = list(permutations(works))[1:]
    else:
        chosen = sorted({tuple(random.sample(works, len(works))) for _ in range(limit)})
    for order in chosen:
        text = "-".join(str(index + 1) for index in order)
        yield Case(f"order:{text}", "order", f"run in the order {text}", partial(_run_in_order, testbed, order))


def combine_intervals(testbed: Testbed) -> Iterator[Case]:
    """Run all works as one range: the result must equal that of single intervals."""
    if len(testbed.job.spans) > 1:
        whole = (testbed.job.spans[0][0], testbed.job.spans[-1][1])
        yield Case(
            "combine_intervals", "combine_intervals", "run as one range", partial(_run_clean, testbed, spans=[whole])
        )


def _run_in_order(testbed: Testbed, order: Sequence[int]) -> Violation | None:
    testbed.reset()
    return testbed.judge([work for index in order for work in testbed.run(spans=[testbed.job.spans[index]])])


def races(testbed: Testbed, threads: Sequence[int]) -> Iterator[Case]:
    """Run the job concurrently, in threads and in processes."""
    for number in threads if testbed.job.threads else ():
        story = f"run concurrently in {number} threads"
        yield Case(f"race:{number}-threads", "race", story, partial(_race_threads, testbed, number))
    yield Case("race:2-processes", "race", "run concurrently in two processes", partial(_race_processes, testbed))


def _race_threads(testbed: Testbed, number: int) -> Violation | None:
    testbed.reset()
    return judge_race(testbed, testbed.run(threads=number))


def _race_processes(testbed: Testbed) -> Violation | None:
    with closing(testbed.start_worker()) as other:
        testbed.reset()
        testbed.run(by=other)  # warm up the second worker, so that both start at the same time
        testbed.reset()
        testbed.begin(other)
        works = testbed.run()
        return judge_race(testbed, works + other.answer()["works"])


def judge_race(testbed: Testbed, works: Works, **request: Any) -> Violation | None:
    """Judge concurrent runs: `busy` is allowed if the next run succeeds."""
    not_busy = [] if testbed.job.may_fail else [work for work in works if work["outcome"] != BUSY]
    return testbed.judge([*not_busy, *testbed.rerun(**request)])


def restatements(testbed: Testbed) -> Iterator[Case]:
    """Restate all works."""
    if testbed.job.restates:
        yield Case("restate", "restate", "run and restated", partial(_restate, testbed))
        early = testbed.job.early()
        for number, _ in enumerate(FAILPOINTS if early else (), start=1):
            story = f"part of the input arrived late, and the restatement was stopped at its step {number}"
            yield Case(f"restate:step-{number}", "restate", story, partial(_stop_restate, testbed, str(early), number))


def _restate(testbed: Testbed) -> Violation | None:
    testbed.reset()
    testbed.run()
    return testbed.judge(testbed.run(restate=True))


def _stop_restate(testbed: Testbed, early: str, number: int) -> Violation | None:
    """Stop a restatement after its request is committed: from then on any run continues it.

    The first two points that it reaches, `claimed` and `committing`, are before that commit.
    """
    testbed.reset()
    testbed.run(root=early)
    testbed.run(restate=True, stop_at=number + 2)
    return testbed.judge(testbed.rerun())


def late(testbed: Testbed) -> Iterator[Case]:
    """Let part of the input arrive after the run, or withdraw it: `run` keeps finished works, restate reads it all."""
    early = testbed.job.early()
    if early is None:
        return
    yield Case("late:came", "late", "part of the input arrived late", partial(_arrive_late, testbed, str(early)))
    if testbed.job.replaces:
        story = "part of the input was withdrawn and the work restated"
        yield Case("late:withdrawn", "late", story, partial(_withdraw, testbed, str(early)))


def _arrive_late(testbed: Testbed, early: str) -> Violation | None:
    job = testbed.job
    testbed.reset()
    first = testbed.run(root=early)
    before = testbed.fingerprints()
    if problem := testbed.judge(first, before):
        return problem
    if not job.redoes and (problem := testbed.judge(testbed.run(), before)):
        return prefix_story(problem, "and run again, which must not redo finished works")
    return testbed.judge(testbed.run(restate=not job.redoes)) if job.restates else None


def _withdraw(testbed: Testbed, early: str) -> Violation | None:
    testbed.reset()
    testbed.run(root=early)
    without = testbed.fingerprints()
    testbed.reset()
    testbed.run()
    return testbed.judge(testbed.run(root=early, restate=not testbed.job.redoes), without)


def layouts(testbed: Testbed) -> Iterator[Case]:
    """Run with the same input in other tasks and another order, to detect results that depend on them."""
    for name, (story, request) in _LAYOUTS.items():
        yield Case(f"layout:{name}", "layout", story, partial(_run_clean, testbed, **request))


def readers(testbed: Testbed) -> Iterator[Case]:
    """Check every version that a reader could have seen: each must be the table before or after a whole work."""
    if not testbed.job.by_batch:
        yield Case("reader", "reader", "read between two commits", partial(_check_versions, testbed))


def _check_versions(testbed: Testbed) -> Violation | None:
    testbed.reset()
    whole = [testbed.fingerprints()]
    for span in testbed.job.spans:
        testbed.run(spans=[span])
        whole.append(testbed.fingerprints())
    testbed.run(restate=testbed.job.restates)
    since = {table: seen["version"] for table, seen in whole[0].items() if seen is not None}
    found = (
        _find_partial(table, seen, [state[table] for state in whole]) for table, seen in testbed.versions(since).items()
    )
    return next(filter(None, found), None)


def _find_partial(table: str, versions: Sequence[Mapping[str, Any]], whole: Sequence[Any]) -> Violation | None:
    """Return the first version that contains part of a work. A new table may be empty until its first rows."""
    filled = whole[0] is not None and whole[0]["rows"] > 0
    for seen in versions:
        if not any(same_content(seen, state) for state in whole) and (filled or seen["rows"]):
            story = f"version {seen['version']} of {table}, with {seen['rows']:,} rows, contains part of a work"
            return Violation("", "", story, table)
        filled = filled or seen["rows"] > 0
    return None
