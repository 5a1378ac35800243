"""`run --watch`: streams run together, other pipelines are looked at again and again, until SIGTERM or Ctrl-C.

The commit in progress is finished first.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import oncelake as once
from oncelake.cli.output import Output
from oncelake.planning.plan import select_pipelines

if TYPE_CHECKING:
    from oncelake.streaming.watching import StreamWatch

# How often streams are asked whether they still run, in seconds.
_LOOK = 0.5


def watch(project: once.Project, output: Output, seconds: float, names: tuple[str, ...], options: Any) -> int:
    """Run what is due, wait, and look again. What failed is retried with the next look, streams after a pause."""
    chosen = select_pipelines(project.pipelines, names)
    others = tuple(pipeline.name for pipeline in chosen if pipeline.stream is None)
    run = ""
    works: list[once.Outcome] = []
    with _stop_signals() as stop, ExitStack() as running:
        streams = None
        if len(others) < len(chosen):
            listener = running.enter_context(output.progress())
            streams = running.enter_context(project.watch(*names, seconds=seconds, listener=listener))
            output.say(f"{len(chosen) - len(others)} streams run, with a look every {seconds:g} s (stop with Ctrl-C)")
        while not stop.is_set():
            report = _run(project, output, seconds, others, options, stop) if others else None
            if report is not None:
                run, works = report.run, [*works, *report.works]
            _wait(stop, seconds, streams)
    return output.report(once.Report(run, (*works, *(streams.outcomes if streams else ()))))


def _run(
    project: once.Project,
    output: Output,
    seconds: float,
    names: tuple[str, ...],
    options: Any,
    stop: threading.Event,
) -> once.Report | None:
    """Run what is due of the pipelines that are no streams."""
    report = None
    plan = project.plan(*names, **options)
    if plan.to_do:
        with output.progress() as progress:
            report = project.apply(plan, progress)
        plan = project.plan(*names, **options)
    if not stop.is_set():
        output.say(_waiting(plan, seconds))
    return report


def _wait(stop: threading.Event, seconds: float, streams: StreamWatch | None) -> None:
    """Wait for the next look; streams are looked at more often, because one that ended is started again."""
    deadline = time.monotonic() + seconds
    while streams is not None and not stop.is_set() and time.monotonic() < deadline:
        streams.look()
        stop.wait(_LOOK)
    stop.wait(max(deadline - time.monotonic(), 0))


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
