"""What a run carries with it: the lake, the session, who listens, and how long it waits."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.tables import Lake
from oncelake.model.contracts import Listener
from oncelake.model.events import Event, Warned
from oncelake.model.work import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("oncelake")


@dataclass(frozen=True)
class RunContext:
    """Everything a run needs around it. The session is started only when there is work."""

    lake: Lake
    session: Callable[[], SparkSession]
    listeners: tuple[Listener, ...]
    lock_timeout: float
    # Start a new session after the JVM died; False if the session is the caller's own.
    restart: Callable[[], bool] = lambda: False
    # So many slices concurrently, where they do not conflict; and the tables whose lock the run holds for them.
    jobs: int = 1
    held: frozenset[str] = frozenset()
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    # The id of the project, if it has one; every commit carries it.
    project: str | None = None
    # Write the rest of an interrupted work from the input as it is now, not from that of its finished targets.
    accept_new_input: bool = False
    # Targets that become known to the session's catalog: all, or these; and those that this run has registered.
    register: bool | tuple[str, ...] = False
    registered: set[str] = field(default_factory=set, repr=False, compare=False)
    # Take in what is available now of a stream; it is set where pipelines are run, because streams are above this layer.
    drain: Callable[[Pipeline, RunContext], list[Outcome]] | None = None
    # Listeners that have failed in this run: reported once.
    failing: set[int] = field(default_factory=set, repr=False, compare=False)

    def notify(self, event: Event) -> None:
        """Tell every listener. One that fails is reported once and fails nothing: listeners do not decide about data."""
        for listener in self.listeners:
            try:
                listener.on(event)
            except Exception as error:  # noqa: BLE001  whatever it raised
                if id(listener) not in self.failing:
                    self.failing.add(id(listener))
                    _log.warning("%s failed on %s: %s", type(listener).__name__, type(event).__name__, error)

    def warn(self, text: str) -> None:
        """Tell every listener something worth knowing that stops nothing."""
        self.notify(Warned(text))
