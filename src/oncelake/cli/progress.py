"""Progress of a run: plain lines, or a live display on a terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import oncelake as once
from oncelake.model.events import Event, Retrying, RunPlanned, Warned, WorkEnded, WorkStarted

if TYPE_CHECKING:
    from oncelake.model.work import Outcome, Work


class Lines:
    """Progress for logs: one line per finished work."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Start counting works and rows."""
        self._say = say
        self.total = self.ended_works = self.rows = 0
        self.start = time.monotonic()

    def on(self, event: Event) -> None:
        """Print what happens in the run."""
        match event:
            case RunPlanned(plan=plan):
                self.planned(plan)
            case WorkStarted(works=works):
                self.started(works[0])
            case WorkEnded(outcomes=outcomes):
                for outcome in outcomes:
                    self.ended(outcome)
            case Retrying(work=work, attempt=attempt, seconds=seconds, problem=problem):
                self.say(f"retrying {work.pipeline} {work.slice} in {seconds:.1f} s (attempt {attempt}): {problem}")
            case Warned(text=text):
                self.say(f"warning: {text}")

    def planned(self, plan: once.Plan) -> None:
        """Print the ranges, the notes and the totals of the plan."""
        self.total = len(plan.to_do)
        for scope in plan.pipelines:
            self.say(format_scope(scope))
        for note in plan.notes:
            self.say(f"note: {note}")
        if self.total:
            self.say(format_totals(plan))

    def started(self, work: Work) -> None:
        """Print nothing: one line per work is enough."""

    def ended(self, outcome: Outcome) -> None:
        """Print the outcome of a work. Works that were already done are counted at the end of the run."""
        if outcome.outcome == "already_done":
            return
        self.ended_works += 1
        # A restatement plans pipelines downstream only when the rows they read are written.
        self.total = max(self.total, self.ended_works)
        self.rows += outcome.rows.written or 0
        self.say(_format_outcome(outcome))

    def say(self, text: str) -> None:
        """Print a line."""
        self._say(text)

    def close(self) -> None:
        """Do nothing: there is no display to stop."""


class Live(Lines):
    """Progress for terminals: the same lines, and a live line below them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Start the display with the first work, not before."""
        super().__init__(say)
        self._live: Any = None

    def started(self, work: Work) -> None:
        """Show the work in progress."""
        if self._live is None:
            from rich.console import Console
            from rich.live import Live as RichLive

            console = Console(stderr=True, highlight=False)
            self._live = RichLive(console=console, refresh_per_second=8, transient=True)
            self._live.start()
        self._live.update(_LiveLine(self, f"{work.pipeline} {work.slice} → {work.target}"))

    def say(self, text: str) -> None:
        """Print a line above the live line."""
        if self._live is None:
            self._say(text)
        else:
            self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()


class _LiveLine:
    """The live line: finished works, rows written, rows per second, and the work in progress."""

    def __init__(self, lines: Lines, text: str) -> None:
        self.lines, self.text, self.start = lines, text, time.monotonic()

    def __rich__(self) -> Any:
        from rich.text import Text

        lines = self.lines
        elapsed = time.monotonic() - lines.start
        spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(elapsed * 8) % 10]
        rate = f"{lines.rows / max(elapsed, 0.1):,.0f} rows/s"
        done = f"{lines.ended_works}/{lines.total} works · {lines.rows:,} rows · {rate}"
        return Text(f"{spinner} {done} · {self.text} ({time.monotonic() - self.start:.0f} s)")


_COUNTED = ("written", "deleted", "quarantined")


def _format_outcome(outcome: Outcome) -> str:
    work = outcome.work
    head = f"{outcome.outcome.replace('_', ' '):12} {work.pipeline} {work.slice} → {work.target}"
    if outcome.error:
        return f"{head}\n  {outcome.error}"
    rows = outcome.rows
    counts = [f"{count:,} {name}" for name in _COUNTED if (count := rows[name])]
    version = f"version {outcome.version}, " if outcome.version is not None else ""
    return f"{head}  {version}{', '.join(counts) or 'no rows'}  {outcome.seconds:.1f} s"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, like `3 rows`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_number(number: int | None) -> str:
    """Return a number with thousands separators, or `-` if it is unknown."""
    return "-" if number is None else f"{number:,}"


def format_scope(scope: Any) -> str:
    """Return the range of a pipeline that a request covers, as one line."""
    if scope.span is None:
        return f"{scope.pipeline}: {scope.text or ('the whole table' if scope.intervals else 'no intervals')}"
    return f"{scope.pipeline}: {scope.span}, {format_count(scope.intervals, 'interval')}"


def format_totals(plan: once.Plan) -> str:
    """Return how many commits a plan writes, like `1 commit to write, 0 already done`."""
    actions = Counter(item.action for item in plan.works)
    waiting = f", {actions['wait']:,} waiting for upstream" if actions["wait"] else ""
    return f"{format_count(actions['run'], 'commit')} to write, {actions['skip']:,} already done{waiting}"
