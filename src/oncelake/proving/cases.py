"""A case: one failure or disturbance that the prover applies to a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from oncelake.proving.verdict import Violation


@dataclass(frozen=True)
class Case:
    """One case: its id, its story, and a function that executes it and returns a violation, if there is one."""

    id: str
    scenario: str
    story: str
    execute: Callable[[], Violation | None]


def prefix_story(found: Violation, story: str) -> Violation:
    """Return the violation with an earlier event in front of its story."""
    return replace(found, story=f"{story}: {found.story}")


def sample_evenly(items: Sequence[Any], number: int | None, random: Random) -> list[Any]:
    """Return all items, or `number` of them: one at random from each of that many equal sections."""
    if number is None or number >= len(items):
        return list(items)
    section = len(items) / max(number, 1)
    return [items[int((index + random.random()) * section)] for index in range(number)]
