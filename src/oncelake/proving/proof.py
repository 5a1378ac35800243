"""A proof from beginning to end: create the sandbox, make a clean run, try every case, return the verdict."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

import oncelake as once
from oncelake.errors import UsageError
from oncelake.planning.plan import select_pipelines
from oncelake.proving import changed_world, checkpoints, crashes, scenarios, surroundings
from oncelake.proving.calls import compiler, library
from oncelake.proving.cases import Case, sample_evenly
from oncelake.proving.crashes import Recording
from oncelake.proving.preparing import prepare_pipeline, prepare_script, spark_environment
from oncelake.proving.testbed import JobSpec, Testbed
from oncelake.proving.verdict import Count, Verdict, Violation
from oncelake.proving.worker_handle import WorkerHandle, WorkerSetting

if TYPE_CHECKING:
    from oncelake.api import Project

LEVELS = ("calls", "steps")
SPAN = ("date", "start", "end", "now")
RECORDED = ("crash", "recovery", "lost", "fault", "zombie", "kill", "lost_jvm")
CHANGED_WORLD = ("corrected", "restored", "second_target", "renamed", "other_time", "grid_changed", "no_lock")
SCENARIOS = (
    "clean",
    "twice",
    "checkpoint",
    "order",
    "combine_intervals",
    "restate",
    "late",
    "layout",
    "reader",
    "step",
    "race",
    *CHANGED_WORLD,
    *RECORDED,
)
_PREFIX = "oncelake-proof-"


@dataclass(frozen=True)
class Effort:
    """How much to try. `points`, `changes` and `minutes` limit it; the seed chooses the sample, and the verdict reports it.

    `changes` limits the cases of each scenario in which the world changes between two runs.
    """

    seed: int = 0
    level: str | None = None
    points: int | None = None
    minutes: float | None = None
    case: str | None = None
    scenarios: tuple[str, ...] = ()
    kills: int = 3
    faults: int = 12
    recoveries: int = 4
    zombies: int = 1
    lost_jvms: int = 2
    changes: int | None = None
    threads: tuple[int, ...] = (2, 4)
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)


# Called before each case with its index and the number of cases.
OnCase = Callable[[Case, int, int], None]


def prove(project: Project | str | Path, name: str, *, on_case: OnCase | None = None, **options: Any) -> Verdict:
    """Prove a pipeline over `date`, or `start` and `end`, or by default the newest finished works.

    The pipeline runs in a sandbox; real tables are only read. The other options are those of `Effort`: `seed`, `level`,
    `points`, `minutes`, `case`, `scenarios`, `kills`, `faults`, `recoveries`, `zombies`, `lost_jvms`, `changes`,
    `threads`, and `exclude`: the columns to exclude from the comparison, by table. `on_case` is called before each case.
    """
    with Prover(options.get("level")) as prover:
        return prover.prove(project, name, on_case=on_case, **options)


class Prover:
    """A warm worker that proves one pipeline after another; starting it takes longer than a small proof."""

    def __init__(self, level: str | None = None) -> None:
        """Choose the level; nothing is started before the first proof."""
        self.level = choose_level(level)
        self._open = ExitStack()
        self._proofs = 0
        self._workers: dict[str, WorkerHandle] = {}

    def __enter__(self) -> Self:
        self.sandbox = self._open.enter_context(sandbox())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prove(
        self, project: Project | str | Path, name: str, *, on_case: OnCase | None = None, **options: Any
    ) -> Verdict:
        """Prove a pipeline, as `once.prove` does."""
        started = time.monotonic()
        span = {key: options.pop(key) for key in SPAN if key in options}
        effort = Effort(**options)
        opened = once.open(project) if isinstance(project, str | Path) else project
        select_pipelines(opened.pipelines, [name])
        self._proofs += 1
        folder = self.sandbox / str(self._proofs)
        with ExitStack() as lasting:
            job, folders = prepare_pipeline(opened, name, span, effort.exclude, folder, lasting)
            setting = WorkerSetting(folder, self.level)
            return _prove(Testbed(job, folders, self._worker(job, setting), setting), effort, started, on_case)

    def _worker(self, job: JobSpec, setting: WorkerSetting) -> WorkerHandle:
        """Return the warm worker. The JVM of one that has proven other pipelines lacks the jars that read Kafka."""
        kind = "kafka" if "servers" in job.spec.get("stream", {}) else "plain"
        if kind not in self._workers:
            self._workers[kind] = self._open.enter_context(closing(WorkerHandle(setting)))
        return self._workers[kind]


def prove_script(
    script: str | Path,
    tables: Sequence[str],
    arguments: Sequence[str] = (),
    *,
    on_case: OnCase | None = None,
    **options: Any,
) -> Verdict:
    """Prove or refute a PySpark script that writes the given tables. It works on copies of them in a sandbox."""
    effort, started = Effort(**options), time.monotonic()
    if not Path(script).is_file():
        raise UsageError(message=f"there is no script {script}")
    if not tables:
        raise UsageError(message="name the tables that the script writes with --table")
    with sandbox() as folder:
        job, folders, views = prepare_script(Path(script), tables, arguments, effort.exclude, folder)
        setting = WorkerSetting(folder, choose_level(effort.level), views, spark_environment(folder))
        with closing(WorkerHandle(setting)) as main:
            return _prove(Testbed(job, folders, main, setting), effort, started, on_case)


def _prove(testbed: Testbed, effort: Effort, started: float, on_case: OnCase | None) -> Verdict:
    testbed.make_reference()
    return _try_all(testbed, effort, started, on_case or (lambda *_: None))


def _try_all(testbed: Testbed, effort: Effort, started: float, on_case: OnCase) -> Verdict:
    level, selected = testbed.setting.level, set(effort.scenarios or SCENARIOS)
    if unknown := selected - set(SCENARIOS):
        raise UsageError(message=f"there is no scenario {min(unknown)!r}; the scenarios are {', '.join(SCENARIOS)}")
    offered = selected - set(testbed.job.not_tried)
    images = testbed.record(testbed.start) if level == "calls" and offered & {*RECORDED, "checkpoint"} else []
    recording = Recording(images, testbed.folders)
    random = Random(effort.seed)  # noqa: S311  a proof must be repeatable
    cases = {n: list(found) for n, found in _cases(testbed, recording, effort, random).items() if n in offered}
    tried, violation = _try(_select_cases(cases, effort, random), effort, started, on_case)
    return Verdict(
        job=testbed.job.name,
        scope=testbed.job.scope,
        level=level,
        seed=effort.seed,
        points=len(recording.calls) or len(cases.get("step", ())),
        states=tried["crash"] + tried["step"],
        confirmed=f"{sum(testbed.confirmed)} of {len(testbed.confirmed)}",
        counts={name: Count(tried[name], len(found)) for name, found in cases.items() if found},
        fingerprints=testbed.reference,
        seconds=time.monotonic() - started,
        reproduce=_command(testbed, effort, violation),
        violation=violation,
        excluded=testbed.job.exclude,
        not_tried={name: why for name, why in testbed.job.not_tried.items() if name in selected},
    )


def _cases(testbed: Testbed, recording: Recording, effort: Effort, random: Random) -> dict[str, Iterable[Case]]:
    """Return the cases by scenario, those that find violations fastest first. Iterators are lazy."""
    return {
        "clean": scenarios.clean_runs(testbed),
        "twice": scenarios.twice(testbed),
        "checkpoint": checkpoints.checkpoints(testbed, recording),
        "order": scenarios.orders(testbed, random),
        "combine_intervals": scenarios.combine_intervals(testbed),
        "restate": scenarios.restatements(testbed),
        "late": scenarios.late(testbed),
        "layout": scenarios.layouts(testbed),
        "reader": scenarios.readers(testbed),
        "corrected": changed_world.corrected(testbed),
        "restored": changed_world.restored(testbed),
        "second_target": changed_world.second_target(testbed),
        "renamed": changed_world.renamed(testbed),
        "other_time": surroundings.other_time(testbed),
        "grid_changed": surroundings.grid_changed(testbed),
        "no_lock": surroundings.no_lock(testbed, effort.threads),
        "step": crashes.steps(testbed) if testbed.setting.level == "steps" else (),
        "crash": crashes.crashes(testbed, recording),
        "recovery": crashes.crashes_in_recovery(testbed, recording),
        "lost": crashes.lost_replies(testbed, recording),
        "fault": crashes.faults(testbed, recording),
        "race": scenarios.races(testbed, effort.threads),
        "zombie": crashes.zombies(testbed, recording),
        "kill": crashes.kills(testbed, recording),
        "lost_jvm": surroundings.lost_jvms(testbed, recording),
    }


def _select_cases(cases: Mapping[str, list[Case]], effort: Effort, random: Random) -> list[Case]:
    """Return the cases to try: all of them, or a fair sample."""
    if effort.case is not None:
        named = [case for group in cases.values() for case in group if case.id == effort.case]
        if not named:
            raise UsageError(message=f"there is no case {effort.case!r} of this job; its calls may have changed")
        return named
    limits = {"step": effort.points, "crash": effort.points, "recovery": effort.recoveries, "fault": effort.faults}
    limits |= {"zombie": effort.zombies, "kill": effort.kills, "lost_jvm": effort.lost_jvms}
    limits |= dict.fromkeys(CHANGED_WORLD, effort.changes)
    groups = [sample_evenly(group, limits.get(name), random) for name, group in cases.items()]
    if effort.minutes is None:
        # Most violations are around a commit, so these cases come first.
        return [case for group in groups for case in sorted(group, key=lambda case: not crashes.COMMIT.search(case.id))]
    # Every scenario gets its share of the time: one case of each in turn, in random order.
    mixed = zip_longest(*(random.sample(group, len(group)) for group in groups))
    return [case for turn in mixed for case in turn if case is not None]


def _try(cases: list[Case], effort: Effort, started: float, on_case: OnCase) -> tuple[Counter[str], Violation | None]:
    tried: Counter[str] = Counter()
    for index, case in enumerate(cases):
        if effort.minutes is not None and time.monotonic() - started > effort.minutes * 60:
            break
        on_case(case, index, len(cases))
        tried[case.scenario] += 1
        found = case.execute()
        if found is not None:
            story = f"{case.story}: {found.story}"
            return tried, replace(found, case=case.id, scenario=case.scenario, story=story)
    return tried, None


def _command(testbed: Testbed, effort: Effort, violation: Violation | None) -> str:
    """Return the command that repeats the proof, or only the case that failed."""
    options = [f"--seed {effort.seed}"]
    options += [f"--level {effort.level}"] if effort.level else []
    options += [f"--case {shlex.quote(violation.case)}"] if violation else []
    arguments = f" -- {shlex.join(testbed.job.arguments)}" if testbed.job.arguments else ""
    return f"{testbed.job.command} {' '.join(options)}{arguments}"


def choose_level(requested: str | None) -> str:
    """Return the requested level, or the best that this machine supports."""
    if requested not in (None, *LEVELS):
        raise UsageError(message=f"there is no level {requested!r}; the levels are {', '.join(LEVELS)}")
    if requested == "calls":
        library()  # raises if something is missing
    return requested or ("calls" if compiler() else "steps")


@contextmanager
def sandbox() -> Iterator[Path]:
    """Create a folder and remove it afterwards, however the proof ends; also remove those of killed proofs."""
    base = Path(tempfile.gettempdir()).resolve()
    for left in base.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and _has_ended(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
    try:
        with _interrupt_on_sigterm():
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that no worker and no folder is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
