"""Which time the files of a table hold, by the column that says so: from statistics and partitions, without a scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from oncelake.delta.commit_file import CommitFile, statistics_of
from oncelake.delta.log import TableLog
from oncelake.model.intervals import Interval, merge
from oncelake.model.slices import parse_slice
from oncelake.model.work import InputSize

# Delta cuts times in statistics to milliseconds.
_TICK = timedelta(milliseconds=1)
_KINDS = ("date", "string", "timestamp", "timestamp_ntz")
# Patterns whose commits change the rows of their slice, whatever other rows their files hold.
_SLICED = ("replace_interval", "replace_partitions")


@dataclass(frozen=True)
class TimeColumn:
    """The column by which the rows of a table belong to intervals; dates and times without a zone are its zone's."""

    name: str
    kind: str
    zone: str

    @classmethod
    def of(cls, log: TableLog, name: str, zone: str) -> TimeColumn | None:
        """The column as the table spells it; None where files do not know it by that name."""
        spelled = next((column for column in log.schema if column.casefold() == name.casefold()), None)
        if spelled is None or log.mapped or log.schema[spelled] not in _KINDS:
            return None
        return cls(spelled, log.schema[spelled], zone)

    def held(self, file: Mapping[str, Any]) -> list[Interval] | None:
        """The time a file's rows lie in, as its action says; none for rows without a time, None where it does not say."""
        partitions = file.get("partitionValues") or {}
        if self.name in partitions:
            return self._between(partitions[self.name], partitions[self.name]) if partitions[self.name] else []
        statistics = statistics_of(file)
        least, most = (statistics.get(edge, {}).get(self.name) for edge in ("minValues", "maxValues"))
        if least is None or most is None:
            empty = statistics.get("nullCount", {}).get(self.name, -1) == statistics.get("numRecords")
            return [] if empty else None
        return self._between(least, most)

    def _between(self, least: str, most: str) -> list[Interval] | None:
        try:
            if self.kind in ("date", "string"):
                first, last = date.fromisoformat(least[:10]), date.fromisoformat(most[:10])
                return [Interval(self._midnight(first), self._midnight(last + timedelta(days=1)), self.zone)]
            start, end = (self._instant(text) for text in (least, most))
            return [Interval(start, end + _TICK, self.zone)]
        except (ValueError, OverflowError):
            return None

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), ZoneInfo(self.zone)).astimezone(UTC)

    def _instant(self, text: str) -> datetime:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None and self.kind == "timestamp":
            raise ValueError(f"{text} does not say its zone")
        return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(self.zone))


def estimate(log: TableLog, column: TimeColumn, interval: Interval) -> InputSize:
    """How much of a table lies in an interval, if the rows of a file are spread evenly; what a file hides is not counted."""
    size = rows = 0.0
    for file in log.files:
        for held in column.held(file) or []:
            share = _overlap(held, interval) / (held.end - held.start)
            size += file["size"] * share
            rows += statistics_of(file).get("numRecords", 0) * share
    return InputSize(round(size), round(rows))


def touched(entry: CommitFile, column: TimeColumn) -> list[Interval] | None:
    """The time whose rows a commit changed, by what it says; None where it does not say."""
    changes = [file for kind in ("add", "remove") for file in entry.actions(kind) if file.get("dataChange", True)]
    if not changes:
        return []
    if entry.facts.get("pattern") in _SLICED:
        slice_ = parse_slice(entry.facts["slice"])
        return [slice_] if isinstance(slice_, Interval) else None
    return _all(column.held(file) for file in changes)


def _all(found: Iterable[list[Interval] | None]) -> list[Interval] | None:
    whole: list[Interval] = []
    for part in found:
        if part is None:
            return None
        whole += part
    return merge(whole)


def _overlap(one: Interval, other: Interval) -> timedelta:
    return max(min(one.end, other.end) - max(one.start, other.start), timedelta())
