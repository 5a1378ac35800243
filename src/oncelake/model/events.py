"""The events of a run, as frozen records. All listeners, such as the ledger and the terminal, receive the same ones."""

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
    """An attempt at the works of one slice starts."""

    run: str
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Retrying:
    """An attempt failed with an error that a retry may fix; the run backs off for `seconds`."""

    run: str
    work: Work
    attempt: int
    seconds: float
    problem: str


@dataclass(frozen=True)
class WorkEnded:
    """Some works of a slice ended: done, failed, busy or blocked. `attempted` says whether they were started."""

    run: str
    outcomes: tuple[Outcome, ...]
    attempted: bool = True


@dataclass(frozen=True)
class Warned:
    """A warning that stops nothing."""

    text: str


@dataclass(frozen=True)
class RunEnded:
    """A run ended."""

    report: Report


Event = RunPlanned | WorkStarted | Retrying | WorkEnded | Warned | RunEnded
