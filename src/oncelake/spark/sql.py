"""SQL text where Spark takes nothing else (`replaceWhere`): quoted identifiers and typed literals, safe from injection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from oncelake.errors import BadRange
from oncelake.model.intervals import Interval, instant_text
from oncelake.model.ownership import values

_SUFFIXES = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN = re.compile(r"[\w .,:@+=/()-]*")


# The table that is merged into, in conditions and columns. Under Connect a view of this name stands for it.
TARGET = "once_table"


def in_target(name: str) -> str:
    """Return a column of the table that is merged into."""
    return f"{TARGET}.{identifier(name)}"


def identifier(name: str) -> str:
    """Quote the name of a column."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Any) -> str:
    """Return a value as a SQL literal of its type."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise TypeError(f"{value!r} cannot be part of a slice: it is no number")
        return f"{value:f}BD"
    if isinstance(value, float):
        return f"CAST({text_literal(float.__repr__(value))} AS DOUBLE)"
    if isinstance(value, datetime):
        return f"TIMESTAMP'{instant_text(value)}'" if value.tzinfo else f"TIMESTAMP_NTZ'{value.isoformat()}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, str):
        return text_literal(value)
    raise TypeError(f"{value!r} cannot be part of a slice: {type(value).__name__}")


def text_literal(text: str) -> str:
    """Return text as a SQL literal. Text with characters that the parser may interpret is written as hexadecimal bytes."""
    if _PLAIN.fullmatch(text) and "--" not in text:
        return "'" + str.__str__(text) + "'"
    return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"


def inside(column: str, column_type: str, interval: Interval) -> str:
    """Return the predicate for the rows of an interval. Dates and times without a zone are wall-clock times of its zone."""
    name = identifier(column)
    name = f"TRY_CAST({name} AS DATE)" if column_type == "string" else name
    start, end = edges(column_type, interval)
    return f"{name} >= {start} AND {name} < {end}"


def edges(column_type: str, interval: Interval) -> tuple[str, str]:
    """Return the start and the end of an interval as literals of a column's type."""
    if column_type == "timestamp_ntz" and (interval.local_start.fold or interval.local_end.fold):
        # Such a bound is the second of two equal wall-clock times: rows of the first would be on its wrong side.
        repeated = f"{interval} begins or ends in an hour that the clocks of {interval.zone} repeat"
        raise BadRange(
            problem=f"{repeated}: a timestamp_ntz cannot tell the two apart", next="use a column of type timestamp"
        )
    if column_type == "timestamp":
        start, end = (f"TIMESTAMP'{instant_text(instant)}'" for instant in (interval.start, interval.end))
    elif column_type == "timestamp_ntz":
        local = (interval.local_start, interval.local_end)
        start, end = (f"TIMESTAMP_NTZ'{time.replace(tzinfo=None).isoformat()}'" for time in local)
    else:
        start, end = (f"DATE'{local.date().isoformat()}'" for local in (interval.local_start, interval.local_end))
    return start, end


def equal(column: str, value: Any) -> str:
    """Return the predicate for a column that has one of the given values. None stands for null."""
    name = identifier(column)
    wanted = sorted(values(value), key=repr)
    texts = [literal(one) for one in wanted if one is not None]
    parts = [f"{name} IN ({', '.join(texts)})"] if texts else []
    parts += [f"{name} IS NULL"] if None in wanted else []
    if not parts:
        return "FALSE"
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"


def all_of(predicates: list[str]) -> str:
    """Return the conjunction of the predicates."""
    return " AND ".join(predicates)


def filter_predicates(within: Mapping[str, Any]) -> list[str]:
    """Return the predicates of a row filter, one per column."""
    return [equal(column, value) for column, value in within.items()]


def typed_literal(text: str | None, kind: str) -> str:
    """Return a value that Spark cast to text as a literal of its type."""
    if text is None:
        return "NULL"
    return text_literal(text) if kind == "string" else f"CAST({text_literal(text)} AS {kind})"


def exact_literal(text: str, kind: str) -> str:
    """Return the same without a cast if SQL has a literal of the type: Delta skips files only by those.

    A timestamp is given in microseconds since 1970, because its text would depend on a time zone.
    """
    if kind in _SUFFIXES:
        return f"{int(text)}{_SUFFIXES[kind]}"
    if kind == "date":
        return f"DATE'{date.fromisoformat(text).isoformat()}'"
    if kind == "timestamp":
        return f"TIMESTAMP'{instant_text(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(text)))}'"
    return typed_literal(text, kind)


def bound_literal(value: Any, kind: str) -> str | None:
    """Return a literal not below the maximum of a column in file statistics; None if the statistics are not exact."""
    if kind in ("byte", "short", "integer", "long") and isinstance(value, int):
        return int.__repr__(value)
    if kind == "date":
        return f"DATE'{value}'" if _DATE.fullmatch(value) else None
    if kind == "timestamp" and isinstance(value, datetime):
        # Statistics are truncated to milliseconds.
        return f"TIMESTAMP'{instant_text(value + timedelta(milliseconds=1))}'"
    return None


def one_of(partitions: list[dict[str, str]], of: str = "") -> str | None:
    """Return the predicate for partitions (`of` a table), given as literals by column; None if there are none."""
    each = [all_of([f"{of}{identifier(c)} <=> {value}" for c, value in part.items()]) for part in partitions]
    return "(" + " OR ".join(each) + ")" if each else None
