"""The options of a format, whose names are Spark's in any case, and whose values may be text as Spark takes them."""

from __future__ import annotations

from typing import Any

from oncelake.sources.arrivals.parsing.records import FileFormat


def option(fmt: FileFormat, name: str, default: Any = None) -> Any:
    """Return the value of an option."""
    return next((value for key, value in fmt.options.items() if key.lower() == name.lower()), default)


def declared_encoding(fmt: FileFormat) -> str | None:
    """Return the encoding of the files, if one is declared."""
    names = ("encoding", "charset") if fmt.kind == "csv" else ("encoding",)
    return next((str(found) for name in names if (found := option(fmt, name)) is not None), None)


def flag(fmt: FileFormat, name: str, *, default: bool = False) -> bool:
    """Return whether an option is on."""
    return str(option(fmt, name, default)).lower() == "true"
