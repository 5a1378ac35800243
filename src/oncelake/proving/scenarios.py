"""What can happen to a job, as cases to be tried: each leaves the job run to its end, and the tables are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product
from random import Random
from typing import Any

from oncelake.proving.calls import ERRORS, FAIL, JVM, KILL, LOSE, PYTHON, STOP, Act, Call
from oncelake.proving.images import Image, distinct
from oncelake.proving.laboratory import DONE, Laboratory, masked, same
from oncelake.proving.trial import Died, Trial
from oncelake.proving.verdict import Violation, told
from oncelake.work import LOST

_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
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
_KILLED = {PYTHON | JVM: "both", PYTHON: "python", JVM: "jvm"}
Works = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One thing that can happen: its name, its story, and how to make it happen. What it returns is wrong, if anything."""

    id: str
    scenario: str
    story: str
    happen: Callable[[], Violation | None]


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


def steps(lab: Laboratory) -> Iterator[Case]:
    """Stop at every named point of the ring, and run again."""
    lab.fresh()
    reached: list[str] = lab.asked(lab.main)["reached"]

    def stopped(number: int) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            lab.run(stop_at=number)
            return lab.judge(lab.rerun())

        return happen

    for number, point in enumerate(reached, 1):
        yield Case(f"step:{number}", "step", f"stopped at {point} ({number} of {len(reached)})", stopped(number))


def crashes(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """Recover every distinct state that a kill after some call would leave."""

    def recovered(image: Image) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.put(image.tree)
            return lab.judge(lab.rerun())

        return happen

    names = labels(lab, recorded)
    for image in distinct(recorded):
        yield Case(f"crash:{names[image.number]}", "crash", _killed(lab, image), recovered(image))


def crashes_in_recovery(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """Crash, crash again while recovering, and recover from that."""

    def recovered(image: Image, name: str) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            second = distinct(lab.recorded(image.tree))
            again = Random(name).choice(second)  # noqa: S311  the same case is the same crash
            lab.put(again.tree)
            found = lab.judge(lab.rerun())
            return found and _after(found, f"and again while recovering, {_killed(lab, again)}")

        return happen

    names = labels(lab, recorded)
    for image in distinct(recorded):
        name = names[image.number]
        yield Case(f"recovery:{name}", "recovery", _killed(lab, image), recovered(image, name))


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
        lab.fresh()
        other = lab.other()
        try:
            other.ask("warm")
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
            return _after(problem, "and run again, which must not redo what is done")
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


def kills(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """Kill real processes at a call, and run again at once, while a JVM may still be dying."""

    def killed(number: int, who: int) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            other = lab.other()
            try:
                _run_until_killed(lab, other, Act(number, KILL, who))
                if who == PYTHON | JVM:
                    lab.confirm(recorded[number - 1])
                return lab.judge(lab.rerun())
            finally:
                other.close()

        return happen

    names = labels(lab, recorded)
    for (who, shown), number in product(_KILLED.items(), range(1, len(recorded))):
        story = f"{shown} really killed before {_told(lab, recorded[number])}"
        yield Case(f"kill:{shown}:{names[number]}", "kill", story, killed(number, who))


def _run_until_killed(lab: Laboratory, other: Trial, act: Act) -> None:
    other.ask("warm")
    assert other.controls is not None
    with other.controls.watching(other.journal, act):
        lab.begin(other)
        try:
            other.answer()
        except Died:
            return


def faults(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """Let a call fail as a full or broken disk makes it fail."""

    def failing(number: int, error: str) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            return _settled(lab, Act(number, FAIL, error=ERRORS[error], onwards=error == "ENOSPC"))

        return happen

    names = labels(lab, recorded)
    for error, number in product(ERRORS, range(1, len(recorded))):
        story = f"{error} at {_told(lab, recorded[number])}"
        yield Case(f"fault:{error}:{names[number]}", "fault", story, failing(number, error))


def lost_answers(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """Let a commit land and its answer be an error."""

    def losing(number: int) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            return _settled(lab, Act(number, LOSE, error=ERRORS["EIO"]))

        return happen

    names = labels(lab, recorded)
    for number in commits(recorded):
        story = f"the answer lost after {_told(lab, recorded[number])}"
        yield Case(f"lost:{names[number]}", "lost", story, losing(number))


def _settled(lab: Laboratory, act: Act) -> Violation | None:
    """A run that met a fault may fail; what it calls done must be done, and the next run must end well."""
    works, _, _ = lab.watched(act)
    if works and all(work["outcome"] in DONE for work in works):
        problem = lab.judge(works)
        if problem:
            return _after(problem, "and it said all was done")
    return lab.judge(lab.rerun())


def zombies(lab: Laboratory, recorded: Sequence[Image]) -> Iterator[Case]:
    """A writer stops in the middle of its commit, is taken for dead, and wakes after its successor has run."""

    def woken(number: int) -> Callable[[], Violation | None]:
        def happen() -> Violation | None:
            lab.fresh()
            other = lab.other()
            try:
                other.ask("warm")
                assert other.controls is not None
                with other.controls.watching(other.journal, Act(number, STOP)):
                    lab.begin(other)
                    if other.wait_until_acted(120):
                        other.kill()
                        lab.run(patience=0.5)
                    other.wake()
                    other.wait_until_gone(60)
                return lab.judge(lab.rerun())
            finally:
                other.close()

        return happen

    names = labels(lab, recorded)
    for number in commits(recorded):
        if _of(recorded[number]).jvm:
            story = f"stopped before {_told(lab, recorded[number])}, woken after its successor"
            yield Case(f"zombie:{names[number]}", "zombie", story, woken(number))


def commits(recorded: Sequence[Image]) -> list[int]:
    """The numbers of the calls that publish a version of a table."""
    return [image.number for image in recorded if image.after and _COMMIT.search(image.after.to)]


def spread(found: Sequence[Any], number: int, random: Random) -> list[Any]:
    """So many of them, one at random from each of as many equal stretches: every part of a run has its share."""
    if number >= len(found):
        return list(found)
    stretch = len(found) / max(number, 1)
    return [found[int((index + random.random()) * stretch)] for index in range(number)]


def labels(lab: Laboratory, recorded: Sequence[Image]) -> Mapping[int, str]:
    """A name for every call that is the same in another recording: random parts of paths are left out."""
    seen: Counter[str] = Counter()
    names = {0: "start"}
    for image in islice(recorded, 1, None):
        call = _of(image)
        label = f"{call.kind}:{place(lab, call)}"
        seen[label] += 1
        names[image.number] = label if seen[label] == 1 else f"{label}#{seen[label]}"
    return names


def _killed(lab: Laboratory, image: Image) -> str:
    if image.after is None:
        return "killed before anything was written"
    return f"killed after {told(image.after, place(lab, image.after))}"


def _told(lab: Laboratory, image: Image) -> str:
    return told(_of(image), place(lab, _of(image)))


def place(lab: Laboratory, call: Call) -> str:
    """Where a call changed something, from the watched folder on, random parts left out."""
    return masked(lab.folders.inner(call.to or call.path).partition("/")[2]) or "."


def _of(image: Image) -> Call:
    assert image.after is not None
    return image.after


def _after(found: Violation, story: str) -> Violation:
    return Violation(**{**vars(found), "story": f"{story}: {found.story}"})
