"""Check the declaration of files that arrive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, TypedDict

from oncelake.errors.base import did_you_mean
from oncelake.model.intervals import parse_length
from oncelake.sources.arrivals.arriving import FORMATS, MAX_BYTES, MAX_FILES, PROVENANCE, ArrivingFiles
from oncelake.sources.arrivals.path_dates import check_path_date

_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2")
_CHANGED = ("refuse", "replace", "append")
_DUPLICATES = ("report", "skip")
_CLEAN_UP = ("keep", "delete", "archive")
_POLICIES = ("evolve", "rescue", "freeze")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


class ArrivalOptions(TypedDict, total=False):
    """The options of files that arrive.

    `arrives=False` reads all files each time, as one input; `arrives=True` insists on arrivals. `hints` are the types of
    some columns, where the schema is inferred. `evolution` says what becomes of values that do not fit the schema:
    "evolve" (columns are added and widened, the rest is rescued), "rescue" or "freeze", or a mapping by column, with "*"
    for the others. `changed` says what becomes of a changed file that was ingested before: "refuse", "replace" its rows, or "append". `where`
    is a condition for the rows that are kept. `provenance` adds columns: some of "file", "batch", "modified" and "row", or
    True for all. `rescued` is the name of the column with the values that have no column. A batch has at most `max_files` files and `max_bytes` bytes, like "2 GB".
    `clean_up` says what becomes of ingested files: "keep", "delete", or "archive" to the folder `archive`, once their
    batch is committed and `clean_up_after`, like "7 days", has passed. `duplicates` says what becomes of a file with the content of another one:
    "report" it and ingest it, or "skip" it. `path_date`, like "%Y/%m/%d", is the date in the path by which `--from` and `--to`
    choose files, instead of their modification time. A file that expands to more than `max_expanded`, like "2 GB", is quarantined.
    """

    arrives: bool
    hints: str
    evolution: str | Mapping[str, str]
    changed: str
    where: str
    provenance: bool | str | Iterable[str]
    rescued: str
    max_files: int
    max_bytes: int | str
    clean_up: str
    archive: str
    clean_up_after: str
    duplicates: str
    path_date: str
    max_expanded: int | str


def format_of(path: Any) -> str:
    """Return the format that the suffix of a path names."""
    name = PurePosixPath(str(path))
    name = name.with_suffix("") if name.suffix in _COMPRESSED else name
    return {"jsonl": "json", "ndjson": "json", "txt": "text"}.get(name.suffix[1:], name.suffix[1:])


def parse_arrivals(
    path: str, kind: str, schema: str | None, options: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> ArrivingFiles:
    """Return the declared source; raise ValueError if something is wrong with it."""
    known = list(ArrivalOptions.__annotations__)
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"files has no option {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    if kind not in FORMATS:
        raise ValueError(f"files at {path!r}: format={kind!r} is none of {', '.join(FORMATS)}")
    changed, rescued = given.get("changed", "refuse"), given.get("rescued", "_rescued")
    if changed not in _CHANGED:
        raise ValueError(f"changed={changed!r} is none of {', '.join(_CHANGED)}{did_you_mean(str(changed), _CHANGED)}")
    provenance = _parse_provenance(given.get("provenance", ()))
    if changed == "replace" and "file" not in provenance:
        raise ValueError('changed="replace" finds the rows of a file by their provenance: declare provenance="file"')
    if not (isinstance(rescued, str) and rescued):
        raise ValueError(f"rescued={rescued!r} is not the name of a column")
    return ArrivingFiles(
        path,
        kind,
        schema,
        dict(options or {}),
        given.get("hints"),
        _parse_policy(given.get("evolution", "evolve")),
        changed,
        given.get("where"),
        provenance,
        rescued,
        _parse_count(given.get("max_files", MAX_FILES)),
        _parse_bytes(given.get("max_bytes", MAX_BYTES)),
        *_parse_clean_up(path, given),
        _parse_duplicates(given.get("duplicates", "report")),
        _parse_path_date(given.get("path_date")),
        _parse_bytes(given["max_expanded"], "max_expanded") if "max_expanded" in given else None,
    )


def _parse_duplicates(duplicates: Any) -> str:
    if duplicates not in _DUPLICATES:
        near = did_you_mean(str(duplicates), _DUPLICATES)
        raise ValueError(f"duplicates={duplicates!r} is none of {', '.join(_DUPLICATES)}{near}")
    return str(duplicates)


def _parse_path_date(pattern: Any) -> str | None:
    if pattern is None:
        return None
    check_path_date(str(pattern))
    return str(pattern)


def _parse_clean_up(path: str, given: Mapping[str, Any]) -> tuple[str, str | None, timedelta]:
    action, archive, after = given.get("clean_up", "keep"), given.get("archive"), given.get("clean_up_after")
    if action not in _CLEAN_UP:
        raise ValueError(f"clean_up={action!r} is none of {', '.join(_CLEAN_UP)}{did_you_mean(str(action), _CLEAN_UP)}")
    if (action == "archive") != (archive is not None):
        raise ValueError('clean_up="archive" and archive="a/folder" belong together')
    if archive is not None and _is_listed(archive, path):
        raise ValueError(f"archive={archive!r} lies where files arrive ({path!r}): archived files would arrive again")
    return action, archive, timedelta() if after is None else parse_length(after)


def _is_listed(folder: str, path: str) -> bool:
    """Return whether files below a folder would be found again, by the part of the path before its first wildcard."""
    parts, fixed = (
        folder.rstrip("/").split("/"),
        [*takewhile(lambda part: not set(part) & set("*?[{"), path.split("/"))],
    )
    below = parts[len(fixed) :]
    return parts[: len(fixed)] == fixed and not any(part.startswith(("_", ".")) for part in below)


def _parse_policy(policy: Any) -> str | dict[str, str]:
    chosen = policy if isinstance(policy, Mapping) else {"*": policy}
    for column, each in chosen.items():
        if each not in _POLICIES:
            where = "" if column == "*" else f" of column {column!r}"
            near = did_you_mean(str(each), _POLICIES)
            raise ValueError(f"evolution={each!r}{where} is none of {', '.join(_POLICIES)}{near}")
    return dict(policy) if isinstance(policy, Mapping) else str(policy)


def _parse_provenance(provenance: Any) -> tuple[str, ...]:
    if isinstance(provenance, bool):
        return tuple(PROVENANCE) if provenance else ()
    names = (provenance,) if isinstance(provenance, str) else tuple(provenance)
    for name in names:
        if name not in PROVENANCE:
            raise ValueError(
                f"provenance {name!r} is none of {', '.join(PROVENANCE)}{did_you_mean(str(name), [*PROVENANCE])}"
            )
    return names


def _parse_count(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"max_files={count!r} is not a number of files, at least 1")
    return count


def _parse_bytes(size: Any, name: str = "max_bytes") -> int:
    match = _SIZE.fullmatch(str(size))
    if isinstance(size, bool) or match is None or float(match[1]) <= 0:
        raise ValueError(f'{name}={size!r} is not a size like "2 GB"')
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
