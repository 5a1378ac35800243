"""A listener that remembers what it heard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from oncelake.model.events import Event, WorkEnded
from oncelake.model.work import Outcome

E = TypeVar("E")


@dataclass
class RecordingListener:
    """Pass it to `run(listener=…)` and look at `events` afterwards."""

    events: list[Event] = field(default_factory=list)

    def on(self, event: Event) -> None:
        """Remember the event."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, in their order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all works that ended, in their order."""
        return [outcome for event in self.of(WorkEnded) for outcome in event.outcomes]
