"""Slices: the part of a target that one work owns. There is one class for each way a pipeline is driven."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.model.intervals import Grid, Interval, instant_text, parse_interval

_BATCH = "batch "


@dataclass(frozen=True)
class Whole:
    """The whole table: a pipeline without intervals."""

    @property
    def text(self) -> str:
        """The canonical text, used in markers."""
        return "whole"

    def __str__(self) -> str:
        """Format for display."""
        return "whole"


@dataclass(frozen=True)
class Named:
    """A slice that a caller of `once.write` names; only the caller knows its rows."""

    name: str

    @property
    def text(self) -> str:
        """The canonical text, used in markers; the prefix distinguishes it from other slices."""
        return f"={self.name}"

    def __str__(self) -> str:
        """Format for display."""
        return self.name


@dataclass(frozen=True)
class Batch:
    """A numbered batch of a stream: a frozen manifest of files, or a micro-batch. Batches are written in order."""

    stream: str
    number: int

    @property
    def text(self) -> str:
        """The canonical text, used in facts; the marker has the stream in its app id and the number as its version."""
        return f"{_BATCH}{self.number} {self.stream}"

    def __str__(self) -> str:
        """Format for display."""
        return f"{_BATCH}{self.number}"


Slice = Interval | Whole | Named | Batch


def parse_slice(text: str) -> Slice:
    """Parse the `text` of a slice."""
    if text == "whole":
        return Whole()
    if text.startswith("="):
        return Named(text[1:])
    if text.startswith(_BATCH):
        number, _, stream = text.removeprefix(_BATCH).partition(" ")
        return Batch(stream, int(number))
    return parse_interval(text)


def slice_options(slice_: Slice, grid: Grid | None) -> str:
    """Return the options that name a slice on the command line, after a space: of an interval, of a range, none of a whole."""
    if grid is None or not isinstance(slice_, Interval):
        return ""
    # A date means all of its hours, and only an instant is unique where clocks change.
    first, last = (
        instant_text(instant) if grid.every == "hour" else local.date().isoformat()
        for instant, local in ((slice_.start, slice_.local_start), (slice_.end, slice_.local_end))
    )
    return f" --date {first}" if grid.count(slice_) == 1 else f" --from {first} --to {last}"


def comes_before(one: Slice, other: Slice) -> bool:
    """Return whether a slice is earlier than another of the same kind: in time, or in a stream."""
    if isinstance(one, Interval) and isinstance(other, Interval):
        return one.start < other.start
    return isinstance(one, Batch) and isinstance(other, Batch) and one.number < other.number


def cells(slice_: Slice, grid: Grid | None) -> list[Slice]:
    """Return the intervals of a grid in a slice, or the slice itself if it is not an interval."""
    if grid is None or not isinstance(slice_, Interval):
        return [slice_]
    return list(grid.cells(slice_.start, slice_.end))


def count_cells(slice_: Slice, grid: Grid | None) -> int:
    """Return the number of intervals of a grid in a slice; 1 if it is not an interval."""
    return grid.count(slice_) if grid is not None and isinstance(slice_, Interval) else 1


def halves(slice_: Slice, grid: Grid | None) -> list[Interval]:
    """Return the two halves of a range of intervals; an empty list if it cannot be split."""
    if grid is None or not isinstance(slice_, Interval):
        return []
    middle = grid.step(slice_.start, grid.count(slice_) // 2)
    if not slice_.start < middle < slice_.end:
        return []
    return [Interval(slice_.start, middle, slice_.zone), Interval(middle, slice_.end, slice_.zone)]


def overlap(slice_: Slice, other: Slice, grid: Grid | None) -> Slice | None:
    """Return the part of a slice, in cells of its grid, that overlaps another; all of it if one is not an interval."""
    if grid is None or not isinstance(slice_, Interval) or not isinstance(other, Interval):
        return slice_
    if not other.overlaps(slice_):
        return None
    start, end = max(other.start, slice_.start), min(other.end, slice_.end)
    return grid.around(Interval(start, end, slice_.zone))
