"""The schema of files, inferred: the types that hold what was seen in them, without loss.

Inference is evolution from the empty schema: the parser reports everything it sees in a sample as an unknown column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa

from oncelake.sources.arrivals.parsing.records import RESCUED
from oncelake.sources.arrivals.schema_spelled import parse_arrow_type
from oncelake.sources.arrivals.schema_types import MAX_PRECISION, normalize

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS = (pa.float32(), pa.float64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_OURS = "_once_"  # the prefix of the columns that we add

# What to make of two types that no rule unifies.
Fallback = Callable[[pa.DataType, pa.DataType], pa.DataType | None]


class Drift(NamedTuple):
    """Values that did not fit the schema: their column, the type that would hold them as Arrow spells it, and the number of rows."""

    column: str
    type: str
    rows: int


def drift_of(table: pa.Table) -> list[Drift]:
    """Return the drift that the parser reports as a table, added up by column and type."""
    rows: dict[tuple[str, str], int] = {}
    for column, spelled, count in zip(*(table[name].to_pylist() for name in ("column", "type", "rows")), strict=True):
        rows[column, spelled] = rows.get((column, spelled), 0) + count
    return [Drift(column, spelled, count) for (column, spelled), count in rows.items()]


def infer(drift: Sequence[Drift]) -> pa.Schema:
    """Return the schema of a sample, with the columns in the order in which they appear.

    A column of which only nulls were seen is left out: it is added when its first value arrives.
    """
    types: dict[str, list[pa.DataType]] = {}
    for each in drift:
        arrow = try_parse(each.type)
        if arrow is not None:
            types.setdefault(each.column, []).append(arrow)
    return pa.schema(new_columns(((column, unify_all(seen)) for column, seen in types.items()), taken=()))


def try_parse(spelled: str) -> pa.DataType | None:
    """Return a type that the parser reports; None if it is no type of a column, so that its values stay rescued."""
    try:
        return parse_arrow_type(spelled)
    except ValueError:
        return None


def unify_all(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type of a new column that holds values of all the types."""
    return reduce(unify, types, pa.null())


def new_columns(types: Iterable[tuple[str, pa.DataType]], taken: Iterable[str]) -> list[pa.Field]:
    """Return the columns that can be added: with a value, and a name that no other column has, whatever the case of its letters."""
    names = {name.casefold() for name in taken}
    found = []
    for name, seen in types:
        arrow = without_nulls(seen)
        if arrow is None or name.casefold() in names or not can_be_column(name):
            continue
        names.add(name.casefold())
        found.append(pa.field(name, arrow))
    return found


def can_be_column(name: str) -> bool:
    """Return whether a field of a file may become a column: one without a name or with the name of one of ours stays rescued."""
    folded = name.casefold()
    return bool(name.strip()) and folded != RESCUED and not folded.startswith(_OURS)


def unify(one: pa.DataType, other: pa.DataType, *, pinned: bool = False) -> pa.DataType | None:
    """Return the type that holds the values of both types without loss.

    Types of a new column, seen in one sample, always unify, at worst to string. A pinned type is only widened: None if the
    other type does not fit.
    """
    return _unify(normalize(one), normalize(other), _refuse if pinned else _as_text, pinned=pinned)


def widen(pinned: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a pinned type, widened as far as possible to hold the values of another; what does not fit stays rescued."""
    found = _unify(normalize(pinned), normalize(wanted), _keep, pinned=True)
    widened = without_nulls(found) if found is not None else None
    return pinned if widened is None else widened


def without_nulls(arrow: pa.DataType) -> pa.DataType | None:
    """Return a type without the parts of which only nulls were seen, which have no type; None if nothing remains."""
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_list(arrow):
        item = without_nulls(arrow.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(arrow):
        item = without_nulls(arrow.item_type)
        return None if item is None else pa.map_(arrow.key_type, item)
    if pa.types.is_struct(arrow):
        fields = [(each.name, without_nulls(each.type)) for each in arrow]
        kept = [pa.field(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(kept) if kept else None
    return arrow


def apply_hints(schema: pa.Schema, hints: pa.Schema) -> pa.Schema:
    """Return a schema with the declared types of some columns, which win over inferred ones; other declared columns come last."""
    declared = {match_name(schema.names, hint.name) or hint.name: hint.type for hint in hints}
    fields = [pa.field(each.name, declared.pop(each.name, each.type)) for each in schema]
    return pa.schema(fields + [pa.field(name, arrow) for name, arrow in declared.items()])


def match_name(names: Sequence[str], wanted: str) -> str | None:
    """Return the name that is the wanted one, or else the only one that differs from it by case; None if there is none."""
    if wanted in names:
        return wanted
    near = [name for name in names if name.casefold() == wanted.casefold()]
    return near[0] if len(near) == 1 else None


def _as_text(_one: pa.DataType, _other: pa.DataType) -> pa.DataType | None:
    return pa.string()


def _refuse(_one: pa.DataType, _other: pa.DataType) -> pa.DataType | None:
    return None


def _keep(one: pa.DataType, _other: pa.DataType) -> pa.DataType | None:
    return one


def _unify(one: pa.DataType, other: pa.DataType, fallback: Fallback, *, pinned: bool) -> pa.DataType | None:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    number = _number(one, other, pinned=pinned)
    if number is not None:
        return number
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = _unify(one.value_type, other.value_type, fallback, pinned=pinned)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        item = _unify(one.item_type, other.item_type, fallback, pinned=pinned)
        return None if item is None else pa.map_(one.key_type, item)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _struct(one, other, fallback, pinned=pinned)
    return fallback(one, other)


def _struct(one: pa.DataType, other: pa.DataType, fallback: Fallback, *, pinned: bool) -> pa.DataType | None:
    types = {each.name: each.type for each in one}
    folded = {name.casefold() for name in types}
    for field in other:
        if field.name in types:
            types[field.name] = _unify(types[field.name], field.type, fallback, pinned=pinned)
            if types[field.name] is None:
                return None
        elif field.name.casefold() not in folded:
            folded.add(field.name.casefold())
            types[field.name] = field.type
    return pa.struct(list(types.items()))


def _number(one: pa.DataType, other: pa.DataType, *, pinned: bool) -> pa.DataType | None:
    for widths in (_INTEGERS, _FLOATS):
        if one in widths and other in widths:
            return widths[max(widths.index(one), widths.index(other))]
    if pa.types.is_decimal(one) and (pa.types.is_decimal(other) or other in _INTEGERS):
        return _decimal(one, other)
    if pinned:
        return None  # an integer is neither a float nor a decimal: old and new rows would differ in kind
    if one in _INTEGERS and pa.types.is_decimal(other):
        return _decimal(one, other)
    numbers = (*_INTEGERS, *_FLOATS)
    return pa.float64() if one in numbers and other in numbers else None


def _decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(_scale(one), _scale(other))
    precision = max(_whole_digits(one), _whole_digits(other)) + scale
    return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else None


def _scale(arrow: pa.DataType) -> int:
    return arrow.scale if pa.types.is_decimal(arrow) else 0


def _whole_digits(arrow: pa.DataType) -> int:
    return arrow.precision - arrow.scale if pa.types.is_decimal(arrow) else _DIGITS[arrow]
