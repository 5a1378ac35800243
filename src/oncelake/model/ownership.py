"""Row filters: the values of some columns whose rows one pipeline owns (`within={"region": "EU"}`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

RowFilter = Mapping[str, Any]

# Text that Spark may cast to the type of a column; two spellings of one value are then equal.
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[bdflsy]*|[+-]?(nan|inf|infinity)"
_TIME = r"[+-]?\d{4,}(-\d{1,2}){0,2}([t ].*)?|\d{1,2}:.*"
_CASTABLE = re.compile(rf"{_NUMBER}|{_TIME}|t|true|y|yes|f|false|n|no")
# Spellings of which each value has one.
_CANONICAL = (re.compile(r"0|-?[1-9]\d{0,14}"), re.compile(r"\d{4}-\d\d-\d\d"))


def values(wanted: Any) -> set[Any]:
    """Return the values that a row filter names for a column: one, or several in a list."""
    return set(wanted) if isinstance(wanted, list | tuple | set | frozenset) else {wanted}


def disjoint(one: RowFilter, other: RowFilter) -> bool:
    """Return whether certainly no row matches both filters, whatever types the columns have."""
    shared = one.keys() & other.keys()
    return any(all(_differ(a, b) for a in values(one[c]) for b in values(other[c])) for c in shared)


def _differ(one: Any, other: Any) -> bool:
    """Return whether no value of a column equals both literals, after the casts by which Spark compares them."""
    if one is None or other is None:
        return one is not other
    if type(one) is not type(other) or one == other:
        return False
    if isinstance(one, str):
        return _texts_differ(*(text.strip().casefold() for text in (one, other)))
    if isinstance(one, int | float | Decimal):
        # As doubles, the widest type they are compared in; not-a-number equals itself in Spark, so it never differs.
        return abs(float(Decimal(one)) - float(Decimal(other))) > 0
    return not isinstance(one, datetime) or (one.tzinfo is None) == (other.tzinfo is None)


def _texts_differ(one: str, other: str) -> bool:
    if not (_CASTABLE.fullmatch(one) and _CASTABLE.fullmatch(other)):
        return one != other
    return one != other and any(spelling.fullmatch(one) and spelling.fullmatch(other) for spelling in _CANONICAL)
