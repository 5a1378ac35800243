"""The dialect of CSV files: Spark's options by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ALIASES = {"delimiter": "sep", "charset": "encoding"}
# The names of the options that are honoured, in lower case.
OPTIONS = frozenset(
    ("sep", "delimiter", "quote", "escape", "header", "comment", "nullvalue", "encoding", "charset", "multiline")
) | {"ignoreleadingwhitespace", "ignoretrailingwhitespace"}


@dataclass(frozen=True)
class Dialect:
    """How CSV is written. Without a quote nothing is quoted; without an escape a quote in quoted text is doubled."""

    sep: bytes = b","
    quote: bytes = b'"'
    escape: bytes = b""
    header: bool = True
    comment: bytes = b""
    nulls: tuple[str, ...] = ("",)
    encoding: str | None = None
    multi_line: bool = True
    trim_left: bool = False
    trim_right: bool = False

    @property
    def blanks(self) -> str:
        """Return the characters that are trimmed: a tab that separates fields is none of them."""
        return "".join(blank for blank in " \t" if blank.encode() not in self.sep)


def dialect_of(options: Mapping[str, Any]) -> Dialect:
    """Return the dialect that the options describe. An option that makes no sense is a ValueError."""
    given = {_ALIASES.get(name.lower(), name.lower()): value for name, value in options.items() if value is not None}
    quote = _one_character(given, "quote", '"')
    escape = _one_character(given, "escape", "")
    dialect = Dialect(
        sep=_separator(str(given.get("sep", ","))),
        quote=quote,
        escape=b"" if escape == quote else escape,
        header=_flag(given, "header", default=True),
        comment=_one_character(given, "comment", ""),
        nulls=tuple({"": 0, str(given.get("nullvalue", "")): 0}),
        encoding=given.get("encoding"),
        multi_line=_flag(given, "multiline", default=True),
        trim_left=_flag(given, "ignoreleadingwhitespace", default=False),
        trim_right=_flag(given, "ignoretrailingwhitespace", default=False),
    )
    special = [mark for mark in (dialect.sep, dialect.quote, dialect.escape, dialect.comment) if mark]
    if len(set(special)) < len(special) or (dialect.quote and dialect.quote in dialect.sep):
        raise ValueError("options sep, quote, escape and comment must differ")
    return dialect


def _separator(text: str) -> bytes:
    text = text.replace("\\t", "\t")
    if not text or set(text) & {"\n", "\r", "\0"}:
        raise ValueError(f"option sep is not a separator: {text!r}")
    return text.encode()


def _one_character(given: Mapping[str, Any], name: str, default: str) -> bytes:
    text = str(given.get(name, default))
    text = "" if text == "\0" else text  # Spark's way to say none
    if len(text) > 1 or not text.isascii() or text in {"\n", "\r"}:
        raise ValueError(f"option {name} is not one ASCII character: {text!r}")
    return text.encode()


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    text = str(given.get(name, default)).lower()
    if text not in {"true", "false"}:
        raise ValueError(f"option {name} is neither true nor false: {text!r}")
    return text == "true"
