"""Dates and timestamps of Arrow, whose range is wider than the years that are accepted."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = date(1970, 1, 1)
_DAYS = ((date.min - _EPOCH).days, (date.max - _EPOCH).days + 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INT64 = (-(1 << 63), (1 << 63) - 1)


def is_moment(type_: pa.DataType) -> bool:
    """Say whether a type is a date or a timestamp."""
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def raw_integers(array: pa.Array) -> pa.Array:
    """Return the numbers by which dates or timestamps are stored."""
    return array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).cast(pa.int64())


def per_day(type_: pa.DataType) -> int:
    """Return how many units of a type make a day."""
    if pa.types.is_date(type_):
        return 1 if pa.types.is_date32(type_) else 86_400_000
    return int(86_400 * _UNITS[type_.unit])


def has_year(array: pa.Array) -> pa.Array:
    """Say for each date or timestamp whether its year is one from 1 to 9999. Null gives null."""
    units = per_day(array.type)
    first, end = (min(max(days * units, _INT64[0]), _INT64[1]) for days in _DAYS)
    numbers = raw_integers(array)
    before_end = pc.less_equal(numbers, end) if end == _INT64[1] else pc.less(numbers, end)
    return pc.and_(pc.greater_equal(numbers, first), before_end)
