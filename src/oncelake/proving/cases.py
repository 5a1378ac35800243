"""A case: one thing that can happen to a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from oncelake.proving.verdict import Violation


@dataclass(frozen=True)
class Case:
    """One thing that can happen: its name, its story, and how to make it happen. What it returns is wrong, if anything."""

    id: str
    scenario: str
    story: str
    happen: Callable[[], Violation | None]


def after(found: Violation, story: str) -> Violation:
    """A violation whose story begins earlier."""
    return replace(found, story=f"{story}: {found.story}")


def spread(found: Sequence[Any], number: int | None, random: Random) -> list[Any]:
    """All, or so many, one at random from each of as many equal stretches: every part of a run has its share."""
    if number is None or number >= len(found):
        return list(found)
    stretch = len(found) / max(number, 1)
    return [found[int((index + random.random()) * stretch)] for index in range(number)]
