"""Coverage: which generation of which marker covers which range of time. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from oncelake.model.intervals import Interval, instant_text, parse_interval


class Coverage(NamedTuple):
    """A range of time that a marker covers in a generation. Instants are text as in `Interval.text`, which sorts by time."""

    start: str
    end: str
    generation: int
    name: str

    @property
    def interval(self) -> Interval:
        """The range as an interval."""
        return parse_interval(f"{self.start}..{self.end}")


def resolve_overlaps(coverage: Iterable[Coverage]) -> list[Coverage]:
    """Return disjoint coverage in time order: where ranges overlap, the highest generation wins."""
    ordered = sorted(coverage)
    if all(one.end <= other.start for one, other in pairwise(ordered)):
        return ordered
    resolved: list[Coverage] = []
    active: list[tuple[int, str, Coverage]] = []
    position = 0
    for start, end in pairwise(sorted({edge for covered in ordered for edge in covered[:2]})):
        while position < len(ordered) and ordered[position].start <= start:
            heappush(active, (-ordered[position].generation, ordered[position].name, ordered[position]))
            position += 1
        while active and active[0][-1].end <= start:
            heappop(active)
        if not active:
            continue
        highest = active[0][-1]
        if resolved and resolved[-1].end == start and resolved[-1].name == highest.name:
            resolved[-1] = resolved[-1]._replace(end=end)
        else:
            resolved.append(highest._replace(start=start, end=end))
    return resolved


def coalesce(coverage: Iterable[Coverage]) -> list[Interval]:
    """Return coverage in time order as few intervals. Ranges are joined as text; only the result is parsed."""
    spans: list[list[str]] = []
    last = ""
    for start, end, _, _ in coverage:
        if start > last:
            spans.append([start, end])
            last = end
        elif end > last:
            spans[-1][1] = last = end
    return [parse_interval("..".join(span)) for span in spans]


class TimeRange(Protocol):
    """A record with a start and an end, as text like in `Interval.text`."""

    @property
    def start(self) -> str:
        """The start, inclusive."""
        ...

    @property
    def end(self) -> str:
        """The end, exclusive."""
        ...


R = TypeVar("R", bound=TimeRange)


def clip(coverage: Sequence[Coverage], span: Interval) -> list[Coverage]:
    """Return the parts of the coverage inside a span. The coverage must be disjoint and in time order."""
    start, end = instant_text(span.start), instant_text(span.end)
    first = bisect_right(coverage, start, key=lambda covered: covered.end)
    inside = list(coverage[first : bisect_left(coverage, end, key=lambda covered: covered.start)])
    if inside:
        inside[0] = inside[0]._replace(start=max(start, inside[0].start))
        inside[-1] = inside[-1]._replace(end=min(end, inside[-1].end))
    return inside


def align(*timelines: Sequence[R]) -> Iterator[tuple[str, str, tuple[R | None, ...]]]:
    """Split time at each boundary of some timelines of disjoint ranges; yield the parts and the range each timeline has there."""
    count = len(timelines)
    if sum(map(bool, timelines)) == 1:
        # The usual case is one timeline that is not empty, and it may be long.
        (number,) = (number for number, ranges in enumerate(timelines) if ranges)
        yield from (
            (r.start, r.end, tuple(r if n == number else None for n in range(count))) for r in timelines[number]
        )
        return
    positions = [0] * count
    edges = sorted({edge for ranges in timelines for one in ranges for edge in (one.start, one.end)})
    for start, end in pairwise(edges):
        current: list[R | None] = []
        for number, ranges in enumerate(timelines):
            while positions[number] < len(ranges) and ranges[positions[number]].end <= start:
                positions[number] += 1
            one = ranges[positions[number]] if positions[number] < len(ranges) else None
            current.append(one if one is not None and one.start <= start else None)
        if any(one is not None for one in current):
            yield start, end, tuple(current)
