"""Record Ctrl-C, also when a library swallows it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def recording_interrupts() -> Iterator[list[int]]:
    """Record every SIGINT, so that one that a library swallows still ends the run between two commits."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield interrupts
        return
    before = signal.getsignal(signal.SIGINT)

    def record(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, record)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
