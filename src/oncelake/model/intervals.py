"""Half-open intervals of time, the grids they lie on, and the arithmetic over them. No clock, no I/O."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EVERY = ("hour", "day", "week", "month")
HOUR = timedelta(hours=1)
_WITH_OFFSET = "%Y-%m-%dT%H:%M%z"
_LENGTH = re.compile(r"(\d+) (hour|day|week)s?")


@dataclass(frozen=True, order=True)
class Interval:
    """A half-open range of time `[start, end)`: two instants in UTC, shown in the zone it was declared in."""

    start: datetime
    end: datetime
    zone: str = field(default="UTC", compare=False)

    def __post_init__(self) -> None:
        """Refuse what is no interval; hold instants in UTC, because equal local times need not be equal instants."""
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("an interval needs times with a zone")
        if self.start.tzinfo is not UTC or self.end.tzinfo is not UTC:
            object.__setattr__(self, "start", self.start.astimezone(UTC))
            object.__setattr__(self, "end", self.end.astimezone(UTC))
        if self.start >= self.end:
            raise ValueError(f"an interval ends after it starts: {self.start} to {self.end}")

    @property
    def local_start(self) -> datetime:
        """The start as wall-clock time of the interval's zone."""
        return self.start.astimezone(ZoneInfo(self.zone))

    @property
    def local_end(self) -> datetime:
        """The end as wall-clock time of the interval's zone."""
        return self.end.astimezone(ZoneInfo(self.zone))

    @cached_property
    def text(self) -> str:
        """The one spelling used in identities: two UTC instants."""
        return f"{instant_text(self.start)}..{instant_text(self.end)}"

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share any instant."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        """`[2024-03-15, 2024-03-16)`, with hours where it needs them and the zone where it is not UTC."""
        start, end = self.local_start.isoformat(), self.local_end.isoformat()
        if start[10:19] == end[10:19] == "T00:00:00":
            shown = start[:10], end[:10]
        elif start[19:] == end[19:]:
            shown = start[:16], end[:16]
        else:
            # Around a change of the clocks two instants can share a wall-clock time: the offsets tell them apart.
            shown = self.local_start.strftime(_WITH_OFFSET), self.local_end.strftime(_WITH_OFFSET)
        return f"[{shown[0]}, {shown[1]})" + ("" if self.zone == "UTC" else f" {self.zone}")


def instant_text(instant: datetime) -> str:
    """An instant as `2024-03-15T00:00:00Z`."""
    return (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()[: -len("+00:00")] + "Z"


def parse_interval(text: str, zone: str = "UTC") -> Interval:
    """The interval that `Interval.text` wrote."""
    start, end = text.split("..")
    return Interval(datetime.fromisoformat(start), datetime.fromisoformat(end), zone)


def parse_length(text: object) -> timedelta:
    """A length of time, like "90 days"."""
    found = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1]):
        raise ValueError(f'it is a length of time like "90 days", not {text!r}')
    return timedelta(**{f"{found[2]}s": int(found[1])})


@dataclass(frozen=True)
class Grid:
    """The cells a pipeline's time is cut into: hours, days, weeks (from Monday) or months of a zone."""

    every: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Refuse grids and zones that do not exist."""
        if self.every not in EVERY:
            raise ValueError(f"every={self.every!r} is none of {', '.join(EVERY)}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"timezone={self.zone!r} is not a time zone (like 'UTC' or 'Europe/Berlin')") from error

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    @cached_property
    def _hour_offset(self) -> timedelta:
        # Some zones are half an hour off: their hours begin at :30 UTC. One fixed offset keeps hours one hour long.
        offset = datetime(2000, 1, 1, tzinfo=self._zone).utcoffset() or timedelta()
        return timedelta(seconds=offset.total_seconds() % HOUR.total_seconds())

    def floor(self, instant: datetime) -> datetime:
        """The start of the cell that holds the instant."""
        if self.every == "hour":
            shifted = instant.astimezone(UTC) + self._hour_offset
            return shifted.replace(minute=0, second=0, microsecond=0) - self._hour_offset
        start = self._midnight(_first_day(instant.astimezone(self._zone).date(), self.every))
        # Where the clocks go back over midnight, a late instant has the date of a cell that has ended.
        return end if (end := self.after(start)) <= instant else start

    def after(self, start: datetime) -> datetime:
        """The end of the cell that starts there."""
        if self.every == "hour":
            return start.astimezone(UTC) + HOUR
        day = start.astimezone(self._zone).date()
        while True:
            day = _next_day(day, self.every)
            # A zone may skip a whole day: its cell would be empty, so it belongs to the one before.
            if (end := self._midnight(day)) > start:
                return end

    def cell(self, instant: datetime) -> Interval:
        """The cell that holds the instant."""
        start = self.floor(instant)
        return Interval(start, self.after(start), self.zone)

    def cells(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """The cells from one grid line up to another."""
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        while start < end:
            after = self.after(start)
            yield Interval(start, after, self.zone)
            start = after

    def count(self, interval: Interval) -> int:
        """How many cells there are from one grid line up to another, without making them."""
        if self.every == "hour":
            return int((interval.end - interval.start) / HOUR)
        first, last = (instant.astimezone(self._zone).date() for instant in (interval.start, interval.end))
        if self.every == "month":
            return (last.year - first.year) * 12 + last.month - first.month
        return (last - first).days // (7 if self.every == "week" else 1)

    def step(self, start: datetime, cells: int) -> datetime:
        """The grid line so many cells after another."""
        if self.every == "hour":
            return start + cells * HOUR
        day = start.astimezone(self._zone).date()
        try:
            if self.every == "month":
                months = day.year * 12 + day.month - 1 + cells
                day = date(months // 12, months % 12 + 1, 1)
            else:
                day += timedelta(days=cells * (7 if self.every == "week" else 1))
            # A day that a zone skipped begins where the next one does.
            return max(self._midnight(day), start)
        except (ValueError, OverflowError):
            return datetime.max.replace(tzinfo=UTC)

    def around(self, interval: Interval) -> Interval:
        """The cells that an interval touches, as one."""
        last = self.floor(interval.end)
        end = last if last == interval.end else self.after(last)
        return Interval(self.floor(interval.start), end, self.zone)

    def holds(self, instant: datetime) -> bool:
        """Whether the instant is a grid line."""
        return self.floor(instant) == instant

    def parse(self, value: str | date | datetime) -> datetime:
        """An instant from a date or a time; without a zone of its own it is a wall-clock time of the grid's."""
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if not isinstance(value, date):
            raise TypeError(f"{value!r} is not a date (like 2024-03-15)")
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=self._zone)
        try:
            return (value if value.tzinfo else value.replace(tzinfo=self._zone)).astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{value} is at the end of the calendar") from error

    def _midnight(self, day: date) -> datetime:
        # Where the clocks jump over midnight, the offset before the jump gives exactly the instant of the jump.
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)


def _first_day(day: date, every: str) -> date:
    if every == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if every == "month" else day


def _next_day(day: date, every: str) -> date:
    days = {"day": 1, "week": 7, "month": calendar.monthrange(day.year, day.month)[1]}[every]
    return day + timedelta(days=days)


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The same instants as few, sorted, disjoint intervals that do not touch."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.start <= merged[-1].end:
            if interval.end > merged[-1].end:
                merged[-1] = Interval(merged[-1].start, interval.end, merged[-1].zone)
        else:
            merged.append(interval)
    return merged


def subtract(intervals: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """What is left of the intervals when the taken ones are removed."""
    left: list[Interval] = []
    holes = merge(taken)
    first = 0
    for interval in merge(intervals):
        start = interval.start
        while first < len(holes) and holes[first].end <= start:
            first += 1
        for hole in holes[first:]:
            if hole.start >= interval.end:
                break
            if start < hole.start:
                left.append(Interval(start, hole.start, interval.zone))
            start = max(start, hole.end)
        if start < interval.end:
            left.append(Interval(start, interval.end, interval.zone))
    return left


def covers(intervals: Iterable[Interval], wanted: Interval) -> bool:
    """Whether every instant of the wanted interval lies in one of the others."""
    return not subtract([wanted], intervals)


def missing(cells: Iterable[Interval], done: Iterable[Interval]) -> list[Interval]:
    """The cells that are not wholly covered by what is done, in their order."""
    covered = merge(done)
    left: list[Interval] = []
    position = 0
    for cell in cells:
        while position < len(covered) and covered[position].end <= cell.start:
            position += 1
        if position == len(covered) or covered[position].start > cell.start or covered[position].end < cell.end:
            left.append(cell)
    return left
