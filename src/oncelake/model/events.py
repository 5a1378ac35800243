"""What happens in a run, as frozen events. The ledger, the terminal and whoever else listens see the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.model.work import Outcome, Plan, Report, Work


@dataclass(frozen=True)
class RunPlanned:
    """A run is about to execute a plan."""

    run: str
    plan: Plan


@dataclass(frozen=True)
class WorkStarted:
    """The works of one slice are attempted."""

    run: str
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Retrying:
    """An attempt failed in a way that a retry may cure; the run backs off for so many seconds."""

    run: str
    work: Work
    attempt: int
    seconds: float
    problem: str


@dataclass(frozen=True)
class WorkEnded:
    """The outcomes of some works of a slice are known: done, failed, busy or blocked. `attempted` if they were started."""

    run: str
    outcomes: tuple[Outcome, ...]
    attempted: bool = True


@dataclass(frozen=True)
class Warned:
    """Something worth knowing that stops nothing."""

    text: str


@dataclass(frozen=True)
class RunEnded:
    """A run is over."""

    report: Report


Event = RunPlanned | WorkStarted | Retrying | WorkEnded | Warned | RunEnded
