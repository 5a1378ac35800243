"""`run --watch`: look for new work again and again, until SIGTERM or Ctrl-C. The commit in progress is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oncelake as once
from oncelake.cli.output import Output


def watch(project: once.Project, output: Output, seconds: float, names: tuple[str, ...], options: Any) -> int:
    """Run what is due, wait, and look again. What failed is retried with the next look."""
    run = ""
    works: list[once.Outcome] = []
    with _stop_signals() as stop:
        while not stop.is_set():
            plan = project.plan(*names, **options)
            if plan.to_do:
                with output.progress() as progress:
                    report = project.apply(plan, progress)
                run, works = report.run, [*works, *report.works]
                plan = project.plan(*names, **options)
            if not stop.is_set():
                output.say(_waiting(plan, seconds))
            stop.wait(seconds)
    return output.report(once.Report(run, tuple(works)))


def _waiting(plan: once.Plan, seconds: float) -> str:
    """Return the line that says what waits: what has arrived meanwhile, and what failed."""
    size = sum(item.size.bytes or 0 for item in plan.to_do)
    waiting = f"{len(plan.to_do):,} commits to write, {size:,} bytes" if plan.to_do else "nothing new"
    return f"waiting: {waiting}; looking again in {seconds:g} s (stop with Ctrl-C)"


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; a run ends between two commits then. The second signal is as usual."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def set_stop(number: int, frame: Any) -> None:
        handler = before[signal.SIGINT]
        if stop.is_set() and callable(handler):
            handler(number, frame)
        stop.set()

    signal.signal(signal.SIGINT, set_stop)
    # A run records Ctrl-C, so SIGTERM becomes one.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
