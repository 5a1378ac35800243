"""Failure cases: a crash after any file call, real kills, failing calls, lost replies, stalled writers that resume."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property, partial
from itertools import product
from random import Random

from oncelake.proving.calls import ERRORS, FAIL, JVM, KILL, LOSE, PYTHON, STOP, Act, Call
from oncelake.proving.cases import Case, prefix_story
from oncelake.proving.images import Folders, Image, distinct_images
from oncelake.proving.testbed import DONE, Testbed, mask_random
from oncelake.proving.verdict import Violation
from oncelake.proving.worker_handle import WorkerDied

COMMIT = re.compile(r"_delta_log/\d{20}\.json$")
# Which processes are killed, by the name used in case ids.
_KILLED = {PYTHON | JVM: "both", PYTHON: "python", JVM: "jvm"}
_NOUNS = {"create": "creation", "mkdir": "creation of the folder", "rmdir": "removal", "unlink": "removal"}


class Recording:
    """The states of a recorded run, each named by its call. The names are the same in another recording."""

    def __init__(self, images: Sequence[Image], folders: Folders) -> None:
        """Store the images. Without images there was no recording, and there are no cases."""
        self.images, self._folders = images, folders

    @property
    def calls(self) -> range:
        """Return the numbers of the calls."""
        return range(1, len(self.images))

    @cached_property
    def distinct(self) -> list[Image]:
        """Return the distinct states."""
        return distinct_images(self.images)

    @cached_property
    def names(self) -> list[str]:
        """Return the name of every state, by its number."""
        seen: Counter[str] = Counter()
        names = ["start"]
        for number in self.calls:
            call = self.call(number)
            label = f"{call.kind}:{self._display_path(call)}"
            seen[label] += 1
            names.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
        return names

    @property
    def commits(self) -> list[int]:
        """Return the numbers of the calls that commit a version of a table."""
        return [number for number in self.calls if COMMIT.search(self.call(number).to)]

    def call(self, number: int) -> Call:
        """Return the call with that number."""
        call = self.images[number].after
        assert call is not None
        return call

    def describe(self, call: Call) -> str:
        """Return a call in words: `the rename of silver/orders/_delta_log/00003.json`."""
        return f"the {_NOUNS.get(call.kind, call.kind)} of {self._display_path(call)}"

    def describe_crash(self, image: Image) -> str:
        """Return a crash in words."""
        return f"killed after {self.describe(image.after)}" if image.after else "killed before anything was written"

    def _display_path(self, call: Call) -> str:
        return mask_random(self._folders.inner(call.to or call.path).partition("/")[2]) or "."


def steps(testbed: Testbed) -> Iterator[Case]:
    """Stop at every failpoint of the commit protocol, and retry."""
    testbed.reset()
    reached: list[str] = testbed.request_run(testbed.main)["reached"]
    for number, point in enumerate(reached, 1):
        story = f"stopped at {point} ({number} of {len(reached)})"
        yield Case(f"step:{number}", "step", story, partial(_stop_at, testbed, number))


def _stop_at(testbed: Testbed, number: int) -> Violation | None:
    testbed.reset()
    testbed.run(stop_at=number)
    return testbed.judge(testbed.rerun())


def crashes(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Recover every distinct state that a kill after some call would leave."""
    for image in recording.distinct:
        name = f"crash:{recording.names[image.number]}"
        yield Case(name, "crash", recording.describe_crash(image), partial(recover, testbed, image))


def recover(testbed: Testbed, image: Image) -> Violation | None:
    """Put the state of an image on disk, run the job, and judge the tables."""
    testbed.restore(image.tree)
    return testbed.judge(testbed.rerun())


def crashes_in_recovery(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Crash, crash again during the recovery, and recover from that."""
    for image in recording.distinct:
        name = recording.names[image.number]
        execute = partial(_crash_in_recovery, testbed, image, name)
        yield Case(f"recovery:{name}", "recovery", recording.describe_crash(image), execute)


def _crash_in_recovery(testbed: Testbed, image: Image, name: str) -> Violation | None:
    second = Recording(testbed.record(image.tree), testbed.folders)
    chosen = Random(name).choice(second.distinct)  # noqa: S311  the same case must be the same crash
    found = recover(testbed, chosen)
    return found and prefix_story(found, f"and again during recovery, {second.describe_crash(chosen)}")


def kills(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Kill real processes at a call, and retry immediately, while a JVM may still be exiting."""
    for (who, name), number in product(_KILLED.items(), recording.calls):
        story = f"{name} killed (SIGKILL) before {recording.describe(recording.call(number))}"
        execute = partial(_kill, testbed, recording.images[number - 1], Act(number, KILL, who))
        yield Case(f"kill:{name}:{recording.names[number]}", "kill", story, execute)


def _kill(testbed: Testbed, image: Image, act: Act) -> Violation | None:
    testbed.reset()
    with closing(testbed.start_worker()) as other:
        other.request("warm")
        with other.watching(act):
            testbed.begin(other)
            with suppress(WorkerDied):
                other.answer()
        if act.who == PYTHON | JVM:
            testbed.confirm(image)
        return testbed.judge(testbed.rerun())


def faults(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Let a file call fail as on a full or broken disk."""
    for error, number in product(ERRORS, recording.calls):
        story = f"{error} at {recording.describe(recording.call(number))}"
        act = Act(number, FAIL, error=ERRORS[error], onwards=error == "ENOSPC")
        yield Case(f"fault:{error}:{recording.names[number]}", "fault", story, partial(_run_with_fault, testbed, act))


def lost_replies(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Let a commit succeed and report an error instead of success."""
    for number in recording.commits:
        story = f"the reply lost after {recording.describe(recording.call(number))}"
        act = Act(number, LOSE, error=ERRORS["EIO"])
        yield Case(f"lost:{recording.names[number]}", "lost", story, partial(_run_with_fault, testbed, act))


def _run_with_fault(testbed: Testbed, act: Act) -> Violation | None:
    """Run with a fault, which may fail the run. Reported success must be true, and the retry must succeed."""
    testbed.reset()
    with testbed.main.watching(act):
        works = testbed.run()
    if works and all(work["outcome"] in DONE for work in works):
        problem = testbed.judge(works)
        if problem:
            return prefix_story(problem, "and the run reported success")
    return testbed.judge(testbed.rerun())


def zombies(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Stall a writer in the middle of its commit, run another one in its place, then resume the first."""
    for number in recording.commits:
        call = recording.call(number)
        if call.jvm:
            story = f"stopped before {recording.describe(call)}, resumed after another run"
            yield Case(f"zombie:{recording.names[number]}", "zombie", story, partial(_resume_late, testbed, number))


def _resume_late(testbed: Testbed, number: int) -> Violation | None:
    testbed.reset()
    with closing(testbed.start_worker()) as other:
        other.request("warm")
        with other.watching(Act(number, STOP)):
            testbed.begin(other)
            if other.wait_until_acted(120):
                other.kill()
                testbed.run(lock_timeout=0.5)
            other.resume()
            other.wait_until_gone(60)
        return testbed.judge(testbed.rerun())
