"""Convert columns of text, many values at a time: Arrow casts what it certainly reads as `convert_text` does, which reads the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.value_types import type_of_text
from oncelake.sources.arrivals.parsing.values import text_converter

_NO_TEXT = pa.scalar(None, pa.string())
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_FRACTION = r"^-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,15})?$"
_PADDED = r"^[+-]?0[0-9]"
_TIMESTAMP = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
# Below the first integers are exact; what is above the second is no number that became zero.
_LIMITS = {pa.float64(): (1e15, 1e-300), pa.float32(): (1e7, 1e-30)}
_ZEROS = pa.array(["0", "-0", "0.0", "-0.0", "0.00", "0.000"])


def convert_texts(texts: pa.Array, type_: pa.DataType, nulls: Collection[str] = ()) -> tuple[pa.Array, pa.Array | None]:
    """Return the values of a column of text in a type, and for those that have none the reasons; None if all have one.

    A text that means nothing in the type and is one of `nulls` is null: what quotes everything quotes its nulls too.
    """
    if pa.types.is_string(type_):
        return texts, None
    values = _cast(texts, type_)
    if values.null_count == texts.null_count:
        return values, None
    return _convert_rest(values, pc.if_else(pc.is_valid(values), _NO_TEXT, texts), type_, nulls)


def types_of_texts(texts: pa.Array, current: pa.DataType | None) -> Counter[str]:
    """Return the types that the texts are spelled like, for a column of the type `current`, and how many of each there are."""
    found: Counter[str] = Counter()
    counted = texts.drop_null().value_counts()
    different, rows = counted.field("values"), counted.field("counts")
    if current is None and len(different) > 100:
        for type_ in (pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC")):
            is_float = pa.types.is_floating(type_)
            known = pc.match_substring_regex(different, _FRACTION) if is_float else _cast(different, type_).is_valid()
            found[str(type_)] += pc.sum(rows.filter(known)).as_py() or 0
            different, rows = different.filter(pc.invert(known)), rows.filter(pc.invert(known))
    for text, count in zip(different.to_pylist(), rows.to_pylist(), strict=True):
        found[str(type_of_text(text, current))] += count
    return +found


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values that Arrow certainly reads as `convert_text` does, and null for the others."""
    if pa.types.is_integer(type_):
        return _to_integers(texts, type_)
    if type_ in _LIMITS:
        return _to_floats(texts, type_)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        # Arrow takes local time for UTC, which is meant.
        plain = pc.replace_substring_regex(texts, "Z$", "") if type_.tz else texts
        return _cast_matching(plain, pa.timestamp("us"), _TIMESTAMP).cast(type_)
    if pa.types.is_decimal128(type_) and 0 <= type_.scale < type_.precision:
        fraction = rf"(\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
        return _cast_matching(texts, type_, rf"^-?(0|[1-9][0-9]{{0,{type_.precision - type_.scale - 1}}}){fraction}$")
    return pa.nulls(len(texts), type_)


def _cast_matching(texts: pa.Array, type_: pa.DataType, pattern: str) -> pa.Array:
    fits = pc.match_substring_regex(texts, pattern)
    try:
        return (texts if pc.all(fits).as_py() else pc.if_else(fits, texts, _NO_TEXT)).cast(type_)
    except pa.ArrowInvalid:  # there is no February 30
        return pa.nulls(len(texts), type_)


def _to_integers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        # Three times as fast as the pattern where all are integers.
        integers = texts.cast(pa.int64())
        fits = pc.equal(integers.cast(pa.string()), texts)
    except pa.ArrowInvalid:
        integers = _cast_matching(texts, pa.int64(), _INTEGER)
        fits = None
    if type_.bit_width < 64:
        limit = 1 << (type_.bit_width - 1)
        narrow = pc.and_(pc.greater_equal(integers, -limit), pc.less(integers, limit))
        fits = narrow if fits is None else pc.and_(fits, narrow)
    return _only(integers, fits).cast(type_)


def _to_floats(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        numbers = texts.cast(type_)
    except pa.ArrowInvalid:
        return _cast_matching(texts, type_, _NUMBER)
    most, least = _LIMITS[type_]
    size = pc.abs(numbers)
    certain = pc.and_(pc.less(size, pa.scalar(most, type_)), pc.greater(size, pa.scalar(least, type_)))
    zero = pc.is_in(texts, value_set=_ZEROS)
    padded = pc.match_substring_regex(texts, _PADDED)
    return _only(numbers, pc.or_(pc.and_not(certain, padded), zero))


def _only(values: pa.Array, fits: pa.Array | None) -> pa.Array:
    """Return the values that fit, and null for the others."""
    return values if fits is None or pc.all(fits).as_py() else pc.if_else(fits, values, pa.scalar(None, values.type))


def _convert_rest(
    values: pa.Array, rest: pa.Array, type_: pa.DataType, nulls: Collection[str]
) -> tuple[pa.Array, pa.Array | None]:
    """Return the values with those of the remaining texts, each different text converted once, and the reasons."""
    encoded = rest.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    results = [text_converter(type_)(text) for text in texts]
    converted = pa.array([value for value, _ in results], type_)
    if values.null_count == len(values):
        values = converted.take(encoded.indices)
    else:
        # Where there is a text its value is behind all others.
        places = pc.add(encoded.indices.cast(pa.int64()), len(values))
        own = pa.array(range(len(values)), pa.int64())
        values = pa.concat_arrays([values, converted]).take(pc.coalesce(places, own))
    reasons = pa.array(
        [None if text in nulls else reason for text, (_, reason) in zip(texts, results, strict=True)], pa.string()
    )
    return values, reasons.take(encoded.indices) if reasons.null_count < len(reasons) else None
