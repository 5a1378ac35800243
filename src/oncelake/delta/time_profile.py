"""How many bytes and rows of a table lie before each moment: weighing an interval is a search in two sorted arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.delta.files import Files
from oncelake.model.intervals import Interval
from oncelake.model.work import InputSize

if TYPE_CHECKING:
    from oncelake.delta.time_ranges import TimeColumn

# Files are spread over whole minutes: intervals begin at those, and a file whose rows have one time needs some extent.
_MINUTE = 60


@dataclass(frozen=True)
class TimeProfile:
    """The bytes and rows before each of some moments, in minutes, if the rows of a file are spread evenly over its time."""

    minutes: Sequence[int]
    bytes: Sequence[float]
    rows: Sequence[float]

    def within(self, interval: Interval) -> InputSize:
        """Return how much lies in an interval."""
        start, end = (self._before(moment.timestamp() / _MINUTE) for moment in (interval.start, interval.end))
        return InputSize(round(end[0] - start[0]), round(end[1] - start[1]))

    def _before(self, minute: float) -> tuple[float, float]:
        place = bisect_right(self.minutes, minute)
        if place == 0 or not self.minutes:
            return 0.0, 0.0
        if place == len(self.minutes):
            return self.bytes[-1], self.rows[-1]
        first, last = self.minutes[place - 1], self.minutes[place]
        share = (minute - first) / (last - first)
        return _between(self.bytes, place, share), _between(self.rows, place, share)


def time_profile(files: Files, column: TimeColumn) -> TimeProfile:
    """Return the profile of the files that say which time they hold; the others do not count."""
    if column not in files.memo:
        files.memo[column] = _profile(files, column)
    found: TimeProfile = files.memo[column]
    return found


def may_hold(files: Files, column: TimeColumn, interval: Interval) -> pa.Array:
    """Return for each file whether it may have rows of an interval: its time is in it, or it does not say its time."""
    start, end = _ranges(files, column)
    first, last = interval.start.timestamp() / _MINUTE, interval.end.timestamp() / _MINUTE
    overlaps = pc.and_(pc.less(start, last), pc.greater(pc.add(end, 1), first))
    if column.name in files.partitioned_by:
        timeless = pc.equal(pc.fill_null(files.partition(column.name), ""), "")
    else:
        timeless = files.statistics(column.name, column.kind).only_nulls()
    return pc.if_else(pc.greater_equal(end, start), overlaps, None).fill_null(pc.invert(timeless))


def _between(values: Sequence[float], place: int, share: float) -> float:
    return values[place - 1] + (values[place] - values[place - 1]) * share


def _profile(files: Files, column: TimeColumn) -> TimeProfile:
    start, end = _ranges(files, column)
    by_partition = column.name in files.partitioned_by
    rows = files.statistics(*(() if by_partition else (column.name, column.kind))).rows
    usable = pc.fill_null(pc.greater_equal(end, start), fill_value=False)
    start, end = start.filter(usable), pc.add(end.filter(usable), 1)
    length = pc.cast(pc.subtract(end, start), pa.float64())
    rates = [pc.divide(amount.filter(usable), length) for amount in (files.sizes, pc.fill_null(rows, 0))]
    # Each file adds its amount per minute from its start on, and takes it away from its end on.
    changes = pa.concat_tables([_sum_by_minute(start, *rates), _sum_by_minute(end, *map(pc.negate, rates))])
    changes = _sum_by_minute(*changes.columns).sort_by("minute")
    if not len(changes):
        return TimeProfile([], [], [])
    minutes, *amounts = (pa.concat_arrays(each.chunks) for each in changes.columns)
    return TimeProfile(_content(minutes).cast("q"), *(_amounts_before(minutes, each) for each in amounts))


def _ranges(files: Files, column: TimeColumn) -> tuple[pa.Array, pa.Array]:
    """Return the first and the last minute of each file; null where it does not tell them."""
    if column.name in files.partitioned_by:
        least = most = files.partition(column.name)
    else:
        found = files.statistics(column.name, column.kind)
        least, most = found.least, found.most
    return _minutes(least, column, column.first), _minutes(most, column, column.last)


def _sum_by_minute(minute: pa.Array, size: pa.Array, rows: pa.Array) -> pa.Table:
    table = pa.table({"minute": minute, "size": size, "rows": rows})
    found = table.group_by("minute").aggregate([("size", "sum"), ("rows", "sum")])
    return found.select(["minute", "size_sum", "rows_sum"]).rename_columns(["minute", "size", "rows"])


def _amounts_before(minutes: pa.Array, changes: pa.Array) -> Sequence[float]:
    """Return how much there is before each minute, by how much the amount per minute changes at each."""
    gaps = pc.subtract(minutes.slice(1), minutes.slice(0, len(minutes) - 1))
    steps = pc.multiply(pc.cumulative_sum(changes).slice(0, len(gaps)), pc.cast(gaps, pa.float64()))
    return _content(pa.concat_arrays([pa.array([0.0]), pc.cumulative_sum(steps)])).cast("d")


def _minutes(values: pa.ChunkedArray, column: TimeColumn, moment: Callable[[str], datetime]) -> pa.Array:
    """Return the minute in which the moment of each value lies; null where a value does not tell it."""

    @cache
    def minute(value: str) -> int | None:
        try:
            return int(moment(value).timestamp() // _MINUTE)
        except (ValueError, OverflowError):
            return None

    def convert(chunk: pa.Array) -> pa.Array:
        if column.kind == "timestamp":
            with suppress(pa.ArrowInvalid):  # some value is not spelled as Delta does, or does not say its zone
                return _minutes_of_instants(chunk)
        encoded = chunk.dictionary_encode()
        return pa.array(map(minute, encoded.dictionary.to_pylist()), pa.int64()).take(encoded.indices)

    return pa.concat_arrays([pa.array([], pa.int64()), *map(convert, values.chunks)])


def _minutes_of_instants(texts: pa.Array) -> pa.Array:
    micros = pc.cast(pc.cast(pc.cast(texts, pa.timestamp("us", "UTC")), pa.int64()), pa.float64(), safe=False)
    return pc.cast(pc.floor(pc.divide(micros, _MINUTE * 1e6)), pa.int64())


def _content(values: pa.Array) -> memoryview:
    """Return the memory of an array without nulls that begins at its start: a sequence of numbers, without a copy."""
    assert not values.offset
    return memoryview(values.buffers()[1])[: values.nbytes]
