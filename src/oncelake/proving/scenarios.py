"""Cases in which nothing breaks: other orders, several at once, late input. The tables must be those of a clean run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from random import Random
from typing import Any

from oncelake.proving.cases import Case, after
from oncelake.proving.laboratory import Laboratory, same
from oncelake.proving.verdict import Violation
from oncelake.work import LOST

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


def cleanly(lab: Laboratory) -> Iterator[Case]:
    """Run the job again from the beginning: with the same input it must make the same tables."""

    def happen() -> Violation | None:
        lab.fresh()
        return lab.judge(lab.run())

    yield Case("clean", "clean", "a second clean run, with the same input", happen)


def twice(lab: Laboratory) -> Iterator[Case]:
    """Run the job, and run it again."""

    def happen() -> Violation | None:
        lab.fresh()
        lab.run()
        return lab.judge(lab.rerun())

    yield Case("twice", "twice", "run twice", happen)


def orders(lab: Laboratory, random: Random, limit: int = 24) -> Iterator[Case]:
    """Run the works in every order; of more than four works, in some."""

    def ordered(order: tuple[int, ...]) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            return lab.judge([w for i in order for w in lab.run(spans=[lab.job.spans[i]])])

        return happen

    works = range(len(lab.job.spans))
    if len(works) <= 4:
        chosen = list(permutations(works))[1:]
    else:
        chosen = sorted({tuple(random.sample(works, len(works))) for _ in range(limit)})
    for order in chosen:
        shown = "-".join(str(index + 1) for index in order)
        yield Case(f"order:{shown}", "order", f"run in the order {shown}", ordered(order))


def races(lab: Laboratory, threads: Sequence[int]) -> Iterator[Case]:
    """Run the job several times at once, in threads and in processes."""

    def in_threads(number: int) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            return _raced(lab, lab.run(threads=number))

        return happen

    def in_processes() -> Violation | None:
        other = lab.other()
        try:
            lab.fresh()
            lab.run(by=other)  # so that it is as warm as the first, and both begin at once
            lab.fresh()
            lab.begin(other)
            works = lab.run()
            return _raced(lab, works + other.answer()["works"])
        finally:
            other.close()

    for number in threads if lab.job.threads else ():
        yield Case(f"race:{number}-threads", "race", f"run {number} times at once, in threads", in_threads(number))
    yield Case("race:2-processes", "race", "run in two processes at once", in_processes)


def _raced(lab: Laboratory, works: Works) -> Violation | None:
    """Losing is allowed, if it is said and the next run ends well."""
    said = [] if lab.job.may_fail else [work for work in works if work["outcome"] != LOST]
    return lab.judge([*said, *lab.rerun()])


def restatements(lab: Laboratory) -> Iterator[Case]:
    """Do everything again on purpose."""

    def happen() -> Violation | None:
        lab.fresh()
        lab.run()
        return lab.judge(lab.run(restate=True))

    if lab.job.replaces:
        yield Case("restate", "restate", "run and restated", happen)


def late(lab: Laboratory) -> Iterator[Case]:
    """Part of the input comes after the run, or is withdrawn: what is done stays, an intended redo takes it all in."""
    job = lab.job

    def came() -> Violation | None:
        lab.fresh()
        first = lab.run(root=str(job.early))
        before = lab.look()
        if problem := lab.judge(first, before):
            return problem
        if not job.redoes and (problem := lab.judge(lab.run(), before)):
            return after(problem, "and run again, which must not redo what is done")
        return lab.judge(lab.run(restate=not job.redoes)) if job.replaces else None

    def was_withdrawn() -> Violation | None:
        lab.fresh()
        lab.run(root=str(job.early))
        without = lab.look()
        lab.fresh()
        lab.run()
        return lab.judge(lab.run(root=str(job.early), restate=not job.redoes), without)

    if job.early is not None:
        yield Case("late:came", "late", "part of the input came late", came)
        if job.replaces:
            yield Case("late:withdrawn", "late", "part of the input was withdrawn and the work restated", was_withdrawn)


def layouts(lab: Laboratory) -> Iterator[Case]:
    """Run with the same input in other tasks and another order: what depends on these is another at every run."""

    def cut(ask: Mapping[str, Any]) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            return lab.judge(lab.run(**ask))

        return happen

    for name, (story, ask) in _LAYOUTS.items():
        yield Case(f"layout:{name}", "layout", story, cut(ask))


def readers(lab: Laboratory) -> Iterator[Case]:
    """Look at every version a reader could have seen: each must be the table before or after a whole work."""

    def happen() -> Violation | None:
        lab.fresh()
        whole = [lab.look()]
        for span in lab.job.spans:
            lab.run(spans=[span])
            whole.append(lab.look())
        lab.run(restate=lab.job.replaces)
        since = {table: seen["version"] for table, seen in whole[0].items() if seen is not None}
        found = (_torn(table, seen, [state[table] for state in whole]) for table, seen in lab.versions(since).items())
        return next(filter(None, found), None)

    yield Case("reader", "reader", "read between two commits", happen)


def _torn(table: str, versions: Sequence[Mapping[str, Any]], whole: Sequence[Any]) -> Violation | None:
    """The first version that no whole work leaves. A new table may be empty until its first rows come."""
    filled = whole[0] is not None and whole[0]["rows"] > 0
    for seen in versions:
        if not any(same(seen, state) for state in whole) and (filled or seen["rows"]):
            story = f"version {seen['version']} of {table}, with {seen['rows']:,} rows, is half of a work"
            return Violation("", "", story, table)
        filled = filled or seen["rows"] > 0
    return None
