"""The testbed in which cases run: the sandbox, a warm worker, and the clean run as reference."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from oncelake.errors import NothingToProve
from oncelake.model.work import ALREADY_DONE, BUSY, COMMITTED
from oncelake.proving.calls import Act, read_journal
from oncelake.proving.images import (
    Folders,
    Image,
    Tree,
    build_images,
    check_complete,
    list_paths,
    restore_tree,
    scan_tree,
)
from oncelake.proving.input_copies import InputCopies
from oncelake.proving.verdict import Violation
from oncelake.proving.worker_handle import WorkerHandle, WorkerSetting

DONE = (COMMITTED, ALREADY_DONE)

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Span = tuple[str | None, str | None]
# The end of the names of targets that a pipeline gets later.
SECOND = "_second"


@dataclass(frozen=True)
class JobSpec:
    """A job as the prover knows it: its name, its works, its tables in the sandbox, and its properties.

    `restates`: it can be restated. `replaces`: a restatement also removes rows of withdrawn input. `may_fail`: a run that
    meets another run, or what that left behind, may fail if it reports so and the next run succeeds. `redoes`: changed
    inputs alone make it run again. `ordered`: its works must run in their order. `threads`: it may run concurrently in one
    process. `early` creates a project root that lacks part of its files, `altered` roots with other input. `second`: the
    paths of the tables that it would write as second targets. `by_batch`: it is driven by arrivals or by a stream.
    `not_tried`: scenarios that say nothing of it, and why.
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
    ordered: bool = False
    altered: Callable[[], Iterable[Path]] = tuple
    by_batch: bool = False
    is_stream: bool = False
    not_tried: Mapping[str, str] = field(default_factory=dict)
    second: Mapping[str, Path] = field(default_factory=dict)

    @property
    def is_pipeline(self) -> bool:
        """Whether it is a pipeline, which can be restored, rebuilt and declared otherwise; else a script."""
        return bool(self.spec["kind"] == "pipeline")


@dataclass(frozen=True)
class AlteredInput:
    """A project root with other input, and the fingerprints of the tables after one clean run on it."""

    root: str
    reference: Mapping[str, Any]


class Testbed:
    """One sandbox with one warm worker, and the reference: the tables after one clean run."""

    def __init__(self, job: JobSpec, folders: Folders, main: WorkerHandle, setting: WorkerSetting) -> None:
        """Open the job in the warm worker. Workers to be killed are started with the same setting."""
        self.job, self.folders, self.setting = job, folders, setting
        self.main = main.open(job.spec, folders.known)
        self.start = scan_tree(folders, setting.sandbox / "start")
        self.reference: dict[str, Any] = {}
        self.confirmed: list[bool] = []

    def make_reference(self) -> None:
        """Make the clean run with which all others are compared."""
        works = self.run()
        wrong = [work for work in works if work["outcome"] not in DONE]
        if wrong or not works:
            problem = wrong[0]["error"] if wrong else "it has no works"
            raise NothingToProve(job=self.job.name, problem=problem, next=self.job.again)
        self.reference = self.fingerprints()
        for name, path in self.job.tables.items():
            if path.exists():
                shutil.copytree(path, self._reference_path(name))

    def _reference_path(self, name: str) -> Path:
        """Return the path of the clean run's table, by number, because a table's name may be a path."""
        return self.setting.sandbox / "reference" / str(list(self.job.tables).index(name))

    def reset(self) -> None:
        """Restore the state before the first run."""
        self.restore(self.start)

    def restore(self, tree: Tree) -> None:
        """Replace the content of the sandbox with a state."""
        restore_tree(tree, self.folders)

    def run(
        self, *, by: WorkerHandle | None = None, spans: Sequence[Span] | None = None, **request: Any
    ) -> list[dict[str, Any]]:
        """Run the job, all of it or some spans, in the warm worker or in another."""
        return self.request_run(by or self.main, spans, **request)["works"]  # type: ignore[no-any-return]

    def rerun(self, **request: Any) -> list[dict[str, Any]]:
        """Run the job until it succeeds, at most three times if it may fail or another runner still has the table."""
        works = self.run(**request)
        for _ in range(2):
            undone = [work for work in works if work["outcome"] not in DONE]
            if undone and (self.job.may_fail or all(work["outcome"] == BUSY for work in undone)):
                works = self.run(**request)
        return works

    def request_run(self, by: WorkerHandle, spans: Sequence[Span] | None = None, **request: Any) -> dict[str, Any]:
        """Run the job and return the whole answer."""
        return by.request("run", spans=spans or self.job.spans, **request)

    def begin(self, by: WorkerHandle, spans: Sequence[Span] | None = None, **request: Any) -> None:
        """Start the job in another worker without waiting for it."""
        by.begin("run", spans=spans or self.job.spans, **request)

    def plan(self, **request: Any) -> list[dict[str, Any]]:
        """Return what the job would do."""
        return self.main.request("plan", spans=self.job.spans, **request)["works"]  # type: ignore[no-any-return]

    @cached_property
    def input_copies(self) -> InputCopies | None:
        """Copies of the tables that the job reads by interval, of which a part can arrive late; None if there are none."""
        folder = str(self.setting.sandbox / "inputs")
        found = self.main.request("copy_inputs", spans=self.job.spans, folder=folder)
        return InputCopies.parse(found) if found else None

    def record(self, start: Tree) -> list[Image]:
        """Run the job on a state and return the state after each of its calls."""
        self.restore(start)
        with self.main.watching(Act()) as journal:
            self.run()
        found = build_images(start, read_journal(journal), journal, self.folders)
        check_complete(found[-1].tree, self.folders)
        return found

    def fingerprints(self, *, second: bool = False) -> dict[str, Any]:
        """Return the fingerprints of the tables, or of those that are second targets."""
        if not second:
            return self.main.request("fingerprints", exclude=self.job.exclude)
        tables = {name: str(path) for name, path in self.job.second.items()}
        exclude = {f"{name}{SECOND}": columns for name, columns in self.job.exclude.items()}
        return self.main.request("fingerprints", exclude=exclude, tables=tables)

    def versions(self, since: Mapping[str, int]) -> dict[str, Any]:
        """Return the fingerprints of every later version of the tables."""
        return self.main.request("versions", exclude=self.job.exclude, since=since)

    @cached_property
    def altered(self) -> AlteredInput | None:
        """Other input on which a clean run succeeds and leaves other tables; None if there is none."""
        for root in self.job.altered():
            self.reset()
            works, reference = self.run(root=str(root)), self.fingerprints()
            succeeded = works and all(work["outcome"] in DONE for work in works)
            if succeeded and not all(same_content(reference[name], self.reference[name]) for name in reference):
                return AlteredInput(str(root), reference)
        return None

    def start_worker(self) -> WorkerHandle:
        """Start another, cold worker on the same sandbox. The caller closes it."""
        return WorkerHandle(self.setting).open(self.job.spec, self.folders.known)

    def judge(
        self,
        works: Sequence[Mapping[str, Any]],
        expected: Mapping[str, Any] | None = None,
        who: str = "the rerun",
    ) -> Violation | None:
        """Return the violation after a case, if there is one. The caller adds the case to it."""
        for work in works:
            if work["outcome"] not in DONE:
                return Violation("", "", f"{who} {work['outcome']}: {work['error']}", work.get("target"))
        expected = self.reference if expected is None else expected
        for name, seen in self.fingerprints().items():
            if not same_content(seen, expected[name]):
                return self._difference(name, seen, expected)
        return None

    def _difference(self, name: str, seen: Any, expected: Mapping[str, Any]) -> Violation:
        if seen is None or expected[name] is None:
            return Violation("", "", f"{name} {'does not exist' if seen is None else 'exists'}", name)
        if expected is not self.reference:
            story = f"{name} changed: {seen['rows']:,} rows instead of {expected[name]['rows']:,}"
            return Violation("", "", story, name)
        reference = str(self._reference_path(name))
        excluded = list(self.job.exclude.get(name, ()))
        found = self.main.request("differences", table=name, reference=reference, exclude=excluded)
        return _violation(name, found)

    def confirm(self, image: Image) -> None:
        """Record whether a real kill left the files of the image of the same call, ignoring random names."""
        paths = Counter(map(mask_random, list_paths(self.folders)))
        self.confirmed.append(paths == Counter(map(mask_random, image.tree)))


def mask_random(path: str) -> str:
    """Return a path without its random parts, so that it is the same in another recording."""
    return _RANDOM.sub("~", path)


def same_content(seen: Any, expected: Any) -> bool:
    """Return whether two fingerprint documents are equal; None is a table that does not exist."""
    if seen is None or expected is None:
        return seen is expected
    return all(seen[key] == expected[key] for key in ("schema", "rows", "sums"))


def _violation(table: str, found: Mapping[str, Any]) -> Violation:
    """Return the difference of two tables as a violation."""
    if found["columns"]:
        return Violation("", "", f"{table} has other columns: {', '.join(found['columns'])}", table)
    story = f"{found['summary']} in {table}, first seen {found['first']}"
    return Violation("", "", story, table, found["only_left"], found["only_right"], found["examples"])
