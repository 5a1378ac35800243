"""Cases in which something breaks: a crash after any call, real kills, failing calls, lost answers, writers that wake."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from random import Random

from oncelake.proving.calls import ERRORS, FAIL, JVM, KILL, LOSE, PYTHON, STOP, Act, Call
from oncelake.proving.cases import Case, after
from oncelake.proving.images import Image, distinct
from oncelake.proving.laboratory import DONE, Laboratory, masked
from oncelake.proving.trial import Died, Trial
from oncelake.proving.verdict import Violation, told

COMMIT = re.compile(r"_delta_log/\d{20}\.json$")
_KILLED = {PYTHON | JVM: "both", PYTHON: "python", JVM: "jvm"}


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
            return found and after(found, f"and again while recovering, {_killed(lab, again)}")

        return happen

    names = labels(lab, recorded)
    for image in distinct(recorded):
        name = names[image.number]
        yield Case(f"recovery:{name}", "recovery", _killed(lab, image), recovered(image, name))


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
            return after(problem, "and it said all was done")
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
    return [image.number for image in recorded if image.after and COMMIT.search(image.after.to)]


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
