"""Validate the names of tables and lakes."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Any

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\*?{}\[\]:%#]")
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
# Not `abfss://container@account…`: there the name before the @ is no secret.
_CREDENTIALS = re.compile(r"[A-Za-z0-9+.-]+://[^/@]*:(?!\d+/).*@|s3[an]?://[^/]*@", re.IGNORECASE)
_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=]")
# delta-rs, which creates tables and writes the ledger, cannot open such a folder, or opens another one.
_UNUSABLE = re.compile(r"[\[\]|^\\]|%[0-9A-Fa-f]{2}")


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


def is_refused_by_delta(column: str) -> bool:
    """Return whether Delta refuses the name of a column, in a table without column mapping."""
    return _REFUSED_BY_DELTA.search(column) is not None


def lake_path(lake: Any, root: str | Path = "") -> str:
    """Return the absolute path or URI of a lake; a relative folder starts at `root`. Raise ValueError if it names none."""
    text = str(lake) if isinstance(lake, str | PurePath) else ""
    if not text.strip():
        raise ValueError(f"lake must be a folder or URI, not {lake!r}")
    if text.startswith("file:"):
        path = text.removeprefix("file:").removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(f"lake {text!r} names no absolute path; a URI of this machine is like file:///data/lake")
        return f"file://{_usable(path.rstrip('/') or '/')}"
    if "://" in text:
        refuse_credentials(text)
        return text.rstrip("/")
    if _SCHEME.match(text):
        raise ValueError(f"lake {text!r} is neither a folder nor a URI with ://")
    try:
        return _usable(str((Path(root) / Path(text).expanduser()).resolve()))
    except RuntimeError as error:
        raise ValueError(f"lake {text!r}: {error}") from error


def refuse_credentials(uri: str) -> None:
    """Raise ValueError if a URI has a password or an access key in it: it would be in logs, commits and errors."""
    if _CREDENTIALS.match(uri):
        problem = "an address must not carry credentials, because it is shown and recorded"
        raise ValueError(f"{problem}; name them in `storage:`, as ${{NAME}} or file:PATH")


def _usable(path: str) -> str:
    """Return the path of a local lake; raise ValueError if a library would not find it."""
    if match := _UNUSABLE.search(path):
        raise ValueError(
            f"lake {path!r} contains {match.group()!r}, which delta-rs does not read as a name: use another folder"
        )
    return path
