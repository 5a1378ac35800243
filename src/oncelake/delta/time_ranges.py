"""Which time the files of a table hold, by a time column: from statistics and partition values, without a scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from oncelake.delta.commit_file import CommitFile, statistics_of
from oncelake.delta.log import TableLog
from oncelake.model.intervals import Interval, merge
from oncelake.model.slices import parse_slice
from oncelake.model.work import InputSize

if TYPE_CHECKING:
    from oncelake.delta.files import Files

# Delta cuts times in statistics to milliseconds.
_TICK = timedelta(milliseconds=1)
_KINDS = ("date", "string", "timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class TimeColumn:
    """The column by which the rows of a table belong to intervals; dates and times without a zone are in its zone."""

    name: str
    kind: str
    zone: str

    @classmethod
    def of(cls, log: TableLog, name: str, zone: str) -> TimeColumn | None:
        """Return the column as the table spells it; None where its files have no statistics by that name."""
        spelled = next((column for column in log.schema if column.casefold() == name.casefold()), None)
        if spelled is None or log.mapped or log.schema[spelled] not in _KINDS:
            return None
        return cls(spelled, log.schema[spelled], zone)

    def cut(self, facts: Mapping[str, Any]) -> bool:
        """Return whether the slice of a commit was cut by this column, so that it names the same rows for a reader."""
        name, zone = facts.get("cut_by") or (None, None)
        same = name is not None and name.casefold() == self.name.casefold()
        # Dates and times without a zone mean other instants in another zone.
        return same and (self.kind == "timestamp" or zone == self.zone)

    def held(self, file: Mapping[str, Any]) -> list[Interval] | None:
        """Return the time of a file's rows, as its action says; none for rows without a time, None where it does not say."""
        partitions = file.get("partitionValues") or {}
        if self.name in partitions:
            return self._between(partitions[self.name], partitions[self.name]) if partitions[self.name] else []
        statistics = statistics_of(file)
        least, most = (statistics.get(edge, {}).get(self.name) for edge in ("minValues", "maxValues"))
        if least is None or most is None:
            empty = statistics.get("nullCount", {}).get(self.name, -1) == statistics.get("numRecords")
            return [] if empty else None
        return self._between(least, most)

    def first(self, value: str) -> datetime:
        """Return the first moment of a value in statistics or partition values; ValueError where it does not tell it."""
        if self.kind in ("date", "string"):
            return self._midnight(date.fromisoformat(value[:10]))
        return self._instant(value)

    def last(self, value: str) -> datetime:
        """Return the last moment of a value, in steps of milliseconds."""
        if self.kind in ("date", "string"):
            return self._midnight(date.fromisoformat(value[:10]) + timedelta(days=1)) - _TICK
        return self._instant(value)

    def _between(self, least: str, most: str) -> list[Interval] | None:
        try:
            return [Interval(self.first(least), self.last(most) + _TICK, self.zone)]
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
    """Return how much of a table lies in an interval, if the rows of a file are spread evenly; files without statistics do not count."""
    from oncelake.delta.time_profile import time_profile

    return time_profile(log.files, column).within(interval)


def files_within(log: TableLog, column: TimeColumn, interval: Interval) -> Files:
    """Return the files that may have rows of an interval: all that do not say otherwise."""
    from oncelake.delta.time_profile import may_hold

    return log.files.where(may_hold(log.files, column, interval))


def null_times(log: TableLog, name: str) -> tuple[int, int | None]:
    """Return at least and at most how many rows have no time, from statistics and partition values; None if unknown."""
    spelled = next((each for each in (*log.partitioned_by, *log.schema) if each.casefold() == name.casefold()), name)
    if log.mapped:
        return 0, None if len(log.files) else 0
    # By the type of the column: then a plan parses the statistics once.
    return log.files.nulls(spelled, log.schema.get(spelled, ""))


def touched(entry: CommitFile, column: TimeColumn) -> list[Interval] | None:
    """Return the time, by a reader's column, whose rows a commit changed; None where the commit does not say.

    The statistics of the files added and removed decide. The writer's slice is narrower, because a rewritten file also
    holds rows of other intervals, but it may be used only if the commit says that it was cut by that same column.
    """
    changes = changed_files(entry)
    if not changes:
        return []
    slice_ = parse_slice(entry.facts["slice"]) if column.cut(entry.facts) else None
    if isinstance(slice_, Interval):
        return [slice_]
    return _all(column.held(file) for file in changes)


def changed_files(entry: CommitFile) -> list[Mapping[str, Any]]:
    """Return the files that a commit added or removed with a change of data: compaction changes none."""
    return [file for kind in ("add", "remove") for file in entry.actions(kind) if file.get("dataChange", True)]


def _all(found: Iterable[list[Interval] | None]) -> list[Interval] | None:
    whole: list[Interval] = []
    for part in found:
        if part is None:
            return None
        whole += part
    return merge(whole)
