"""The options of a format, whose names are Spark's in any case, and whose values may be text as Spark takes them."""

from __future__ import annotations

from typing import Any

from oncelake.sources.arrivals.parsing.records import FileFormat


def option(fmt: FileFormat, name: str, default: Any = None) -> Any:
    """Return the value of an option."""
    return next((value for key, value in fmt.options.items() if key.lower() == name.lower()), default)


def flag(fmt: FileFormat, name: str, *, default: bool = False) -> bool:
    """Return whether an option is on."""
    return str(option(fmt, name, default)).lower() == "true"
