"""Compare the files of a manifest with what is there now."""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

import pyarrow as pa

from oncelake.storage.listing import readable, stat_remote
from oncelake.storage.paths import is_local


class CurrentFiles(NamedTuple):
    """The files that have another size or modification time than in the manifest, and those that are gone."""

    changed: list[str]
    gone: list[str]


def compare(files: pa.Table, root: str) -> CurrentFiles:
    """Return which files of a manifest are no longer as they were frozen."""
    found = CurrentFiles([], [])
    for batch in files.select(["path", "size", "modified"]).to_batches(max_chunksize=10_000):
        paths = batch.column(0).to_pylist()
        then = zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True)
        for path, frozen, now in zip(paths, then, stamps([full_path(path, root) for path in paths]), strict=True):
            if now is None:
                found.gone.append(path)
            elif now != frozen:
                found.changed.append(path)
    return found


def full_path(path: str, root: str) -> str:
    """Return the path or URI of a file of a manifest; relative ones start at the project's root."""
    return path if path.startswith("/") or "://" in path else posixpath.join(root, path)


def stamps(paths: list[str]) -> list[tuple[int, int] | None]:
    """Return size and modification time of files as they are now; None for one that is not there."""
    if not all(map(is_local, paths)):
        with readable(posixpath.dirname(paths[0])):
            return stat_remote(paths)
    # Not as Path objects, which cost more than the call.
    return [_local_stamp(path.removeprefix("file://")) for path in paths]


def _local_stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size, found.st_mtime_ns
