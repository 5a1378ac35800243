"""Checking what a keyed pattern says of its rows: the keys, the order, the deletes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oncelake.delta.layout import ColumnNames, checked_columns
from oncelake.errors import BadDeclaration
from oncelake.model.intervals import parse_length
from oncelake.model.source_location import declared_at

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Spec:
    """What the rows of a keyed table are told apart and ranked by, as it was declared."""

    keys: tuple[str, ...]
    by: tuple[str, ...] = ()
    delete_when: str | Column | None = None
    cdc: str | None = None
    exclude: tuple[str, ...] = ()
    evolve: bool = False
    nulls: str = "refuse"  # or "quarantine", or "key" where a null is a key like any other

    @property
    def deletes(self) -> bool:
        """Whether rows may be deletes."""
        return self.delete_when is not None or self.cdc is not None


def checked_spec(  # noqa: PLR0913  what every keyed pattern may be told
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
    """What a pattern was told of its rows, if it can be meant."""
    spec = Spec(
        checked_columns("keys", keys),
        checked_columns("latest_by", by),
        delete_when,
        _choice("cdc", cdc, (None, "debezium", "delta")),
        checked_columns("exclude", exclude),
        _choice("schema", schema, ("freeze", "evolve")) == "evolve",
        nulls if nulls == "key" else _choice("null_keys", nulls, ("refuse", "quarantine")),
    )
    if not spec.keys:
        raise BadDeclaration(where=declared_at(), problem=f"{what} needs keys=")
    return spec


def _choice(what: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of the choices."""
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise BadDeclaration(where=declared_at(), problem=f"{what} is one of {shown}, not {value!r}")
    return value


def checked_age(what: str, text: str | None) -> timedelta | None:
    """A length of time, like "90 days"."""
    if text is None:
        return None
    try:
        return parse_length(text)
    except ValueError as error:
        raise BadDeclaration(where=declared_at(), problem=f"{what}: {error}") from error
