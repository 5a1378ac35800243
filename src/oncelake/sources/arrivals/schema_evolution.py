"""How the pinned schema follows the files: by policy it evolves, leaves what does not fit to `_rescued`, or refuses it.

A schema evolves without loss and without surprise: columns are added at the end, types are widened to types that hold the
old values and the new ones (tinyint → smallint → int → bigint, float → double, decimals and structs grow). Nothing else.
What a target could not take is not done: a type that its table has already, and a name that Delta refuses. Such values are rescued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from oncelake.errors.base import did_you_mean
from oncelake.model.names import is_refused_by_delta
from oncelake.sources.arrivals.schema_inference import (
    Drift,
    match_name,
    new_columns,
    try_parse,
    unify,
    unify_all,
    widen,
)
from oncelake.sources.arrivals.schema_store import PinnedSchema
from oncelake.sources.arrivals.schema_types import type_name
from oncelake.sources.arrivals.target_columns import acceptable

POLICIES = ("evolve", "rescue", "freeze")
EVERY_COLUMN = "*"
Policy = Mapping[str, str] | str


@dataclass(frozen=True)
class Evolution:
    """What becomes of the schema: the next version if it changes, what a freeze refuses, and what stays in `_rescued`."""

    following: PinnedSchema | None = None
    refused: tuple[str, ...] = ()
    rescued: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """Return `frozen`, `changed` or `unchanged`."""
        if self.refused:
            return "frozen"
        return "changed" if self.following else "unchanged"


def policy_problem(policy: Any) -> str | None:
    """Return what is wrong with a declared policy: one of evolve, rescue and freeze, or a mapping of columns to them."""
    chosen = policy if isinstance(policy, Mapping) else {EVERY_COLUMN: policy}
    for column, each in chosen.items():
        if each not in POLICIES:
            near = did_you_mean(str(each), POLICIES)
            where = "" if column == EVERY_COLUMN else f" of column {column!r}"
            return f"the schema policy {each!r}{where} is none of {', '.join(POLICIES)}{near}"
        if not isinstance(column, str):
            return f"a schema policy is of a column or of {EVERY_COLUMN!r}, not of {column!r}"
    return None


def policy_of(policy: Policy, column: str) -> str:
    """Return the policy of one column."""
    if isinstance(policy, str):
        return policy
    named = match_name([name for name in policy if name != EVERY_COLUMN], column)
    return policy[named] if named else policy.get(EVERY_COLUMN, "evolve")


def evolve(
    pinned: PinnedSchema, drift: Sequence[Drift], policy: Policy = "evolve", fixed: Sequence[pa.Schema] = ()
) -> Evolution:
    """Return what becomes of a pinned schema after values that do not fit it; the same for drift in any order.

    A column that a table has in the pinned type stays as it is if the table is among the `fixed` ones, whose types cannot change.
    """
    seen = _by_column(pinned.schema, drift)
    refused = tuple(each.problem for each in seen if policy_of(policy, each.column) == "freeze")
    if refused:
        return Evolution(refused=refused)
    evolving = [each for each in seen if policy_of(policy, each.column) == "evolve"]
    schema, changes = _changed(pinned.schema, evolving, fixed)
    rescued = tuple(each.problem for each in seen if not each.is_held(schema))
    if not changes:
        return Evolution(rescued=rescued)
    return Evolution(PinnedSchema(pinned.version + 1, schema, "; ".join(changes)), rescued=rescued)


@dataclass(frozen=True)
class _Seen:
    """The drift of one column: the type it has, and the types of the values that did not fit, as far as they can be told."""

    column: str
    pinned: pa.DataType | None
    types: tuple[pa.DataType, ...]
    rows: int

    @property
    def problem(self) -> str:
        needed = ", ".join(type_name(each) for each in self.types) or "values that no type holds"
        if self.pinned is None:
            verb = "has" if self.rows == 1 else "have"
            return f"there is no column {self.column!r}: {_count(self.rows)} {verb} it ({needed})"
        verb = "needs" if self.rows == 1 else "need"
        return f"column {self.column!r} is {type_name(self.pinned)}: {_count(self.rows)} {verb} {needed}"

    def is_held(self, schema: pa.Schema) -> bool:
        """Return whether a schema has room for all the values."""
        if self.column not in schema.names:
            return False
        arrow = schema.field(self.column).type
        return self.pinned is None or all(unify(arrow, each, pinned=True) == arrow for each in self.types)


def _by_column(schema: pa.Schema, drift: Sequence[Drift]) -> list[_Seen]:
    # Executors report in any order. The spelling of a name that most rows have comes first: it is the one to be added.
    found: dict[str, dict[str, int]] = {}
    for each in drift:
        if each.type != "null":  # there is no value that could be lost
            types = found.setdefault(each.column, {})
            types[each.type] = types.get(each.type, 0) + each.rows
    seen = [_seen(schema, column, types) for column, types in found.items()]
    return sorted(seen, key=lambda each: (each.column.casefold(), -each.rows, each.column))


def _seen(schema: pa.Schema, column: str, types: Mapping[str, int]) -> _Seen:
    known = schema.field(column).type if column in schema.names else None
    told = [arrow for arrow in map(try_parse, sorted(types)) if arrow is not None]
    return _Seen(column, known, tuple(told), sum(types.values()))


def _changed(schema: pa.Schema, seen: list[_Seen], fixed: Sequence[pa.Schema]) -> tuple[pa.Schema, list[str]]:
    fields = {each.name: each.type for each in schema}
    changes = []
    for each in seen:
        if each.pinned is None:
            continue
        wider = reduce(widen, each.types, each.pinned)  # one by one: a type that does not fit hides no other
        wider = acceptable(each.pinned, wider, _types_in(fixed, each.column))
        if wider != each.pinned:
            fields[each.column] = wider
            names = type_name(each.pinned), type_name(wider)
            changes.append(f"widen {each.column} from {names[0]} to {names[1]} ({_count(each.rows)})")
    rows = {each.column: each.rows for each in seen}
    unknown = [(each.column, unify_all(each.types)) for each in seen if each.pinned is None]
    acceptable_ones = [(name, acceptable(pa.null(), arrow)) for name, arrow in unknown if not is_refused_by_delta(name)]
    for added in new_columns(acceptable_ones, taken=fields):
        fields[added.name] = added.type
        changes.append(f"add {added.name} {type_name(added.type)} ({_count(rows[added.name])})")
    return pa.schema(list(fields.items())), changes


def _types_in(tables: Sequence[pa.Schema], column: str) -> list[pa.DataType]:
    names = [(table, match_name(table.names, column)) for table in tables]
    return [table.field(name).type for table, name in names if name is not None]


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
