"""Cases in which nothing breaks: other orders, several at once, late input. The tables must be those of a clean run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import permutations
from random import Random
from typing import Any

from oncelake.model.failpoints import FAILPOINTS
from oncelake.model.work import BUSY
from oncelake.proving.cases import Case, after
from oncelake.proving.testbed import Testbed, same
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


def cleanly(lab: Testbed) -> Iterator[Case]:
    """Run the job again from the beginning: with the same input it must make the same tables."""
    yield Case("clean", "clean", "a second clean run, with the same input", partial(_run_afresh, lab))


def _run_afresh(lab: Testbed, **request: Any) -> Violation | None:
    lab.fresh()
    return lab.judge(lab.run(**request))


def twice(lab: Testbed) -> Iterator[Case]:
    """Run the job, and run it again."""
    yield Case("twice", "twice", "run twice", partial(_twice, lab))


def _twice(lab: Testbed) -> Violation | None:
    lab.fresh()
    lab.run()
    return lab.judge(lab.rerun())


def orders(lab: Testbed, random: Random, limit: int = 24) -> Iterator[Case]:
    """Run the works in every order; of more than four works, in some."""
    works = range(len(lab.job.spans))
    if len(works) <= 4:
        chosen = list(permutations(works))[1:]
    else:
        chosen = sorted({tuple(random.sample(works, len(works))) for _ in range(limit)})
    for order in chosen:
        shown = "-".join(str(index + 1) for index in order)
        yield Case(f"order:{shown}", "order", f"run in the order {shown}", partial(_ordered, lab, order))


def combine_intervals(lab: Testbed) -> Iterator[Case]:
    """Run all works as one range: it must be what they are one by one."""
    if len(lab.job.spans) > 1:
        whole = (lab.job.spans[0][0], lab.job.spans[-1][1])
        yield Case(
            "combine_intervals", "combine_intervals", "run as one range", partial(_run_afresh, lab, spans=[whole])
        )


def _ordered(lab: Testbed, order: Sequence[int]) -> Violation | None:
    lab.fresh()
    return lab.judge([work for index in order for work in lab.run(spans=[lab.job.spans[index]])])


def races(lab: Testbed, threads: Sequence[int]) -> Iterator[Case]:
    """Run the job several times at once, in threads and in processes."""
    for number in threads if lab.job.threads else ():
        story = f"run {number} times at once, in threads"
        yield Case(f"race:{number}-threads", "race", story, partial(_in_threads, lab, number))
    yield Case("race:2-processes", "race", "run in two processes at once", partial(_in_processes, lab))


def _in_threads(lab: Testbed, number: int) -> Violation | None:
    lab.fresh()
    return _raced(lab, lab.run(threads=number))


def _in_processes(lab: Testbed) -> Violation | None:
    with closing(lab.other()) as other:
        lab.fresh()
        lab.run(by=other)  # so that it is as warm as the first, and both begin at once
        lab.fresh()
        lab.begin(other)
        works = lab.run()
        return _raced(lab, works + other.answer()["works"])


def _raced(lab: Testbed, works: Works) -> Violation | None:
    """Losing is allowed, if it is said and the next run ends well."""
    said = [] if lab.job.may_fail else [work for work in works if work["outcome"] != BUSY]
    return lab.judge([*said, *lab.rerun()])


def restatements(lab: Testbed) -> Iterator[Case]:
    """Do everything again on purpose."""
    if lab.job.restates:
        yield Case("restate", "restate", "run and restated", partial(_restated, lab))
        early = lab.job.early()
        for number, _ in enumerate(FAILPOINTS if early else (), start=1):
            story = f"part of the input came late, and the restatement was stopped at its step {number}"
            yield Case(f"restate:step-{number}", "restate", story, partial(_stopped, lab, str(early), number))


def _restated(lab: Testbed) -> Violation | None:
    lab.fresh()
    lab.run()
    return lab.judge(lab.run(restate=True))


def _stopped(lab: Testbed, early: str, number: int) -> Violation | None:
    """The first step of a restatement is to ask for it: from then on any run goes on with it."""
    lab.fresh()
    lab.run(root=early)
    lab.run(restate=True, stop_at=number)
    return lab.judge(lab.rerun())


def late(lab: Testbed) -> Iterator[Case]:
    """Part of the input comes after the run, or is withdrawn: what is done stays, an intended redo takes it all in."""
    early = lab.job.early()
    if early is None:
        return
    yield Case("late:came", "late", "part of the input came late", partial(_came, lab, str(early)))
    if lab.job.replaces:
        story = "part of the input was withdrawn and the work restated"
        yield Case("late:withdrawn", "late", story, partial(_withdrawn, lab, str(early)))


def _came(lab: Testbed, early: str) -> Violation | None:
    job = lab.job
    lab.fresh()
    first = lab.run(root=early)
    before = lab.stats()
    if problem := lab.judge(first, before):
        return problem
    if not job.redoes and (problem := lab.judge(lab.run(), before)):
        return after(problem, "and run again, which must not redo what is done")
    return lab.judge(lab.run(restate=not job.redoes)) if job.restates else None


def _withdrawn(lab: Testbed, early: str) -> Violation | None:
    lab.fresh()
    lab.run(root=early)
    without = lab.stats()
    lab.fresh()
    lab.run()
    return lab.judge(lab.run(root=early, restate=not lab.job.redoes), without)


def layouts(lab: Testbed) -> Iterator[Case]:
    """Run with the same input in other tasks and another order: what depends on these is another at every run."""
    for name, (story, request) in _LAYOUTS.items():
        yield Case(f"layout:{name}", "layout", story, partial(_run_afresh, lab, **request))


def readers(lab: Testbed) -> Iterator[Case]:
    """Look at every version a reader could have seen: each must be the table before or after a whole work."""
    yield Case("reader", "reader", "read between two commits", partial(_read, lab))


def _read(lab: Testbed) -> Violation | None:
    lab.fresh()
    whole = [lab.stats()]
    for span in lab.job.spans:
        lab.run(spans=[span])
        whole.append(lab.stats())
    lab.run(restate=lab.job.restates)
    since = {table: seen["version"] for table, seen in whole[0].items() if seen is not None}
    found = (_torn(table, seen, [state[table] for state in whole]) for table, seen in lab.versions(since).items())
    return next(filter(None, found), None)


def _torn(table: str, versions: Sequence[Mapping[str, Any]], whole: Sequence[Any]) -> Violation | None:
    """The first version that no whole work leaves. A new table may be empty until its first rows come."""
    filled = whole[0] is not None and whole[0]["rows"] > 0
    for seen in versions:
        if not any(same(seen, state) for state in whole) and (filled or seen["rows"]):
            story = f"version {seen['version']} of {table}, with {seen['rows']:,} rows, is half of a work"
            return Violation("", "", story, table)
        filled = filled or seen["rows"] > 0
    return None
