"""JSON as text and back without losing anything: numbers keep the spelling they came with, and no key may occur twice."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

# What handles nested values recurses. A fixed limit far below Python's own gives one result for one input, however deep the
# stack of the caller is.
MAX_DEPTH = 100
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
_quote = json.encoder.encode_basestring
_quote_ascii = json.encoder.encode_basestring_ascii


class Number(str):
    """A number of JSON as it was spelled, which may be one that no type of Python or Arrow can hold; NaN and Infinity too."""

    __slots__ = ()


class BadJson(ValueError):
    """A text that is not JSON, or has a key twice. The message is the reason."""


def load(text: str) -> Any:
    """Return the value of a JSON text, with every number as a `Number`. Raise `BadJson` where it has none."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise BadJson(f"nested more than {MAX_DEPTH} deep")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadJson(f"not JSON: {error.msg} at character {error.pos + 1}") from None


def dump(value: Any) -> str:
    """Return the JSON text of a value: what `load` gave, or what a columnar file contains. A number keeps its spelling."""
    if isinstance(value, Number):
        return f'"{value}"' if value in _NOT_FINITE else str(value)
    if isinstance(value, str):
        return quote(value)
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote(str(key))}: {dump(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return "[" + ", ".join(map(dump, value)) + "]"
    return _dump_other(value)


def quote(text: str) -> str:
    """Return the text as a JSON string. Half a surrogate pair, which UTF-8 cannot hold, is escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _quote_ascii(text)
    return _quote(text)


def _dump_other(value: Any) -> str:
    if isinstance(value, (float, Decimal)):
        return dump(Number(repr(value) if isinstance(value, float) else value)) if _finite(value) else f'"{value}"'
    if isinstance(value, (date, datetime)):
        return quote(value.isoformat())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return quote(base64.b64encode(value).decode())
    return quote(str(value))


def _finite(value: float | Decimal) -> bool:
    return Decimal(value).is_finite()


def _depth(text: str) -> int:
    """Return how deep the brackets of a text are nested, those inside strings left out."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise BadJson(f"duplicate key {quote(next(name for name, count in counts.items() if count > 1))}")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=Number, strict=True
)
