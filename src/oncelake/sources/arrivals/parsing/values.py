"""Convert one value to an Arrow type without any loss, or say why it cannot be done. Nothing is rounded, truncated or guessed."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa

from oncelake.sources.arrivals.parsing.json_text import BadJson, Number, dump, load
from oncelake.sources.arrivals.parsing.names import NO_SUCH_COLUMN, FieldNames
from oncelake.sources.arrivals.parsing.number_text import (
    INTEGER,
    LEADING_ZERO,
    NUMBER,
    PADDED,
    digits,
    integer_within,
    number_text,
    why_not_number,
)
from oncelake.sources.arrivals.parsing.times import is_text, to_date, to_instant, to_local_timestamp
from oncelake.sources.arrivals.parsing.value_types import type_of, type_of_text

__all__ = [
    "NO_SUCH_COLUMN",
    "Converted",
    "Converter",
    "convert",
    "convert_text",
    "converter",
    "present_converter",
    "text_converter",
    "type_of",
    "type_of_text",
]

Converted = tuple[Any, str | None]
Converter = Callable[[Any], Converted]

# What JSON has beside text. Strings are no numbers of ours: those are `Number`.
_JSON = (Number, bool, dict, list)
# What Avro has, and no type of Delta.
_WRITTEN_AS_TEXT = (UUID, time, timedelta)
_TRUTH = {"true": True, "false": False}


def convert(value: Any, type_: pa.DataType) -> Converted:
    """Return a value of JSON (see `json_text.load`) or of Python as the type holds it, and None; or None and the reason."""
    return converter(type_)(value)


def convert_text(text: str, type_: pa.DataType) -> Converted:
    """Return what a text, such as a field of CSV, means in the type, and None; or None and the reason why it means nothing.

    Spaces around anything but strings are ignored. Which texts mean null is for the caller to say.
    """
    return text_converter(type_)(text)


@lru_cache(maxsize=1024)
def converter(type_: pa.DataType) -> Converter:
    """Return the function that converts values of JSON or of Python to the type."""
    convert_present = present_converter(type_)
    return lambda value: (None, None) if value is None else convert_present(value)


@lru_cache(maxsize=1024)
def text_converter(type_: pa.DataType) -> Converter:
    """Return the function that converts texts to the type."""
    convert_value = converter(type_)
    if pa.types.is_string(type_):
        return convert_value
    if pa.types.is_boolean(type_):
        return _bool_of_text
    if pa.types.is_nested(type_):
        return lambda text: _nested_of_text(text, convert_value)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return lambda text: convert_value(Number(text.strip()))
    return lambda text: convert_value(text.strip())


@lru_cache(maxsize=1024)
def present_converter(type_: pa.DataType) -> Converter:
    """Return the function that converts values of JSON or of Python that are not null to the type."""
    if pa.types.is_decimal128(type_):
        return lambda value: _decimal(value, type_.precision, type_.scale)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return to_instant if type_.tz else to_local_timestamp
    if pa.types.is_list(type_):
        return _list_converter(type_)
    if pa.types.is_struct(type_):
        return _struct_converter(type_)
    if pa.types.is_map(type_) and pa.types.is_string(type_.key_type):
        return _map_converter(type_)
    if pa.types.is_signed_integer(type_):
        return lambda value: _integer(value, 1 << (type_.bit_width - 1), str(type_))
    unsupported = f"type {type_} is not supported"
    return _SCALARS.get(type_, lambda _: (None, unsupported))


def _string(value: Any) -> Converted:
    if type(value) is str and value.isascii():
        return value, None
    if isinstance(value, _JSON):
        # What is no text is kept as it was spelled, as Spark does.
        return (str(value) if isinstance(value, Number) else dump(value)), None
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value), None
    if not is_text(value):
        return None, f"{_kind(value)}, not text"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return None, "half of a surrogate pair"
    return value, None


def _bool(value: Any) -> Converted:
    return (value, None) if isinstance(value, bool) else (None, "not a boolean")


def _bool_of_text(text: str) -> Converted:
    truth = _TRUTH.get(text.strip().lower())
    return truth, None if truth is not None else "not a boolean"


def _integer(value: Any, limit: int, name: str) -> Converted:
    text = number_text(value)
    if text is None or not INTEGER.fullmatch(text):
        return None, why_not_number(text, "an integer")
    if PADDED.match(text):
        return None, LEADING_ZERO
    number = integer_within(text, limit)
    return number, None if number is not None else f"out of range of {name}"


def _decimal(value: Any, precision: int, scale: int) -> Converted:
    # Exact amounts are often sent as text, because many producers can only print doubles as numbers.
    text = value.strip() if is_text(value) else number_text(value)
    if text is None or not NUMBER.fullmatch(text):
        return None, why_not_number(text, "a number")
    if PADDED.match(text):
        return None, LEADING_ZERO
    sign, shown, power = digits(text)
    if len(shown) + power > precision - scale:
        return None, f"out of range of decimal({precision}, {scale})"
    if -power > scale:
        return None, f"decimal with more than {scale} fractional digits"
    return Decimal(f"{sign}{shown or 0}E{power}"), None


def _double(value: Any) -> Converted:
    return _floating(value, float, "double")


def _float(value: Any) -> Converted:
    return _floating(value, _nearest_float32, "float")


def _nearest_float32(text: str) -> float:
    # By way of float64 it would be rounded twice. Arrow rounds once, in a cast as in its readers.
    number: float = pa.scalar(text.lstrip("+")).cast(pa.float32()).as_py()
    return number


def _floating(value: Any, nearest: Callable[[str], float], name: str) -> Converted:
    if isinstance(value, float) and not math.isfinite(value):
        return value, None  # of a format that has such numbers
    text = number_text(value)
    if text is None or not NUMBER.fullmatch(text):
        return None, why_not_number(text, "a number")
    if PADDED.match(text):
        return None, LEADING_ZERO
    try:
        number = nearest(text)
    except pa.ArrowInvalid:
        number = math.inf
    if math.isinf(number):
        return None, f"out of range of {name}"
    if number == 0 and digits(text)[1]:
        return None, f"too small for {name}"
    if INTEGER.fullmatch(text) and not _is_exact(text, number):
        return None, f"integer with more digits than {name} holds"
    return number, None


def _is_exact(text: str, number: float) -> bool:
    """Say whether an integer is the number, or how the number is printed: JavaScript prints 2**70 as 1180591620717411300000."""
    return len(text) < 8 or Decimal(text) in (Decimal(number), Decimal(repr(number)))


def _binary(value: Any) -> Converted:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), None
    try:
        return (base64.b64decode(value, validate=True), None) if is_text(value) else (None, "not base64")
    except (binascii.Error, ValueError):
        return None, "not base64"


_SCALARS: dict[pa.DataType, Converter] = {
    pa.bool_(): _bool,
    pa.string(): _string,
    pa.binary(): _binary,
    pa.date32(): to_date,
    pa.float32(): _float,
    pa.float64(): _double,
}


def _list_converter(type_: pa.DataType) -> Converter:
    convert_item = converter(type_.value_type)

    def convert_list(value: Any) -> Converted:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
            return None, "not a list"
        items = [convert_item(item) for item in value]
        problem = next((f"item {at}: {reason}" for at, (_, reason) in enumerate(items, 1) if reason), None)
        return (None, problem) if problem else ([item for item, _ in items], None)

    return convert_list


def _map_converter(type_: pa.DataType) -> Converter:
    convert_key, convert_item = converter(type_.key_type), converter(type_.item_type)

    def convert_map(value: Any) -> Converted:
        if not isinstance(value, Mapping):
            return None, "not an object"
        entries = [(convert_key(key), convert_item(item)) for key, item in value.items()]
        problem = next((f"entry {at}: {why}" for at, pair in enumerate(entries, 1) for _, why in pair if why), None)
        return (None, problem) if problem else ([(key, item) for (key, _), (item, _) in entries], None)

    return convert_map


def _struct_converter(type_: pa.DataType) -> Converter:
    names = FieldNames(field.name for field in type_)
    converters = {field.name: converter(field.type) for field in type_}

    def convert_struct(value: Any) -> Converted:
        if not isinstance(value, Mapping):
            return None, "not an object"
        matched, unmatched = names.match(value)
        if unmatched:
            # A struct is taken whole or not at all: a part of it in the column and a part in rescue could not be read as one.
            return None, "field {}: {}".format(*next(iter(unmatched.items())))
        fields = {name: converters[name](value[given]) for name, given in matched.items()}
        problem = next((f"field {name}: {reason}" for name, (_, reason) in fields.items() if reason), None)
        return (None, problem) if problem else ({name: field for name, (field, _) in fields.items()}, None)

    return convert_struct


def _nested_of_text(text: str, convert_value: Converter) -> Converted:
    try:
        return convert_value(load(text))
    except BadJson as error:
        return None, str(error)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (Number, int, float, Decimal)):
        return "a number"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    return "an object" if isinstance(value, Mapping) else "a list" if isinstance(value, Sequence) else "a time"
