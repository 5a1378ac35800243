"""Cases in which something breaks: a crash after any call, real kills, failing calls, lost answers, writers that wake."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property, partial
from itertools import product
from random import Random

from oncelake.proving.calls import ERRORS, FAIL, JVM, KILL, LOSE, PYTHON, STOP, Act, Call
from oncelake.proving.cases import Case, after
from oncelake.proving.images import Folders, Image, distinct
from oncelake.proving.testbed import DONE, Testbed, masked
from oncelake.proving.verdict import Violation
from oncelake.proving.worker_handle import Died

COMMIT = re.compile(r"_delta_log/\d{20}\.json$")
_KILLED = {PYTHON | JVM: "both", PYTHON: "python", JVM: "jvm"}
_WORDS = {"create": "creation", "mkdir": "creation of the folder", "rmdir": "removal", "unlink": "removal"}


class Recording:
    """The states of a recorded run, each named by its call: names that are the same in another recording."""

    def __init__(self, images: Sequence[Image], folders: Folders) -> None:
        """Without images there was no recording, and there are no cases."""
        self.images, self._folders = images, folders

    @property
    def calls(self) -> range:
        """The numbers of the calls."""
        return range(1, len(self.images))

    @cached_property
    def distinct(self) -> list[Image]:
        """The states that differ."""
        return distinct(self.images)

    @cached_property
    def names(self) -> list[str]:
        """A name for every state, by its number."""
        seen: Counter[str] = Counter()
        names = ["start"]
        for number in self.calls:
            call = self.call(number)
            label = f"{call.kind}:{self._place(call)}"
            seen[label] += 1
            names.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
        return names

    @property
    def commits(self) -> list[int]:
        """The numbers of the calls that publish a version of a table."""
        return [number for number in self.calls if COMMIT.search(self.call(number).to)]

    def call(self, number: int) -> Call:
        """The call of that number."""
        call = self.images[number].after
        assert call is not None
        return call

    def told(self, call: Call) -> str:
        """A call in words: `the rename of silver/orders/_delta_log/00003.json`."""
        return f"the {_WORDS.get(call.kind, call.kind)} of {self._place(call)}"

    def killed(self, image: Image) -> str:
        """A crash in words."""
        return "killed before anything was written" if image.after is None else f"killed after {self.told(image.after)}"

    def _place(self, call: Call) -> str:
        return masked(self._folders.inner(call.to or call.path).partition("/")[2]) or "."


def steps(lab: Testbed) -> Iterator[Case]:
    """Stop at every named point of the ring, and run again."""
    lab.fresh()
    reached: list[str] = lab.asked(lab.main)["reached"]
    for number, point in enumerate(reached, 1):
        story = f"stopped at {point} ({number} of {len(reached)})"
        yield Case(f"step:{number}", "step", story, partial(_stopped, lab, number))


def _stopped(lab: Testbed, number: int) -> Violation | None:
    lab.fresh()
    lab.run(stop_at=number)
    return lab.judge(lab.rerun())


def crashes(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """Recover every distinct state that a kill after some call would leave."""
    for image in recording.distinct:
        name = f"crash:{recording.names[image.number]}"
        yield Case(name, "crash", recording.killed(image), partial(_crashed, lab, image))


def _crashed(lab: Testbed, image: Image) -> Violation | None:
    lab.put(image.tree)
    return lab.judge(lab.rerun())


def crashes_in_recovery(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """Crash, crash again while recovering, and recover from that."""
    for image in recording.distinct:
        name = recording.names[image.number]
        happen = partial(_crashed_again, lab, image, name)
        yield Case(f"recovery:{name}", "recovery", recording.killed(image), happen)


def _crashed_again(lab: Testbed, image: Image, name: str) -> Violation | None:
    second = Recording(lab.recorded(image.tree), lab.folders)
    again = Random(name).choice(second.distinct)  # noqa: S311  the same case is the same crash
    found = _crashed(lab, again)
    return found and after(found, f"and again while recovering, {second.killed(again)}")


def kills(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """Kill real processes at a call, and run again at once, while a JVM may still be dying."""
    for (who, shown), number in product(_KILLED.items(), recording.calls):
        story = f"{shown} really killed before {recording.told(recording.call(number))}"
        happen = partial(_really_killed, lab, recording.images[number - 1], Act(number, KILL, who))
        yield Case(f"kill:{shown}:{recording.names[number]}", "kill", story, happen)


def _really_killed(lab: Testbed, image: Image, act: Act) -> Violation | None:
    lab.fresh()
    with closing(lab.other()) as other:
        other.request("warm")
        with other.watching(act):
            lab.begin(other)
            with suppress(Died):
                other.answer()
        if act.who == PYTHON | JVM:
            lab.confirm(image)
        return lab.judge(lab.rerun())


def faults(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """Let a call fail as a full or broken disk makes it fail."""
    for error, number in product(ERRORS, recording.calls):
        story = f"{error} at {recording.told(recording.call(number))}"
        act = Act(number, FAIL, error=ERRORS[error], onwards=error == "ENOSPC")
        yield Case(f"fault:{error}:{recording.names[number]}", "fault", story, partial(_settled, lab, act))


def lost_answers(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """Let a commit land and its answer be an error."""
    for number in recording.commits:
        story = f"the answer lost after {recording.told(recording.call(number))}"
        act = Act(number, LOSE, error=ERRORS["EIO"])
        yield Case(f"lost:{recording.names[number]}", "lost", story, partial(_settled, lab, act))


def _settled(lab: Testbed, act: Act) -> Violation | None:
    """A run that met a fault may fail; what it calls done must be done, and the next run must end well."""
    lab.fresh()
    with lab.main.watching(act):
        works = lab.run()
    if works and all(work["outcome"] in DONE for work in works):
        problem = lab.judge(works)
        if problem:
            return after(problem, "and it said all was done")
    return lab.judge(lab.rerun())


def zombies(lab: Testbed, recording: Recording) -> Iterator[Case]:
    """A writer stops in the middle of its commit, is taken for dead, and wakes after its successor has run."""
    for number in recording.commits:
        call = recording.call(number)
        if call.jvm:
            story = f"stopped before {recording.told(call)}, woken after its successor"
            yield Case(f"zombie:{recording.names[number]}", "zombie", story, partial(_woken, lab, number))


def _woken(lab: Testbed, number: int) -> Violation | None:
    lab.fresh()
    with closing(lab.other()) as other:
        other.request("warm")
        with other.watching(Act(number, STOP)):
            lab.begin(other)
            if other.wait_until_acted(120):
                other.kill()
                lab.run(lock_timeout=0.5)
            other.wake()
            other.wait_until_gone(60)
        return lab.judge(lab.rerun())
