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
_DURATION = re.compile(r"(\d+) (hour|day|week)s?")


@dataclass(frozen=True, order=True)
class Interval:
    """A half-open range of time `[start, end)`: two instants in UTC, displayed in the declared time zone."""

    start: datetime
    end: datetime
    zone: str = field(default="UTC", compare=False)

    def __post_init__(self) -> None:
        """Refuse an invalid interval; store instants in UTC, because equal local times need not be equal instants."""
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("an interval needs instants with a time zone")
        if self.start.tzinfo is not UTC or self.end.tzinfo is not UTC:
            object.__setattr__(self, "start", self.start.astimezone(UTC))
            object.__setattr__(self, "end", self.end.astimezone(UTC))
        if self.start >= self.end:
            raise ValueError(f"an interval must end after it starts: {self.start} to {self.end}")

    @property
    def local_start(self) -> datetime:
        """The start as wall-clock time in the interval's zone."""
        return self.start.astimezone(ZoneInfo(self.zone))

    @property
    def local_end(self) -> datetime:
        """The end as wall-clock time in the interval's zone."""
        return self.end.astimezone(ZoneInfo(self.zone))

    @cached_property
    def text(self) -> str:
        """The canonical text, used in markers: two UTC instants."""
        return f"{instant_text(self.start)}..{instant_text(self.end)}"

    def overlaps(self, other: Interval) -> bool:
        """Return whether the two intervals share any instant."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        """Format as `[2024-03-15, 2024-03-16)`, with hours if needed, and with the zone if it is not UTC."""
        start, end = self.local_start.isoformat(), self.local_end.isoformat()
        if start[10:19] == end[10:19] == "T00:00:00":
            start, end = start[:10], end[:10]
        elif start[19:] == end[19:]:
            start, end = start[:16], end[:16]
        else:
            # Around a clock change two instants can have the same wall-clock time: the offsets distinguish them.
            start, end = self.local_start.strftime(_WITH_OFFSET), self.local_end.strftime(_WITH_OFFSET)
        return f"[{start}, {end})" + ("" if self.zone == "UTC" else f" {self.zone}")


def instant_text(instant: datetime) -> str:
    """Format an instant as `2024-03-15T00:00:00Z`."""
    return (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()[: -len("+00:00")] + "Z"


def parse_interval(text: str, zone: str = "UTC") -> Interval:
    """Parse the text of `Interval.text`."""
    start, end = text.split("..")
    return Interval(datetime.fromisoformat(start), datetime.fromisoformat(end), zone)


def parse_length(text: object) -> timedelta:
    """Parse a duration like "90 days"."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None or not int(match[1]):
        raise ValueError(f'expected a duration like "90 days", not {text!r}')
    return timedelta(**{f"{match[2]}s": int(match[1])})


@dataclass(frozen=True)
class Grid:
    """The grid of a pipeline's intervals (its cells): hours, days, weeks (from Monday) or months in a time zone."""

    every: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Refuse an unknown `every` or time zone."""
        if self.every not in EVERY:
            raise ValueError(f"every={self.every!r} is not one of {', '.join(EVERY)}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"timezone={self.zone!r} is not a time zone (like 'UTC' or 'Europe/Berlin')") from error

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    @cached_property
    def changes_clocks(self) -> bool:
        """Whether the zone has clock changes by the rules of these years: an hour of wall-clock time is then repeated."""
        months = (datetime(year, month, 1, tzinfo=self._zone) for year in (2024, 2025, 2026) for month in range(1, 13))
        return len({month.utcoffset() for month in months}) > 1

    @cached_property
    def _hour_offset(self) -> timedelta:
        # In some zones hours begin at :30 UTC. One fixed offset keeps every cell one hour long.
        offset = datetime(2000, 1, 1, tzinfo=self._zone).utcoffset() or timedelta()
        return timedelta(seconds=offset.total_seconds() % HOUR.total_seconds())

    def floor(self, instant: datetime) -> datetime:
        """Return the start of the cell that contains the instant."""
        if self.every == "hour":
            shifted = instant.astimezone(UTC) + self._hour_offset
            return shifted.replace(minute=0, second=0, microsecond=0) - self._hour_offset
        start = self._midnight(_first_day(instant.astimezone(self._zone).date(), self.every))
        # Where clocks go back over midnight, an instant after the change has the date of a cell that has already ended.
        return end if (end := self.after(start)) <= instant else start

    def after(self, start: datetime) -> datetime:
        """Return the end of the cell with that start."""
        if self.every == "hour":
            return start.astimezone(UTC) + HOUR
        day = start.astimezone(self._zone).date()
        while True:
            day = _next_day(day, self.every)
            # A zone may skip a whole day. Its cell would be empty, so the previous cell includes it.
            if (end := self._midnight(day)) > start:
                return end

    def cell(self, instant: datetime) -> Interval:
        """Return the cell that contains the instant."""
        start = self.floor(instant)
        return Interval(start, self.after(start), self.zone)

    def cells(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """Yield the cells from one boundary to another."""
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        while start < end:
            after = self.after(start)
            yield Interval(start, after, self.zone)
            start = after

    def count(self, interval: Interval) -> int:
        """Return the number of cells in an interval between two boundaries, without creating them."""
        if self.every == "hour":
            return int((interval.end - interval.start) / HOUR)
        first, last = (instant.astimezone(self._zone).date() for instant in (interval.start, interval.end))
        if self.every == "month":
            return (last.year - first.year) * 12 + last.month - first.month
        return (last - first).days // (7 if self.every == "week" else 1)

    def step(self, start: datetime, cells: int) -> datetime:
        """Return the boundary that many cells after another."""
        if self.every == "hour":
            return start + cells * HOUR
        day = start.astimezone(self._zone).date()
        try:
            if self.every == "month":
                months = day.year * 12 + day.month - 1 + cells
                day = date(months // 12, months % 12 + 1, 1)
            else:
                day += timedelta(days=cells * (7 if self.every == "week" else 1))
            # A day that a zone skipped starts at the same instant as the next day.
            return max(self._midnight(day), start)
        except (ValueError, OverflowError):
            return datetime.max.replace(tzinfo=UTC)

    def around(self, interval: Interval) -> Interval:
        """Return the smallest range of whole cells that contains an interval."""
        last = self.floor(interval.end)
        end = last if last == interval.end else self.after(last)
        return Interval(self.floor(interval.start), end, self.zone)

    def is_boundary(self, instant: datetime) -> bool:
        """Return whether the instant is the start of a cell."""
        return self.floor(instant) == instant

    def parse(self, value: str | date | datetime) -> datetime:
        """Return the instant of a date or a time. Without an offset it is wall-clock time in the grid's zone."""
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if not isinstance(value, date):
            raise TypeError(f"{value!r} is not a date (like 2024-03-15)")
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=self._zone)
        try:
            return (value if value.tzinfo else value.replace(tzinfo=self._zone)).astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{value} is outside the supported dates") from error

    def _midnight(self, day: date) -> datetime:
        # Where clocks skip midnight, the offset before the change gives exactly the instant of the change.
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)


def _first_day(day: date, every: str) -> date:
    if every == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if every == "month" else day


def _next_day(day: date, every: str) -> date:
    days = {"day": 1, "week": 7, "month": calendar.monthrange(day.year, day.month)[1]}[every]
    return day + timedelta(days=days)


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union as sorted intervals; overlapping and adjacent ones are merged."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.start <= merged[-1].end:
            if interval.end > merged[-1].end:
                merged[-1] = Interval(merged[-1].start, interval.end, merged[-1].zone)
        else:
            merged.append(interval)
    return merged


def subtract(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the parts of the intervals that are not in the removed ones."""
    left: list[Interval] = []
    holes = merge(removed)
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
    """Return whether the intervals together contain every instant of the wanted one."""
    return not subtract([wanted], intervals)


def missing(cells: Iterable[Interval], done: Iterable[Interval]) -> list[Interval]:
    """Return the cells that the done intervals do not fully cover, in order."""
    covered = merge(done)
    left: list[Interval] = []
    position = 0
    for cell in cells:
        while position < len(covered) and covered[position].end <= cell.start:
            position += 1
        if position == len(covered) or covered[position].start > cell.start or covered[position].end < cell.end:
            left.append(cell)
    return left
