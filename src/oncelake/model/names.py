"""Names of tables."""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\*?{}\[\]:%#]")


def table_name_problem(name: object) -> str | None:
    """What is wrong with a table's name, or None. Its parts become folders of the lake and must stay in it."""
    if not isinstance(name, str) or not name:
        return f"a table's name is text like 'silver.orders', not {name!r}"
    if found := _FORBIDDEN.search(name):
        return f"table name {name!r} contains {found.group()!r}, which has a meaning in paths"
    for part in name.split("."):
        if not part.strip():
            return f"table name {name!r} has an empty part"
        if part[0] in "_." or part != part.strip():
            return (
                f"table name {name!r}: the part {part!r} begins with a sign that hides folders, or has blanks around it"
            )
    return None
