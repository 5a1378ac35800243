"""Which names of a listing count: the pattern, matched folder by folder, and names that are hidden or temporary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache

from oncelake.storage.listing import ANY_DEPTH, is_hidden

# Names of files that are still being written: by browsers, copy tools, editors, and Hadoop.
TEMPORARY = ("*.tmp", "*.part", "*.partial", "*.crdownload", "*._COPYING_", "*.filepart", "*.swp", "*~")
HIDDEN = "hidden name"
# How many components of the pattern a folder's path may have matched: after `**` there are several possibilities.
States = frozenset[int]
Match = Callable[[str], object]


class Glob:
    """The components of a pattern below its fixed prefix, matched folder by folder: each folder is listed once.

    A file matches if its path does, or if it lies below a folder whose path does.
    """

    def __init__(self, parts: Sequence[str]) -> None:
        """Compile the components; none of them match everything."""
        self._matches: list[Match | None] = [None if part == ANY_DEPTH else _compile(part) for part in parts]
        self._end = len(parts)
        self.is_empty = not parts
        self.start = self._close({0})

    def below(self, states: States, name: str) -> States:
        """Return the states of a folder inside a folder; none if no file below it can match."""
        if self._end in states:
            return states
        found = set()
        for state in states:
            match = self._matches[state]
            if match is None:
                found.add(state)
            elif match(name):
                found.add(state + 1)
        return self._close(found)

    def files(self, states: States) -> Match | None:
        """Return the function that matches the names of files in a folder; None if every file matches."""
        if self._end in states:
            return None
        last = self._matches[-1] if self._end - 1 in states else None
        return last or _no_match

    def _close(self, states: set[int]) -> States:
        """Add what `**` can skip; a path that matched everything needs nothing else."""
        for state in sorted(states):
            following = state
            while following < self._end and self._matches[following] is None:
                following += 1
                states.add(following)
        return frozenset({self._end} if self._end in states else states)


class NameRules:
    """Names that are left out, in every component of a path: hidden ones as Spark does, and those like a pattern."""

    def __init__(self, ignore: Sequence[str]) -> None:
        """Compile the patterns; upper and lower case are the same."""
        endings = {pattern: pattern[1:].lower() for pattern in ignore if re.fullmatch(r"\*[^*?\[]+", pattern)}
        self._endings = tuple(endings.values())
        self._like: dict[str, Match] = {pattern: _compile(pattern.lower()) for pattern in ignore}
        self._others = [self._like[pattern] for pattern in ignore if pattern not in endings]

    def reason(self, name: str) -> str | None:
        """Return why a name is left out, or None."""
        if (name[0] in "._" or name.endswith("_")) and is_hidden(name):
            return HIDDEN
        lower = name.lower()
        if lower.endswith(self._endings) or (self._others and any(match(lower) for match in self._others)):
            return next(f"name like {pattern}" for pattern, match in self._like.items() if match(lower))
        return None


def _no_match(_: str) -> None:
    """Match no name: the pattern has more components."""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Match:
    return re.compile(translate(pattern)).match
