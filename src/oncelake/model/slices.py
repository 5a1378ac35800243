"""Slices: the part of a target that one piece of work owns."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.model.intervals import Interval, parse_interval


@dataclass(frozen=True)
class Whole:
    """The slice that is the whole table."""

    @property
    def text(self) -> str:
        """The one spelling used in identities."""
        return "whole"

    def __str__(self) -> str:
        """For people."""
        return "whole"


@dataclass(frozen=True)
class Named:
    """A slice a caller of `once.write` names; what is in it is known to the caller alone."""

    name: str

    @property
    def text(self) -> str:
        """The one spelling used in identities; the sign keeps it apart from the other kinds."""
        return f"={self.name}"

    def __str__(self) -> str:
        """For people."""
        return self.name


Slice = Interval | Whole | Named


def parse_slice(text: str) -> Slice:
    """The slice that `text` spelled."""
    if text == "whole":
        return Whole()
    return Named(text[1:]) if text.startswith("=") else parse_interval(text)
