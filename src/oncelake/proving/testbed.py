"""Where cases are tried: the sandbox, the warm subject, the clean run they are compared with."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncelake.errors import NothingToProve
from oncelake.model.work import ALREADY_DONE, BUSY, COMMITTED
from oncelake.proving.calls import Act, read_journal
from oncelake.proving.images import Folders, Image, Tree, check_complete, images, names, restore, scan
from oncelake.proving.verdict import Violation
from oncelake.proving.worker_handle import Setting, WorkerHandle

DONE = (COMMITTED, ALREADY_DONE)

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Span = tuple[str | None, str | None]


@dataclass(frozen=True)
class JobSpec:
    """A job as the prover knows it: its name, its works, its tables in the sandbox, and what may be asked of it.

    `restates`: it may be done again on purpose; `replaces`: which also removes what was withdrawn. `may_fail`: a run that meets another, or its remains, may fail, if it says so and the
    next one ends well. `redoes`: changed inputs alone make it run again. `threads`: it may run several
    times in one process. `early` makes a root in which part of its files has not come yet.
    """

    spec: Mapping[str, Any]
    name: str
    scope: str
    spans: tuple[Span, ...]
    tables: Mapping[str, Path]
    replaces: bool
    restates: bool
    may_fail: bool
    redoes: bool
    threads: bool
    early: Callable[[], Path | None]
    command: str
    again: str
    arguments: tuple[str, ...] = ()
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Testbed:
    """One sandbox with one warm subject, and the reference: the tables after one clean run."""

    def __init__(self, job: JobSpec, folders: Folders, main: WorkerHandle, setting: Setting) -> None:
        """Give the warm subject its job. Others, to be killed, are started with the same setting."""
        self.job, self.folders, self.setting = job, folders, setting
        self.main = main.open(job.spec, folders.known)
        self.start = scan(folders, setting.sandbox / "start")
        self.reference: dict[str, Any] = {}
        self.confirmed: list[bool] = []

    def make_reference(self) -> None:
        """The clean run that every other is compared with."""
        works = self.run()
        wrong = [work for work in works if work["outcome"] not in DONE]
        if wrong or not works:
            problem = wrong[0]["error"] if wrong else "it has no works"
            raise NothingToProve(job=self.job.name, problem=problem, next=self.job.again)
        self.reference = self.stats()
        for name, path in self.job.tables.items():
            if path.exists():
                shutil.copytree(path, self._kept(name))

    def _kept(self, name: str) -> Path:
        """Where the clean run's table is kept. A table's name may be a path, so its number is taken."""
        return self.setting.sandbox / "reference" / str(list(self.job.tables).index(name))

    def fresh(self) -> None:
        """The state before the job ever ran."""
        self.put(self.start)

    def put(self, tree: Tree) -> None:
        """Put a state in the place of whatever is there."""
        restore(tree, self.folders)

    def run(
        self, *, by: WorkerHandle | None = None, spans: Sequence[Span] | None = None, **request: Any
    ) -> list[dict[str, Any]]:
        """Run the job, all of it or some spans, in the warm subject or in another."""
        return self.asked(by or self.main, spans, **request)["works"]  # type: ignore[no-any-return]

    def rerun(self) -> list[dict[str, Any]]:
        """Run the job to its end: where it may fail, or lost to somebody who is still at it, the last of three runs counts."""
        works = self.run()
        for _ in range(2):
            unsaid = [work for work in works if work["outcome"] not in DONE]
            if unsaid and (self.job.may_fail or all(work["outcome"] == BUSY for work in unsaid)):
                works = self.run()
        return works

    def asked(self, by: WorkerHandle, spans: Sequence[Span] | None = None, **request: Any) -> dict[str, Any]:
        """Run the job and give the whole answer."""
        return by.request("run", spans=spans or self.job.spans, **request)

    def begin(self, by: WorkerHandle) -> None:
        """Let another subject run the job, and do not wait for it."""
        by.begin("run", spans=self.job.spans)

    def recorded(self, start: Tree) -> list[Image]:
        """Run the job on a state and give the state after each of its calls."""
        self.put(start)
        with self.main.watching(Act()) as journal:
            self.run()
        found = images(start, read_journal(journal), journal, self.folders)
        check_complete(found[-1].tree, self.folders)
        return found

    def stats(self) -> dict[str, Any]:
        """The fingerprints of the tables."""
        return self.main.request("look", exclude=self.job.exclude)

    def versions(self, since: Mapping[str, int]) -> dict[str, Any]:
        """The fingerprints of every version of the tables after those."""
        return self.main.request("versions", exclude=self.job.exclude, since=since)

    def other(self) -> WorkerHandle:
        """Another subject on the same sandbox, cold. Whoever asks for it closes it."""
        return WorkerHandle(self.setting).open(self.job.spec, self.folders.known)

    def judge(self, works: Sequence[Mapping[str, Any]], expected: Mapping[str, Any] | None = None) -> Violation | None:
        """What is wrong after a case, if anything is. Its words about the case are added by whoever tried it."""
        for work in works:
            if work["outcome"] not in DONE:
                return Violation("", "", f"the rerun {work['outcome']}: {work['error']}", work.get("target"))
        expected = self.reference if expected is None else expected
        for name, seen in self.stats().items():
            if not same(seen, expected[name]):
                return self._difference(name, seen, expected)
        return None

    def _difference(self, name: str, seen: Any, expected: Mapping[str, Any]) -> Violation:
        if seen is None or expected[name] is None:
            return Violation("", "", f"{name} {'is not there' if seen is None else 'is there'}", name)
        if expected is not self.reference:
            story = f"{name} changed: {seen['rows']:,} rows instead of {expected[name]['rows']:,}"
            return Violation("", "", story, name)
        reference = str(self._kept(name))
        excluded = list(self.job.exclude.get(name, ()))
        found = self.main.request("differ", table=name, reference=reference, exclude=excluded)
        return _told(name, found)

    def confirm(self, image: Image) -> None:
        """Note whether a real kill left what the image of the same call shows: the same files, random names aside."""
        self.confirmed.append(Counter(map(masked, names(self.folders))) == Counter(map(masked, image.tree)))


def masked(path: str) -> str:
    """A path without its random parts, so that it is the same in another recording."""
    return _RANDOM.sub("~", path)


def same(seen: Any, expected: Any) -> bool:
    """Whether two fingerprints, as documents, say the same; None is a table that is not there."""
    if seen is None or expected is None:
        return seen is expected
    return all(seen[key] == expected[key] for key in ("schema", "rows", "sums"))


def _told(table: str, found: Mapping[str, Any]) -> Violation:
    """The difference of two tables as a sentence."""
    if found["columns"]:
        return Violation("", "", f"{table} has other columns: {', '.join(found['columns'])}", table)
    story = f"{found['told']} in {table}, first seen {found['first']}"
    return Violation("", "", story, table, found["only_left"], found["only_right"], found["examples"])
