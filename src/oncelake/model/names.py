"""Validate table names."""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\*?{}\[\]:%#]")


def table_name_problem(name: object) -> str | None:
    """Return what is wrong with a table name, or None. Its parts become folders of the lake and must stay inside it."""
    if not isinstance(name, str) or not name:
        return f"a table name is text like 'silver.orders', not {name!r}"
    if match := _FORBIDDEN.search(name):
        return f"table name {name!r} contains {match.group()!r}, which has a special meaning in paths"
    for part in name.split("."):
        if not part.strip():
            return f"table name {name!r} has an empty part"
        if part[0] in "_." or part != part.strip():
            return (
                f"table name {name!r}: the part {part!r} starts with _ or . (a hidden folder), or has spaces around it"
            )
    return None
