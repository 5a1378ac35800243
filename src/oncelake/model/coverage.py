"""Which generation covers which time: stretches of time laid over each other. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from oncelake.model.intervals import Interval, instant_text, parse_interval


class Coverage(NamedTuple):
    """A named stretch of time and its height, spelled as `Interval.text` does: the spelling sorts as time does."""

    start: str
    end: str
    generation: int
    name: str

    @property
    def interval(self) -> Interval:
        """The stretch itself."""
        return parse_interval(f"{self.start}..{self.end}")


def resolve_overlaps(coverage: Iterable[Coverage]) -> list[Coverage]:
    """Of layers that lie over each other the highest part everywhere, in the order of time."""
    ordered = sorted(coverage)
    if all(one.end <= other.start for one, other in pairwise(ordered)):
        return ordered
    found: list[Coverage] = []
    begun: list[tuple[int, str, Coverage]] = []
    position = 0
    for start, end in pairwise(sorted({edge for covered in ordered for edge in covered[:2]})):
        while position < len(ordered) and ordered[position].start <= start:
            heappush(begun, (-ordered[position].generation, ordered[position].name, ordered[position]))
            position += 1
        while begun and begun[0][-1].end <= start:
            heappop(begun)
        if not begun:
            continue
        top = begun[0][-1]
        if found and found[-1].end == start and found[-1].name == top.name:
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(top._replace(start=start, end=end))
    return found


def coalesce(coverage: Iterable[Coverage]) -> list[Interval]:
    """Layers in the order of time as few intervals; only what is left is parsed."""
    spans: list[list[str]] = []
    last = ""
    for start, end, _, _ in coverage:
        if start > last:
            spans.append([start, end])
            last = end
        elif end > last:
            spans[-1][1] = last = end
    return [parse_interval("..".join(span)) for span in spans]


class Stretch(Protocol):
    """Anything that has a start and an end, spelled as `Interval.text` does."""

    @property
    def start(self) -> str:
        """Where it begins."""
        ...

    @property
    def end(self) -> str:
        """Where it ends, exclusive."""
        ...


S = TypeVar("S", bound=Stretch)


def clip(coverage: Sequence[Coverage], span: Interval) -> list[Coverage]:
    """The parts of layers that lie in a span. They do not overlap and are in the order of time."""
    start, end = instant_text(span.start), instant_text(span.end)
    first = bisect_right(coverage, start, key=lambda covered: covered.end)
    inside = list(coverage[first : bisect_left(coverage, end, key=lambda covered: covered.start)])
    if inside:
        inside[0] = inside[0]._replace(start=max(start, inside[0].start))
        inside[-1] = inside[-1]._replace(end=min(end, inside[-1].end))
    return inside


def align(*rows: Sequence[S]) -> Iterator[tuple[str, str, tuple[S | None, ...]]]:
    """Time cut wherever one of some rows of disjoint stretches changes, and what each row has there."""
    if sum(map(bool, rows)) == 1:
        # Most often there is one row that changes, and it may be long.
        (number,) = (number for number, row in enumerate(rows) if row)
        yield from ((s.start, s.end, tuple(s if n == number else None for n in range(len(rows)))) for s in rows[number])
        return
    positions = [0] * len(rows)
    edges = sorted({edge for row in rows for stretch in row for edge in (stretch.start, stretch.end)})
    for start, end in pairwise(edges):
        found: list[S | None] = []
        for number, row in enumerate(rows):
            while positions[number] < len(row) and row[positions[number]].end <= start:
                positions[number] += 1
            stretch = row[positions[number]] if positions[number] < len(row) else None
            found.append(stretch if stretch is not None and stretch.start <= start else None)
        if any(stretch is not None for stretch in found):
            yield start, end, tuple(found)
