"""The type that would hold a value that did not fit: what drift is reported as."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.json_text import Number
from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.number_text import NUMBER, number_text, number_type
from oncelake.sources.arrivals.parsing.times import to_date, to_instant

_SPELLED_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def type_of(value: Any, current: pa.DataType | None = None) -> pa.DataType:
    """Return the type that holds a value of JSON or Python: for a column whose type is `current`, one that is near to it."""
    if value is None:
        return pa.null() if current is None else current
    if isinstance(value, Mapping):
        return (
            _map_of(value, current) if current is not None and pa.types.is_map(current) else _struct_of(value, current)
        )
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return pa.list_(
            _common(value, current.value_type if current is not None and pa.types.is_list(current) else None)
        )
    if isinstance(value, str) and not isinstance(value, Number):
        return _string_type(value, current)
    text = number_text(value)
    return number_type(text, current) if text is not None else _plain_type(value)


def type_of_text(text: str, current: pa.DataType | None = None) -> pa.DataType:
    """Return the type that a text, such as a field of CSV, is spelled like. What a type would spell otherwise is a string."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return pa.bool_()
    if _SPELLED_NUMBER.fullmatch(text):
        return number_type(text, current)
    if to_date(text)[1] is None:
        return pa.date32()
    return pa.timestamp("us", tz="UTC") if to_instant(text)[1] is None else pa.string()


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of two types: of numbers the wider one, of all else that differs a string."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(common_type(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _merge_structs(one, other)
    if _is_number(one) and _is_number(other):
        return pa.float64() if pa.types.is_floating(one) or pa.types.is_floating(other) else _exact_type(one, other)
    return pa.string()


def _plain_type(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, datetime):
        return pa.timestamp("us", tz="UTC" if value.tzinfo else None)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return pa.binary()
    return pa.date32() if isinstance(value, date) else pa.string()


def _string_type(text: str, current: pa.DataType | None) -> pa.DataType:
    """Return `current` for a text that means a value of it, so that a good field of a bad struct keeps its type."""
    if current is None:
        return pa.string()
    date_like = pa.types.is_date(current) and to_date(text)[1] is None
    time_like = pa.types.is_timestamp(current) and to_instant(text)[1] is None
    if date_like or time_like or pa.types.is_binary(current):
        return current
    return number_type(text, current) if pa.types.is_decimal(current) and NUMBER.fullmatch(text) else pa.string()


def _struct_of(value: Mapping[Any, Any], current: pa.DataType | None) -> pa.DataType:
    known = {field.name: field.type for field in current} if current is not None and pa.types.is_struct(current) else {}
    matched, unmatched = FieldNames(known).match(map(str, value))
    changed = {column: type_of(value[name], known[column]) for column, name in matched.items()}
    return pa.struct(list({**known, **changed, **{name: type_of(value[name]) for name in unmatched}}.items()))


def _map_of(value: Mapping[Any, Any], current: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), _common(list(value.values()), current.item_type))


def _common(values: Sequence[Any], current: pa.DataType | None) -> pa.DataType:
    found = pa.null() if current is None else current
    for value in values:
        found = common_type(found, type_of(value, current))
    return found


def _merge_structs(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    fields = {field.name: field.type for field in one}
    for field in other:
        fields[field.name] = common_type(fields.get(field.name, pa.null()), field.type)
    return pa.struct(list(fields.items()))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _exact_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the wider of two types that are integers or decimals."""
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return one if one.bit_width >= other.bit_width else other
    (p1, s1), (p2, s2) = _precision(one), _precision(other)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else pa.float64()


def _precision(type_: pa.DataType) -> tuple[int, int]:
    return (type_.precision, type_.scale) if pa.types.is_decimal(type_) else (len(str(1 << (type_.bit_width - 1))), 0)
