"""Finding the files a pattern names, without a JVM: their paths, sizes and times."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from oncelake.storage.paths import is_local, local_path

_MAGIC = re.compile(r"[*?\[{]")


@dataclass(frozen=True, order=True)
class Found:
    """One file: where it is, how long it is, and when it was last written, in nanoseconds."""

    path: str
    size: int
    modified: int


def find_files(pattern: str) -> list[Found]:
    """The files a glob pattern names, or those below the folders it names; hidden ones are left out."""
    found = _local(str(local_path(pattern))) if is_local(pattern) else _remote(pattern)
    return sorted(found)


def digest(files: list[Found], root: str) -> str:
    """One short text that changes when any file comes, goes or changes."""
    lines = (
        f"{posixpath.relpath(f.path, root) if is_local(f.path) else f.path}\t{f.size}\t{f.modified}" for f in files
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def escaped(path: str) -> str:
    """A path that Spark takes for itself and not for a pattern."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _local(pattern: str) -> Iterator[Found]:
    for match in glob.glob(pattern, recursive=True):
        if os.path.isdir(match):
            for folder, below, names in os.walk(match):
                below[:] = [name for name in below if not _hidden(name)]
                yield from (_stat(os.path.join(folder, name)) for name in names if not _hidden(name))
        elif not _hidden(os.path.basename(match)):
            yield _stat(match)


def _stat(path: str) -> Found:
    facts = os.stat(path)
    return Found(path, facts.st_size, facts.st_mtime_ns)


def _remote(pattern: str) -> Iterator[Found]:
    from pyarrow import fs

    scheme, _, rest = pattern.partition("://")
    plain = _MAGIC.split(rest)[0]
    root = plain if plain == rest else posixpath.dirname(plain)
    system, base = fs.FileSystem.from_uri(f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{root}")
    below = rest.removeprefix(root).strip("/")
    for info in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
        inner = info.path.removeprefix(base).strip("/")
        wanted = not below or fnmatch.fnmatch(inner, below) or fnmatch.fnmatch(inner, f"{below}/*")
        if info.is_file and wanted and not any(_hidden(part) for part in inner.split("/")):
            yield Found(f"{scheme}://{root}/{inner}".rstrip("/"), info.size, info.mtime_ns or 0)


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))
