"""The values of any Arrow array as JSON texts, for what is rescued of columnar files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.json_text import dump
from oncelake.sources.arrivals.parsing.rescue import json_strings
from oncelake.sources.arrivals.parsing.temporal_arrays import has_year, is_moment, raw_integers

_STRING = pa.string()
_NO_TEXT = pa.scalar(None, _STRING)


def json_values(array: pa.Array) -> pa.Array:
    """Return each value as the text of its JSON. Null stays null; bytes are base64, and a time that has no year is its number."""
    type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(_STRING)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return array.cast(_STRING)
    if pa.types.is_floating(type_):
        texts = array.cast(_STRING)
        return pc.if_else(pc.is_finite(array), texts, json_strings(texts))
    if is_moment(type_):
        return _moments(array)
    if pa.types.is_string(type_) or pa.types.is_time(type_):
        return json_strings(array.cast(_STRING))
    if pa.types.is_nested(type_):
        return _dumped(array if _plain(type_) == type_ else _cast_nested(array))
    return _dumped(array)


def _moments(array: pa.Array) -> pa.Array:
    known = has_year(array)
    if pc.all(known).as_py() is not False:
        return json_strings(array.cast(_STRING))
    safe = pc.if_else(known, array, pa.scalar(None, array.type)).cast(_STRING)
    return pc.if_else(known, json_strings(safe), raw_integers(array).cast(_STRING))


def _dumped(array: pa.Array) -> pa.Array:
    return pa.array([None if value is None else dump(value) for value in array.to_pylist()], _STRING)


def _cast_nested(array: pa.Array) -> pa.Array:
    """Return nested values with times as texts: Python has neither nanoseconds nor years after 9999."""
    return array.cast(_plain(array.type))


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_type), _plain(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain(type_.value_type))
    return _STRING if is_moment(type_) or pa.types.is_duration(type_) or pa.types.is_time(type_) else type_
