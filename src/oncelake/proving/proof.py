"""A proof from beginning to end: make the sandbox, run cleanly, try every case, say what came of it."""

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
from oncelake.proving import crashes, scenarios
from oncelake.proving.calls import compiler, library
from oncelake.proving.cases import Case, spread
from oncelake.proving.crashes import Recording
from oncelake.proving.preparing import prepare_pipeline, prepare_script, spark_environment
from oncelake.proving.testbed import Testbed
from oncelake.proving.verdict import Count, Verdict, Violation
from oncelake.proving.worker_handle import Setting, WorkerHandle

if TYPE_CHECKING:
    from oncelake.api import Project

LEVELS = ("calls", "steps")
SPAN = ("date", "start", "end", "now")
RECORDED = ("crash", "recovery", "lost", "fault", "zombie", "kill")
SCENARIOS = (
    "clean",
    "twice",
    "order",
    "combine_intervals",
    "restate",
    "late",
    "layout",
    "reader",
    "step",
    "race",
    *RECORDED,
)
_PREFIX = "oncelake-proof-"


@dataclass(frozen=True)
class Effort:
    """How much is tried. `points` and `minutes` bound it; what they leave out is chosen by the seed, and said."""

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
    threads: tuple[int, ...] = (2, 4)
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)


Told = Callable[[Case, int, int], None]


def prove(project: Project | str | Path, name: str, *, told: Told | None = None, **options: Any) -> Verdict:
    """Prove a pipeline: over `date`, or `start` and `end`, or else the newest works that are done.

    The pipeline runs in a sandbox; real tables are only read. The other options are those of `Effort`: `seed`, `level`,
    `points`, `minutes`, `case`, `scenarios`, `kills`, `faults`, `recoveries`, `zombies`, `threads`, and `exclude`: the columns left
    out of the comparison, by table.
    """
    with Prover(options.get("level")) as prover:
        return prover.prove(project, name, told=told, **options)


class Prover:
    """A warm subject that tries one pipeline after another; starting it takes longer than a small proof."""

    def __init__(self, level: str | None = None) -> None:
        """Nothing is started before the first proof."""
        self.level = chosen_level(level)
        self._open = ExitStack()
        self._proofs = 0
        self._main: WorkerHandle | None = None

    def __enter__(self) -> Self:
        self.sandbox = self._open.enter_context(sandbox())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prove(self, project: Project | str | Path, name: str, *, told: Told | None = None, **options: Any) -> Verdict:
        """Prove a pipeline, as `once.prove` does."""
        begun = time.monotonic()
        span = {key: options.pop(key) for key in SPAN if key in options}
        effort = Effort(**options)
        opened = once.open(project) if isinstance(project, str | Path) else project
        select_pipelines(opened.pipelines, [name])
        self._proofs += 1
        folder = self.sandbox / str(self._proofs)
        job, folders = prepare_pipeline(opened, name, span, effort.exclude, folder)
        setting = Setting(folder, self.level)
        self._main = self._main or self._open.enter_context(closing(WorkerHandle(setting)))
        return _prove(Testbed(job, folders, self._main, setting), effort, begun, told)


def prove_script(
    script: str | Path,
    tables: Sequence[str],
    arguments: Sequence[str] = (),
    *,
    told: Told | None = None,
    **options: Any,
) -> Verdict:
    """Prove or refute a PySpark script that writes the given tables. It works on copies of them, in a sandbox."""
    effort, begun = Effort(**options), time.monotonic()
    if not Path(script).is_file():
        raise UsageError(message=f"there is no script {script}")
    if not tables:
        raise UsageError(message="name the tables that the script writes, with --table")
    with sandbox() as folder:
        job, folders, views = prepare_script(Path(script), tables, arguments, effort.exclude, folder)
        setting = Setting(folder, chosen_level(effort.level), views, spark_environment(folder))
        with closing(WorkerHandle(setting)) as main:
            return _prove(Testbed(job, folders, main, setting), effort, begun, told)


def _prove(lab: Testbed, effort: Effort, begun: float, told: Told | None) -> Verdict:
    lab.make_reference()
    return _tried(lab, effort, begun, told or (lambda *_: None))


def _tried(lab: Testbed, effort: Effort, begun: float, told: Told) -> Verdict:
    level, wanted = lab.setting.level, set(effort.scenarios or SCENARIOS)
    if unknown := wanted - set(SCENARIOS):
        raise UsageError(message=f"there is no scenario {min(unknown)!r}; there are {', '.join(SCENARIOS)}")
    images = lab.recorded(lab.start) if level == "calls" and wanted & set(RECORDED) else []
    recording = Recording(images, lab.folders)
    random = Random(effort.seed)  # noqa: S311  a proof must be repeatable
    cases = {n: list(found) for n, found in _cases(lab, recording, effort, random).items() if n in wanted}
    tried, violation = _try(_chosen(cases, effort, random), effort, begun, told)
    return Verdict(
        job=lab.job.name,
        scope=lab.job.scope,
        level=level,
        seed=effort.seed,
        points=len(recording.calls) or len(cases.get("step", ())),
        states=tried["crash"] + tried["step"],
        confirmed=f"{sum(lab.confirmed)} of {len(lab.confirmed)}",
        counts={name: Count(tried[name], len(found)) for name, found in cases.items() if found},
        fingerprints=lab.reference,
        seconds=time.monotonic() - begun,
        reproduce=_command(lab, effort, violation),
        violation=violation,
        excluded=lab.job.exclude,
    )


def _cases(lab: Testbed, recorded: Recording, effort: Effort, random: Random) -> dict[str, Iterable[Case]]:
    """Every case there is, by scenario, the quickest to find fault first; each is looked for when it is wanted."""
    return {
        "clean": scenarios.cleanly(lab),
        "twice": scenarios.twice(lab),
        "order": scenarios.orders(lab, random),
        "combine_intervals": scenarios.combine_intervals(lab),
        "restate": scenarios.restatements(lab),
        "late": scenarios.late(lab),
        "layout": scenarios.layouts(lab),
        "reader": scenarios.readers(lab),
        "step": crashes.steps(lab) if lab.setting.level == "steps" else (),
        "crash": crashes.crashes(lab, recorded),
        "recovery": crashes.crashes_in_recovery(lab, recorded),
        "lost": crashes.lost_answers(lab, recorded),
        "fault": crashes.faults(lab, recorded),
        "race": scenarios.races(lab, effort.threads),
        "zombie": crashes.zombies(lab, recorded),
        "kill": crashes.kills(lab, recorded),
    }


def _chosen(cases: Mapping[str, list[Case]], effort: Effort, random: Random) -> list[Case]:
    """What is tried of it: all, or a fair sample."""
    if effort.case is not None:
        named = [case for group in cases.values() for case in group if case.id == effort.case]
        if not named:
            raise UsageError(message=f"there is no case {effort.case!r} of this job; its calls may have changed")
        return named
    limits = {"step": effort.points, "crash": effort.points, "recovery": effort.recoveries, "fault": effort.faults}
    limits |= {"zombie": effort.zombies, "kill": effort.kills}
    groups = [spread(group, limits.get(name), random) for name, group in cases.items()]
    if effort.minutes is None:
        # What goes wrong mostly goes wrong around a commit, so that is looked at first.
        return [case for group in groups for case in sorted(group, key=lambda case: not crashes.COMMIT.search(case.id))]
    # Every scenario gets its share of the time: one of each in turn, in random order.
    mixed = zip_longest(*(random.sample(group, len(group)) for group in groups))
    return [case for turn in mixed for case in turn if case is not None]


def _try(chosen: list[Case], effort: Effort, begun: float, told: Told) -> tuple[Counter[str], Violation | None]:
    tried: Counter[str] = Counter()
    for index, case in enumerate(chosen):
        if effort.minutes is not None and time.monotonic() - begun > effort.minutes * 60:
            break
        told(case, index, len(chosen))
        tried[case.scenario] += 1
        found = case.happen()
        if found is not None:
            story = f"{case.story}: {found.story}"
            return tried, replace(found, case=case.id, scenario=case.scenario, story=story)
    return tried, None


def _command(lab: Testbed, effort: Effort, violation: Violation | None) -> str:
    """The command that tries it again: all of it, or just the case that went wrong."""
    options = [f"--seed {effort.seed}"]
    options += [f"--level {effort.level}"] if effort.level else []
    options += [f"--case {shlex.quote(violation.case)}"] if violation else []
    arguments = f" -- {shlex.join(lab.job.arguments)}" if lab.job.arguments else ""
    return f"{lab.job.command} {' '.join(options)}{arguments}"


def chosen_level(asked: str | None) -> str:
    """The level asked for, or the best this machine has."""
    if asked not in (None, *LEVELS):
        raise UsageError(message=f"there is no level {asked!r}; there are {', '.join(LEVELS)}")
    if asked == "calls":
        library()  # says what is missing
    return asked or ("calls" if compiler() else "steps")


@contextmanager
def sandbox() -> Iterator[Path]:
    """A folder that is gone afterwards, however the proof ends; one that a killed proof left is removed now."""
    base = Path(tempfile.gettempdir()).resolve()
    for left in base.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and _ended(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
    try:
        with _terminated_as_interrupted():
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let a termination unwind as Ctrl-C does, so that no subject and no folder is left behind."""
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
