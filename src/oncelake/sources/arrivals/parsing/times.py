"""Dates and timestamps from text in ISO 8601, from year 1 to 9999. A number is never taken for a time."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

from oncelake.sources.arrivals.parsing.json_text import Number

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def is_text(value: Any) -> bool:
    """Say whether a value is text, and not a number that is kept as text."""
    return isinstance(value, str) and not isinstance(value, Number)


def to_date(value: Any) -> tuple[date | None, str | None]:
    """Return the date that a value means, or the reason why it means none."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value, None
    if not is_text(value) or not _DATE.fullmatch(value):
        return None, "not a date"
    try:
        return date.fromisoformat(value), None
    except ValueError:
        return None, "no such date"


def to_instant(value: Any) -> tuple[datetime | None, str | None]:
    """Return the instant that a value means, in UTC, or the reason why it means none. Without a zone it is UTC."""
    moment, reason = _moment(value)
    if moment is None:
        return None, reason
    try:
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC), None
    except OverflowError:
        return None, "out of range of timestamp"


def to_local_timestamp(value: Any) -> tuple[datetime | None, str | None]:
    """Return the date and time without a zone that a value means, or the reason why it means none."""
    moment, reason = _moment(value)
    return (None, "timestamp with a time zone") if moment is not None and moment.tzinfo else (moment, reason)


def _moment(value: Any) -> tuple[datetime | None, str | None]:
    """Return the date and time that a value means, with its zone if it has one."""
    if isinstance(value, datetime):
        return value, None
    parts = _TIMESTAMP.fullmatch(value) if is_text(value) else None
    if parts is None:
        return None, "not a timestamp"
    day, hour, minute, second, fraction, zone = parts.groups()
    fraction = (fraction or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        return None, "timestamp with more than 6 fractional digits"
    try:
        clock = f"{hour or '00'}:{minute or '00'}:{second or '00'}.{fraction[:6]}"
        return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=_zone(zone)), None
    except ValueError:
        return None, "no such date or time"


def _zone(text: str | None) -> timezone | None:
    if text is None or text == "Z":
        return UTC if text else None
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > 3 else 0
    if minutes > 59:
        raise ValueError(text)
    return timezone(timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1))
