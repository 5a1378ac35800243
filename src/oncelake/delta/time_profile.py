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

from oncelake.delta.arrays import array_of, scalar_of
from oncelake.delta.files import Files
from oncelake.model.intervals import Interval
from oncelake.model.work import InputSize

if TYPE_CHECKING:
    from oncelake.delta.time_ranges import TimeColumn

# Files are spread over whole minutes: intervals begin at those, and a file whose rows have one time needs some extent.
_MINUTE = 60
_ZERO, _ONE, _FALSE = scalar_of(0, pa.int64()), scalar_of(1, pa.int64()), scalar_of(value=False, type_=pa.bool_())


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
    overlaps = pc.and_(pc.less(start, _float(last)), pc.greater(pc.add(end, _ONE), _float(first)))
    if column.name in files.partitioned_by:
        nothing = scalar_of("", pa.string())
        timeless = pc.equal(pc.fill_null(files.partition(column.name), nothing), nothing)
    else:
        timeless = files.statistics(column.name, column.kind).only_nulls()
    known = pc.fill_null(pc.greater_equal(end, start), _FALSE)
    return pc.if_else(known, overlaps, pc.invert(timeless))


def _float(value: float) -> pa.Scalar:
    return scalar_of(value, pa.float64())


def _between(values: Sequence[float], place: int, share: float) -> float:
    return values[place - 1] + (values[place] - values[place - 1]) * share


def _profile(files: Files, column: TimeColumn) -> TimeProfile:
    start, end = _ranges(files, column)
    by_partition = column.name in files.partitioned_by
    rows = files.statistics(*(() if by_partition else (column.name, column.kind))).rows
    usable = pc.fill_null(pc.greater_equal(end, start), _FALSE)
    start, end = start.filter(usable), pc.add(end.filter(usable), _ONE)
    length = pc.cast(pc.subtract(end, start), pa.float64())
    minutes = pa.concat_arrays([start, end])
    if not len(minutes):
        return TimeProfile([], [], [])
    order = pc.sort_indices(minutes)
    minutes = minutes.take(order)
    # Of the changes in a minute only what they come to counts.
    is_last = pc.not_equal(minutes.slice(0, len(minutes) - 1), minutes.slice(1))
    is_last = pa.concat_arrays([is_last, array_of([True], pa.bool_())])
    amounts = (pa.concat_arrays(each.filter(usable).chunks) for each in (files.sizes, pc.fill_null(rows, _ZERO)))
    rates = [_rates(amount, length, order).filter(is_last) for amount in amounts]
    minutes = minutes.filter(is_last)
    return TimeProfile(_content(minutes).cast("q"), *(_amounts_before(minutes, rate) for rate in rates))


def _ranges(files: Files, column: TimeColumn) -> tuple[pa.Array, pa.Array]:
    """Return the first and the last minute of each file; null where it does not tell them."""
    if column.name in files.partitioned_by:
        least = most = files.partition(column.name)
    else:
        found = files.statistics(column.name, column.kind)
        least, most = found.least, found.most
    return _minutes(least, column, column.first), _minutes(most, column, column.last)


def _rates(amount: pa.Array, length: pa.Array, order: pa.Array) -> pa.Array:
    """Return the amount per minute from each start and end on: a file adds its own at its start and takes it away at its end."""
    rate = pc.divide(amount, length)
    return pc.cumulative_sum(pa.concat_arrays([rate, pc.negate(rate)]).take(order))


def _amounts_before(minutes: pa.Array, rates: pa.Array) -> Sequence[float]:
    """Return how much there is before each minute."""
    gaps = pc.subtract(minutes.slice(1), minutes.slice(0, len(minutes) - 1))
    steps = pc.multiply(rates.slice(0, len(gaps)), pc.cast(gaps, pa.float64()))
    return _content(pa.concat_arrays([array_of([0.0], pa.float64()), pc.cumulative_sum(steps)])).cast("d")


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
        return array_of(map(minute, encoded.dictionary.to_pylist()), pa.int64()).take(encoded.indices)

    return pa.concat_arrays([pa.nulls(0, pa.int64()), *map(convert, values.chunks)])


def _minutes_of_instants(texts: pa.Array) -> pa.Array:
    micros = pc.cast(pc.cast(pc.cast(texts, pa.timestamp("us", "UTC")), pa.int64()), pa.float64(), safe=False)
    return pc.cast(pc.floor(pc.divide(micros, _float(_MINUTE * 1e6))), pa.int64())


def _content(values: pa.Array) -> memoryview:
    """Return the memory of an array without nulls that begins at its start: a sequence of numbers, without a copy."""
    assert not values.offset
    return memoryview(values.buffers()[1])[: values.nbytes]
