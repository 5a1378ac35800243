"""What the targets of a pipeline can take: a schema that evolves further would fail every commit from then on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from oncelake.delta.log import TableLog
from oncelake.model.contracts import Reading
from oncelake.model.names import is_refused_by_delta
from oncelake.sources.arrivals.schema_types import parse_type


def fixed_columns(reading: Reading) -> tuple[pa.Schema, ...]:
    """Return the columns of the targets whose types cannot be widened.

    Delta widens the types of a table that has the feature, in an append. Keyed writes cast to the types of the table.
    """
    targets = [(pattern, reading.lake.table(pattern.target)) for pattern in reading.writes]
    # The commit protocol has just read the logs.
    logs = [(pattern, target.last_log() or target.log()) for pattern, target in targets]
    tables = [(pattern, log) for pattern, log in logs if isinstance(log, TableLog)]
    return tuple(columns_of(log) for pattern, log in tables if pattern.keys or not log.widens_types)


def columns_of(log: TableLog) -> pa.Schema:
    """Return the columns of a table, without those of types that no file has."""
    fields = json.loads(log.metadata.get("schemaString") or '{"fields": []}')["fields"]
    types = ((field["name"], _parse(field["type"])) for field in fields)
    return pa.schema([pa.field(name, arrow) for name, arrow in types if arrow is not None])


def acceptable(pinned: pa.DataType, wider: pa.DataType, fixed: Sequence[pa.DataType] = ()) -> pa.DataType:
    """Return a wider type as far as tables with these types can take it, without new fields of names that Delta refuses.

    A table that has the pinned type took the column as it is. If it has another one, the function of the pipeline converts it.
    """
    if pa.types.is_struct(wider):
        return _struct(pinned, wider, fixed)
    if pa.types.is_list(wider):
        inner = [each.value_type for each in fixed if pa.types.is_list(each)]
        return pa.list_(
            acceptable(pinned.value_type if pa.types.is_list(pinned) else pa.null(), wider.value_type, inner)
        )
    if pa.types.is_map(wider):
        inner = [each.item_type for each in fixed if pa.types.is_map(each)]
        item = acceptable(pinned.item_type if pa.types.is_map(pinned) else pa.null(), wider.item_type, inner)
        return pa.map_(wider.key_type, item)
    return pinned if pinned in fixed else wider


def _struct(pinned: pa.DataType, wider: pa.DataType, fixed: Sequence[pa.DataType]) -> pa.DataType:
    known = _fields(pinned)
    tables = [_fields(each) for each in fixed]
    found = []
    for each in wider:
        if each.name not in known and is_refused_by_delta(each.name):
            continue
        there = [table[each.name] for table in tables if each.name in table]
        found.append(pa.field(each.name, acceptable(known.get(each.name, pa.null()), each.type, there)))
    return pa.struct(found) if found else pa.null()


def _fields(arrow: pa.DataType) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in arrow} if pa.types.is_struct(arrow) else {}


def _parse(spelled: str | Mapping[str, Any]) -> pa.DataType | None:
    """Return a type as the log of a table spells it; None if no file has such values."""
    if isinstance(spelled, str):
        try:
            return parse_type(spelled)
        except ValueError:
            return None
    if spelled["type"] == "struct":
        fields = [(field["name"], _parse(field["type"])) for field in spelled["fields"]]
        return pa.struct([pa.field(name, arrow) for name, arrow in fields if arrow is not None])
    if spelled["type"] == "array":
        item = _parse(spelled["elementType"])
        return None if item is None else pa.list_(item)
    key, item = _parse(spelled["keyType"]), _parse(spelled["valueType"])
    return None if key is None or item is None else pa.map_(key, item)
