"""Types as Arrow spells them, `str(type)`, which is how the parsers report the values that do not fit the schema."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from oncelake.sources.arrivals.schema_types import MAX_DEPTH, MAX_PRECISION, NAMES, UNSIGNED, UTC_TIMESTAMP, normalize

_ARROW = {
    str(arrow): arrow for arrow in (*NAMES, *UNSIGNED, pa.float16(), pa.date64(), pa.large_string(), pa.large_binary())
}
_ARROW_SCALAR = re.compile(r"[a-z_0-9]+(?:\[[^\[\]]*\]|\([0-9]+, -?[0-9]+\))?")
_ARROW_DECIMAL = re.compile(r"decimal(?:32|64|128|256)\(([0-9]+), (-?[0-9]+)\)")
_ARROW_TIMESTAMP = re.compile(r"timestamp\[(?:s|ms|us|ns)(?:, tz=([^\]]+))?\]")
_ARROW_TEXT = re.compile(r"(?:time(?:32|64)|duration)\[[a-z]+\]|string_view|month_day_nano_interval")


@lru_cache(maxsize=10_000)
def parse_arrow_type(text: str) -> pa.DataType:
    """Return the type of a column for a type spelled as `str(arrow)`; raise ValueError if it cannot be told."""
    found, end = _arrow(text, 0, MAX_DEPTH)
    if end != len(text):
        raise ValueError(f"{text!r} is no type of Arrow")
    return normalize(found)


def _arrow(text: str, at: int, depth: int) -> tuple[pa.DataType, int]:
    if not depth:
        raise ValueError(f"{text[:100]!r} is nested too deeply")
    if text.startswith("struct<", at):
        return _arrow_struct(text, at + len("struct<"), depth)
    if text.startswith("map<", at):
        key, at = _arrow(text, at + len("map<"), depth - 1)
        item, at = _arrow(text, _skip(text, at, ", "), depth - 1)
        at += len(", keys_sorted") if text.startswith(", keys_sorted", at) else 0
        return pa.map_(key, item), _skip(text, at, ">")
    if start := re.compile(r"(?:large_)?list<|fixed_size_list<").match(text, at):
        field, at = _arrow_field(text, start.end(), depth)
        size = re.compile(r">(?:\[[0-9]+\])?").match(text, at)
        return pa.list_(field.type), size.end() if size else _skip(text, at, ">")
    return _arrow_scalar(text, at)


def _arrow_struct(text: str, at: int, depth: int) -> tuple[pa.DataType, int]:
    fields: list[pa.Field] = []
    while not text.startswith(">", at):
        field, at = _arrow_field(text, _skip(text, at, ", ") if fields else at, depth)
        fields.append(field)
    return pa.struct(fields), at + 1


def _arrow_field(text: str, at: int, depth: int) -> tuple[pa.Field, int]:
    # Names are not quoted: a name ends where a type follows, and the sign that ends a field.
    colon = text.find(": ", at)
    while colon >= 0:
        try:
            arrow, end = _arrow(text, colon + 2, depth - 1)
        except ValueError:
            arrow = None
        if arrow is not None:
            end += len(" not null") if text.startswith(" not null", end) else 0
            if text.startswith((", ", ">"), end):
                return pa.field(text[at:colon], arrow), end
        colon = text.find(": ", colon + 1)
    raise ValueError(f"{text[:100]!r} is no type of Arrow")


def _arrow_scalar(text: str, at: int) -> tuple[pa.DataType, int]:
    spelled = _ARROW_SCALAR.match(text, at)
    word = spelled[0] if spelled else ""
    end = at + len(word)
    if word in _ARROW:
        return _ARROW[word], end
    if decimal := _ARROW_DECIMAL.fullmatch(word):
        precision, scale = int(decimal[1]), int(decimal[2])
        return (pa.decimal128(precision, scale) if 0 <= scale <= precision <= MAX_PRECISION else pa.string()), end
    if timestamp := _ARROW_TIMESTAMP.fullmatch(word):
        return (UTC_TIMESTAMP if timestamp[1] else pa.timestamp("us")), end
    if _ARROW_TEXT.fullmatch(word):
        return pa.string(), end
    if word.startswith("fixed_size_binary[") or word == "binary_view":
        return pa.binary(), end
    raise ValueError(f"{text[:100]!r} is no type of Arrow")


def _skip(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise ValueError(f"{text[:100]!r} is no type of Arrow")
    return at + len(sign)
