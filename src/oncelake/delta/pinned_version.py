"""Whether a pinned version of a table can still be read: VACUUM removes files, and Delta cleans up logs."""

from __future__ import annotations

import posixpath
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from oncelake.delta.log import TableLog, read_log_at
from oncelake.errors import CorruptLog
from oncelake.storage.objects import storage

if TYPE_CHECKING:
    from oncelake.delta.files import Files

# The alphabet of Z85, in which Delta spells the uuid of a file of deletion vectors.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_CHARACTERS = 20


def unreadable(
    table: str, path: str, version: int, needed: Callable[[TableLog], Files] = lambda log: log.files
) -> str | None:
    """Return why a version of a table can no longer be read; None if its log and all files that are needed exist."""
    try:
        log = read_log_at(table, path, version)
        files = needed(log)
    except CorruptLog as error:
        return f"the log of {table} no longer reaches back to version {version}: {error.message}"
    if log.version != version:
        return f"the log of {table} no longer reaches back to version {version}"
    names = [name for file in files.locations() for name in _names(file)]
    missing = _missing(posixpath.join(path, name) for name in names)
    return None if missing is None else f"{missing} of version {version} of {table} does not exist: it was vacuumed"


def _names(file: Mapping[str, Any]) -> list[str]:
    """Return the names of a data file and of its deletion vectors, which VACUUM removes independently of each other."""
    vector = file.get("deletionVector") or {}
    name = vector.get("pathOrInlineDv", "")
    data = [unquote(file["path"])]
    if vector.get("storageType") == "p":
        return [*data, unquote(name)]
    return [*data, _vector_name(name)] if vector.get("storageType") == "u" else data


def _vector_name(text: str) -> str:
    """Return the name of a file of deletion vectors: an optional folder and a uuid in Z85."""
    folder, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    digits = [_Z85.index(character) for character in encoded]
    words = (digits[start : start + 5] for start in range(0, _UUID_CHARACTERS, 5))
    number = b"".join(sum(digit * 85 ** (4 - at) for at, digit in enumerate(word)).to_bytes(4) for word in words)
    return posixpath.join(folder, f"deletion_vector_{uuid.UUID(bytes=number)}.bin")


def _missing(paths: Iterable[str]) -> str | None:
    """Return the first path that does not exist. Folders are listed, because an object store answers one file at a time."""
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, name = posixpath.split(path)
        wanted[folder].add(name)
    for folder, names in sorted(wanted.items()):
        if absent := names - set(storage(folder).names()):
            return posixpath.join(folder, min(absent))
    return None
