"""Shares of a table: the values of some columns that one pipeline owns (`within={"region": "EU"}`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RowFilter = Mapping[str, Any]


def values(share: Any) -> set[Any]:
    """The values a share names for a column: one, or several in a list."""
    return set(share) if isinstance(share, list | tuple | set | frozenset) else {share}


def disjoint(one: RowFilter, other: RowFilter) -> bool:
    """Whether no row can belong to both."""
    return any(not values(one[column]) & values(other[column]) for column in one.keys() & other.keys())
