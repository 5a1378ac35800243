"""What a person sees while a run goes: lines, or on a terminal a live display."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import oncelake as once

if TYPE_CHECKING:
    from oncelake.model.work import Outcome, Work


class Lines:
    """A watcher for logs: a line when a work ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Count what has been done."""
        self._say = say
        self.total = self.ended_works = self.rows = 0
        self.begun = time.monotonic()

    def planned(self, plan: once.Plan) -> None:
        """Echo the range that was understood."""
        self.total = len(plan.to_do)
        for scope in plan.pipelines:
            self.say(scope_line(scope))
        for note in plan.notes:
            self.say(f"note: {note}")
        if self.total:
            self.say(f"{count_of(self.total, 'work')} to do, {len(plan.works) - self.total:,} done already")

    def started(self, work: Work) -> None:
        """Nothing: a line per work is enough."""

    def ended(self, outcome: Outcome) -> None:
        """A line for what was done; done already is counted at the end."""
        if outcome.outcome == "already_done":
            return
        self.ended_works += 1
        self.rows += outcome.rows.written or 0
        self.say(_line(outcome))

    def warn(self, text: str) -> None:
        """A warning."""
        self.say(f"warning: {text}")

    def say(self, text: str) -> None:
        """A line for people."""
        self._say(text)

    def close(self) -> None:
        """The end."""


class Live(Lines):
    """A watcher for terminals: the same lines, and below them one that moves."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """The display starts with the first work."""
        super().__init__(say)
        self._live: Any = None

    def started(self, work: Work) -> None:
        """Show what is under way."""
        if self._live is None:
            from rich.console import Console
            from rich.live import Live as RichLive

            console = Console(stderr=True, highlight=False)
            self._live = RichLive(console=console, refresh_per_second=8, transient=True)
            self._live.start()
        self._live.update(_Moving(self, f"{work.pipeline} {work.slice} → {work.target}"))

    def say(self, text: str) -> None:
        """A line above the moving one."""
        if self._live is None:
            self._say(text)
        else:
            self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Take the moving line away."""
        if self._live is not None:
            self._live.stop()


class _Moving:
    """The moving line: how many intervals are done, rows so far and their rate, and what is under way."""

    def __init__(self, lines: Lines, text: str) -> None:
        self.lines, self.text, self.begun = lines, text, time.monotonic()

    def __rich__(self) -> Any:
        from rich.text import Text

        lines = self.lines
        spent = time.monotonic() - lines.begun
        sign = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(spent * 8) % 10]
        done = f"{lines.ended_works}/{lines.total} works · {lines.rows:,} rows · {lines.rows / max(spent, 0.1):,.0f} rows/s"
        return Text(f"{sign} {done} · {self.text} ({time.monotonic() - self.begun:.0f} s)")


def _line(outcome: Outcome) -> str:
    work = outcome.work
    head = f"{outcome.outcome.replace('_', ' '):12} {work.pipeline} {work.slice} → {work.target}"
    if outcome.error:
        return f"{head}\n  {outcome.error}"
    rows = outcome.rows
    counts = [f"{count:,} {name}" for name, count in (("written", rows.written), ("deleted", rows.deleted)) if count]
    version = f"version {outcome.version}, " if outcome.version is not None else ""
    return f"{head}  {version}{', '.join(counts) or 'no rows'}  {outcome.seconds:.1f} s"


def count_of(number: int, what: str) -> str:
    """Return a number with its noun, like `3 rows`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def number_text(count: int | None) -> str:
    """Return a number for people, `-` where it is not known."""
    return "-" if count is None else f"{count:,}"


def scope_line(scope: Any) -> str:
    """Return how much of a pipeline a request covers, as one line."""
    if scope.span is None:
        return f"{scope.pipeline}: {'the whole' if scope.intervals else 'no intervals'}"
    return f"{scope.pipeline}: {scope.span}, {count_of(scope.intervals, 'interval')}"
