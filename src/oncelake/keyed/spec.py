"""Validate the declaration of a keyed pattern: keys, order, deletes, CDC format, null keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oncelake.delta.layout import ColumnNames, parse_columns
from oncelake.errors import BadDeclaration
from oncelake.model.intervals import parse_length
from oncelake.model.source_location import declared_at

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Spec:
    """The declared keys, order and deletes of a keyed table."""

    keys: tuple[str, ...]
    by: tuple[str, ...] = ()
    delete_when: str | Column | None = None
    cdc: str | None = None
    exclude: tuple[str, ...] = ()
    evolve: bool = False
    nulls: str = "refuse"  # or "quarantine"; "key" makes null a valid key

    @property
    def deletes(self) -> bool:
        """Return whether a batch may contain deletes."""
        return self.delete_when is not None or self.cdc is not None


def parse_spec(  # noqa: PLR0913  every option of a keyed pattern
    what: str,
    keys: ColumnNames,
    by: ColumnNames = None,
    *,
    delete_when: str | Column | None = None,
    cdc: str | None = None,
    exclude: ColumnNames = None,
    schema: str = "freeze",
    nulls: str = "refuse",
) -> Spec:
    """Return the validated declaration of a keyed pattern; raise BadDeclaration if it is invalid."""
    spec = Spec(
        parse_columns("keys", keys),
        parse_columns("latest_by", by),
        delete_when,
        _choice("cdc", cdc, (None, "debezium", "delta")),
        parse_columns("exclude", exclude),
        _choice("schema", schema, ("freeze", "evolve")) == "evolve",
        nulls if nulls == "key" else _choice("null_keys", nulls, ("refuse", "quarantine")),
    )
    if not spec.keys:
        raise BadDeclaration(where=declared_at(), problem=f"{what} needs keys=")
    return spec


def _choice(what: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return the value if it is one of the choices; raise BadDeclaration otherwise."""
    if value not in choices:
        valid = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise BadDeclaration(where=declared_at(), problem=f"{what} is one of {valid}, not {value!r}")
    return value


def parse_age(what: str, text: str | None) -> timedelta | None:
    """Parse a duration such as "90 days"."""
    if text is None:
        return None
    try:
        return parse_length(text)
    except ValueError as error:
        raise BadDeclaration(where=declared_at(), problem=f"{what}: {error}") from error
