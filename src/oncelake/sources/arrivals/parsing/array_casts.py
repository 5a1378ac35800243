"""Convert Arrow arrays to the types of a schema without any loss. A value that does not fit is null, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.temporal_arrays import has_year, per_day, raw_integers
from oncelake.sources.arrivals.parsing.values import converter

# The values, and for each that is lost the reason; None if none is.
Cast = tuple[pa.Array, pa.Array | None]

_NO_TEXT = pa.scalar(None, pa.string())
# Integers up to these are exact.
_EXACT = {pa.float32(): 1 << 24, pa.float64(): 1 << 53}


def cast_array(array: pa.Array, type_: pa.DataType) -> Cast:
    """Return the values of an array in a type, and the reasons for those that it cannot hold."""
    if array.null_count == len(array):
        return pa.nulls(len(array), type_), None
    for is_kind, cast in _KINDS:
        if is_kind(type_):
            return cast(array, type_)
    return _refuse(array, type_, f"type {type_} is not supported")


def plain_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return an array without dictionaries, views and large offsets at its top."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return plain_array(array.cast(type_.value_type))
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return array.cast(pa.string())
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_) or type_ == pa.binary_view():
        return array.cast(pa.binary())
    if pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return array.cast(pa.list_(type_.value_type))
    return array


def _refuse(array: pa.Array, type_: pa.DataType, reason: str | None = None) -> Cast:
    """Return no values, and the same reason for all."""
    reasons = pc.if_else(pc.is_valid(array), reason or f"{array.type}, not {type_}", _NO_TEXT)
    return pa.nulls(len(array), type_), reasons


def _select(array: pa.Array, fits: pa.Array, reason: str | pa.Array, cast: Callable[[pa.Array], pa.Array]) -> Cast:
    """Return the values that fit, cast, and the reason for the others."""
    if pc.all(fits).as_py() is not False:
        return cast(array), None
    values = pc.if_else(fits, array, pa.scalar(None, array.type))
    return cast(values), pc.if_else(fits, _NO_TEXT, reason)


def _to_bool(array: pa.Array, type_: pa.DataType) -> Cast:
    return (array, None) if pa.types.is_boolean(array.type) else _refuse(array, type_, "not a boolean")


def _to_integer(array: pa.Array, type_: pa.DataType) -> Cast:
    limit = 1 << (type_.bit_width - 1)
    out_of_range = f"out of range of {type_}"
    if pa.types.is_integer(array.type):
        return _select(array, _within(array, -limit, limit - 1), out_of_range, lambda values: values.cast(type_))
    if pa.types.is_floating(array.type):
        return _whole_floats(array.cast(pa.float64()), type_)
    if pa.types.is_decimal(array.type):
        return _each(array, type_, lambda value: _whole_decimal(value, limit, out_of_range))
    return _refuse(array, type_, "not an integer")


def _whole_floats(array: pa.Array, type_: pa.DataType) -> Cast:
    """Return doubles as integers if they are some: pandas makes doubles of integers as soon as one is null."""
    limit = min(1 << (type_.bit_width - 1), _EXACT[pa.float64()])
    whole = pc.and_(pc.is_finite(array), pc.equal(pc.trunc(array), array))
    fits = pc.and_(whole, pc.and_(pc.greater_equal(array, float(-limit)), pc.less(array, float(limit))))
    reason = pc.if_else(whole, f"out of range of {type_}", "not an integer")
    return _select(array, fits, reason, lambda values: values.cast(type_))


def _whole_decimal(value: Decimal, limit: int, out_of_range: str) -> tuple[int | None, str | None]:
    if value != value.to_integral_value():
        return None, "not an integer"
    return (int(value), None) if -limit <= value < limit else (None, out_of_range)


def _to_float(array: pa.Array, type_: pa.DataType) -> Cast:
    if array.type == type_:
        return array, None
    if pa.types.is_integer(array.type):
        reason = f"integer with more digits than {type_} holds"
        fits = _within(array, -_EXACT[type_], _EXACT[type_])
        return _select(array, fits, reason, lambda values: values.cast(type_))
    if not pa.types.is_floating(array.type):
        return _refuse(array, type_)
    array = array.cast(pa.float64())
    narrow = array.cast(type_)
    same = pc.or_(pc.equal(narrow.cast(pa.float64()), array), pc.is_nan(array))
    return _select(array, same, f"more digits than {type_} holds", lambda values: values.cast(type_))


def _to_decimal(array: pa.Array, type_: pa.DataType) -> Cast:
    if pa.types.is_integer(array.type):
        limit = 10 ** (type_.precision - type_.scale)
        wide = pa.decimal128(20, 0)
        reason = f"out of range of decimal({type_.precision}, {type_.scale})"
        return _select(array, _within(array, 1 - limit, limit - 1), reason, lambda some: some.cast(wide).cast(type_))
    if not pa.types.is_decimal(array.type) and not pa.types.is_string(array.type):
        return _refuse(array, type_)
    if pa.types.is_decimal(array.type):
        try:
            return array.cast(type_), None
        except pa.ArrowInvalid:
            pass
    return _each(array, type_, converter(type_))


def _to_string(array: pa.Array, type_: pa.DataType) -> Cast:
    if pa.types.is_string(array.type):
        return array, None
    if pa.types.is_time(array.type):
        return array.cast(type_), None
    if pa.types.is_duration(array.type):
        return _each(array, type_, lambda value: (str(value), None))
    return _each(array, type_, _decode) if pa.types.is_binary(array.type) else _refuse(array, type_)


def _decode(value: bytes) -> tuple[str | None, str | None]:
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return None, "invalid UTF-8"


def _to_binary(array: pa.Array, type_: pa.DataType) -> Cast:
    known = pa.types.is_binary(array.type) or pa.types.is_string(array.type)
    return (array.cast(type_), None) if known else _refuse(array, type_)


def _to_date(array: pa.Array, type_: pa.DataType) -> Cast:
    if pa.types.is_string(array.type):
        return _each(array, type_, converter(type_))
    if not pa.types.is_date(array.type):
        return _refuse(array, type_, f"{array.type}, not a date")
    if pa.types.is_date64(array.type):
        days = _divisible(array, per_day(array.type))
        return _select(array, pc.and_(days, has_year(array)), "not a date", lambda values: values.cast(type_))
    return _select(array, has_year(array), "days since 1970-01-01, out of range of date", lambda values: values)


def _to_timestamp(array: pa.Array, type_: pa.DataType) -> Cast:
    if pa.types.is_string(array.type):
        return _each(array, type_, converter(type_))
    if not pa.types.is_timestamp(array.type):
        return _refuse(array, type_, f"{array.type}, not a timestamp")
    if array.type.tz and not type_.tz:
        return _refuse(array, type_, "timestamp with a time zone")
    fits = has_year(array)
    reason: Any = f"{array.type.unit} since 1970-01-01, out of range of timestamp"
    if array.type.unit == "ns":
        fits = _divisible(array, 1000)
        reason = "timestamp with more than 6 fractional digits"
    # Without a zone it is UTC.
    return _select(array, fits, reason, lambda values: values.cast(pa.timestamp("us", tz=array.type.tz)).cast(type_))


def _to_list(array: pa.Array, type_: pa.DataType) -> Cast:
    if not pa.types.is_list(array.type):
        return _refuse(array, type_, "not a list")
    items, reasons = cast_array(plain_array(array.flatten()), type_.value_type)
    failed = _of_parents(reasons, pc.list_parent_indices(array), len(array), "item")
    offsets = _offsets(array)
    return pa.ListArray.from_arrays(offsets, items, type=type_, mask=_missing(array, failed)), failed


def _to_map(array: pa.Array, type_: pa.DataType) -> Cast:
    if not pa.types.is_map(array.type):
        return _refuse(array, type_, "not a map")
    entries = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    keys, key_reasons = cast_array(plain_array(entries.flatten().field("key")), type_.key_type)
    items, item_reasons = cast_array(plain_array(entries.flatten().field("value")), type_.item_type)
    failed = _of_parents(_first(key_reasons, item_reasons), pc.list_parent_indices(entries), len(array), "entry")
    missing = _missing(array, failed)
    if key_reasons is not None:
        # A key cannot be null, so the entries of what failed must go.
        kept = pc.if_else(missing, pa.scalar(None, array.type), array)
        return _to_map(kept, type_)[0], failed
    return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=type_, mask=missing), failed


def _to_struct(array: pa.Array, type_: pa.DataType) -> Cast:
    if not pa.types.is_struct(array.type):
        return _refuse(array, type_, "not a struct")
    given = {each.name: plain_array(child) for each, child in zip(array.type, array.flatten(), strict=True)}
    if len(given) < array.type.num_fields:
        return _refuse(array, type_, "two fields of one name")
    matched, unmatched = FieldNames([each.name for each in type_]).match(given)
    failed = None
    for name, reason in unmatched.items():
        failed = _first(failed, pc.if_else(pc.is_valid(given[name]), f"field {name}: {reason}", _NO_TEXT))
    children = []
    for each in type_:
        child = given[matched[each.name]] if each.name in matched else pa.nulls(len(array), each.type)
        child, reasons = cast_array(child, each.type)
        children.append(child)
        prefixed = None if reasons is None else pc.binary_join_element_wise(f"field {each.name}: ", reasons, "")
        failed = _first(failed, prefixed)
    failed = None if failed is None or failed.null_count == len(failed) else failed
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=_missing(array, failed)), failed


def _each(array: pa.Array, type_: pa.DataType, convert: Callable[[Any], tuple[Any, str | None]]) -> Cast:
    """Convert each different value once, by a function."""
    encoded = array.dictionary_encode()
    results = [convert(value) for value in encoded.dictionary.to_pylist()]
    values = pa.array([value for value, _ in results], type_).take(encoded.indices)
    reasons = pa.array([reason for _, reason in results], pa.string())
    return values, reasons.take(encoded.indices) if reasons.null_count < len(reasons) else None


def _within(integers: pa.Array, least: int, most: int) -> pa.Array:
    """Say which integers are within a range, which may be wider than their type."""
    bits, signed = integers.type.bit_width, pa.types.is_signed_integer(integers.type)
    lowest, highest = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    least, most = max(least, lowest), min(most, highest)
    if (least, most) == (lowest, highest):
        return pc.if_else(pc.is_valid(integers), True, pa.scalar(None, pa.bool_()))  # noqa: FBT003
    above = pc.greater_equal(integers, pa.scalar(least, integers.type))
    return pc.and_(above, pc.less_equal(integers, pa.scalar(most, integers.type)))


def _divisible(moments: pa.Array, number: int) -> pa.Array:
    integers = raw_integers(moments)
    return pc.equal(pc.multiply(pc.divide(integers, number), number), integers)


def _first(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    """Return for each value the first reason that there is."""
    if one is None or other is None:
        return other if one is None else one
    return pc.coalesce(one, other)


def _of_parents(reasons: pa.Array | None, parents: pa.Array, length: int, what: str) -> pa.Array | None:
    """Return for each list the reason of its first item that has one."""
    if reasons is None:
        return None
    found: list[str | None] = [None] * length
    pairs = zip(parents.filter(pc.is_valid(reasons)).to_pylist(), reasons.drop_null().to_pylist(), strict=True)
    for parent, reason in pairs:
        found[parent] = found[parent] or f"{what}: {reason}"
    return pa.array(found, pa.string())


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where each list starts among the items, which have no gaps."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _missing(array: pa.Array, failed: pa.Array | None) -> pa.Array:
    missing = pc.is_null(array)
    return missing if failed is None else pc.or_(missing, pc.is_valid(failed))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], Cast]], ...] = (
    (pa.types.is_boolean, _to_bool),
    (pa.types.is_signed_integer, _to_integer),
    (lambda type_: type_ in _EXACT, _to_float),
    (pa.types.is_decimal128, _to_decimal),
    (pa.types.is_string, _to_string),
    (pa.types.is_binary, _to_binary),
    (pa.types.is_date32, _to_date),
    (lambda type_: pa.types.is_timestamp(type_) and type_.unit == "us", _to_timestamp),
    (pa.types.is_list, _to_list),
    (pa.types.is_map, _to_map),
    (pa.types.is_struct, _to_struct),
)
