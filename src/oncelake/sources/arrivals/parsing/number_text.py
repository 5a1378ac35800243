"""Numbers by their text: what is spelled out is compared with what a type holds before anything is converted."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.json_text import Number

INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
# A code like 08001 is no number: as one it would lose its zero.
PADDED = re.compile(r"[+-]?0[0-9]")
LEADING_ZERO = "a leading zero, which a number does not keep"
_NOT_FINITE = re.compile(r"[+-]?(nan|inf(inity)?)", re.IGNORECASE)


def number_text(value: Any) -> str | None:
    """Return how a number is spelled, or None for what is no number."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    return str(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None


def why_not_number(text: str | None, expected: str) -> str:
    """Return the reason why a text does not fit where a finite number is expected."""
    return "not finite" if text and _NOT_FINITE.fullmatch(text) else f"not {expected}"


def digits(text: str) -> tuple[str, str, int]:
    """Return the sign of a number, its digits without zeros at either end, and the power of ten they are multiplied by.

    It works on text because 1e999999999 has few digits only as long as nobody expands it.
    """
    parts = NUMBER.fullmatch(text)
    assert parts is not None
    sign, whole, fraction, only_fraction, power = parts.groups(default="")
    fraction = fraction or only_fraction
    from_first = (whole + fraction).lstrip("0")
    stripped = from_first.rstrip("0")
    if not stripped:
        return "", "", 0
    # Powers of more than nine digits are all alike: far out of any range.
    ten = int(power or 0) if len(power) < 10 else 10**9 * (-1 if power.startswith("-") else 1)
    return sign.strip("+"), stripped, ten - len(fraction) + len(from_first) - len(stripped)


def integer_within(text: str, limit: int) -> int | None:
    """Return the integer that a text spells if it is at least -limit and less than limit."""
    # Python refuses to convert thousands of digits, and nothing that long is in any range, unless they are zeros.
    if len(text) > 40:
        sign, shown, power = digits(text)
        if len(shown) + power > 40:
            return None
        text = f"{sign}{shown or 0}{'0' * power}"
    number = int(text)
    return number if -limit <= number < limit else None


def number_type(text: str, current: pa.DataType | None) -> pa.DataType:
    """Return the type that holds the number that a text spells, in a column whose type is `current`."""
    if not NUMBER.fullmatch(text):
        return pa.float64()  # NaN, infinity
    _, shown, power = digits(text)
    whole, fraction = max(len(shown) + power, 0), max(-power, 0)
    if current is not None and pa.types.is_decimal(current):
        scale = max(fraction, current.scale)
        precision = max(whole, current.precision - current.scale) + scale
        return pa.decimal128(precision, scale) if precision <= 38 else pa.float64()
    if INTEGER.fullmatch(text):
        return _integer_type(text, whole, current)
    return _floating_type(whole, current)


def _floating_type(whole: int, current: pa.DataType | None) -> pa.DataType:
    return pa.float32() if current == pa.float32() and whole <= 38 else pa.float64()


def _integer_type(text: str, whole: int, current: pa.DataType | None) -> pa.DataType:
    if integer_within(text, 1 << 63) is None:
        return pa.decimal128(38, 0) if whole <= 38 else pa.float64()
    if current is not None and pa.types.is_floating(current):
        return _floating_type(whole, current)
    if (
        current is not None
        and pa.types.is_integer(current)
        and integer_within(text, 1 << (current.bit_width - 1)) is not None
    ):
        return current
    return pa.int64()
