"""List the input files that a glob pattern matches, without a JVM: their paths, sizes and modification times."""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from oncelake.errors import SourceUnreadable
from oncelake.storage.options import arrow_file_system
from oncelake.storage.paths import is_local, local_path

_MAGIC = re.compile(r"[*?\[{]")
ANY_DEPTH = "**"


@dataclass(frozen=True, order=True)
class InputFile:
    """One input file: its path, its size, and its modification time in nanoseconds."""

    path: str
    size: int
    modified: int


def find_files(pattern: str, root: str = "") -> list[InputFile]:
    """Return the files that match a glob pattern, or that lie below a folder that matches it.

    A pattern below `root` has its wildcards after it: the name of a project's folder is no pattern.
    Hidden and temporary names are skipped in every component below the fixed prefix of the pattern. A folder that does
    not exist has no files; one that cannot be listed is an error, because its files would be taken for absent.
    """
    with readable(pattern):
        local = is_local(pattern)
        folder, parts = split_pattern(
            str(local_path(pattern)) if local else pattern, str(local_path(root)) if local else root
        )
        found = _local(folder, parts) if local else _remote(folder, parts)
        return sorted(set(found))


def stat_remote(paths: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return size and modification time of files that are not on this machine; None for one that does not exist."""
    from oncelake.storage.object_store import in_parallel

    def stat_one(path: str) -> tuple[int, int] | None:
        system, name = arrow_file_system(path)
        info = system.get_file_info(name)
        return (info.size, info.mtime_ns or 0) if info.is_file else None

    return in_parallel(stat_one, paths) if paths else []


def digest(files: list[InputFile], root: str) -> str:
    """Return a short text that changes when a file is added, removed or changed, but not when `root` is moved."""
    prefix = f"{local_path(root)}/" if is_local(root) else root
    lines = (f"{file.path.removeprefix(prefix)}\t{file.size}\t{file.modified}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def text_lines(path: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a text file that may be compressed."""
    with readable(path), _open_expanded(path) as stream:
        yield from (line.rstrip("\n") for line in io.TextIOWrapper(stream, encoding, errors="replace"))


def first_bytes(path: str, count: int) -> bytes:
    """Return the first bytes of a file, at most `count`, expanded if it is compressed."""
    with _open_expanded(path) as stream:
        found: bytes = stream.read(count)
    return found


def _open_expanded(path: str) -> Any:
    from pyarrow import fs

    system, name = (fs.LocalFileSystem(), str(local_path(path))) if is_local(path) else arrow_file_system(path)
    return system.open_input_stream(name, compression="detect")


def escape_glob(path: str) -> str:
    """Escape a path so that Spark does not take it for a glob pattern."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raise what goes wrong while a path of the input is read as SourceUnreadable."""
    try:
        yield
    except OSError as error:
        raise SourceUnreadable(path=path, problem=f"{error.strerror or error}") from error


def _local(folder: str, parts: tuple[str, ...]) -> Iterator[InputFile]:
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return
    if parts or stat.S_ISDIR(found.st_mode):
        yield from _below(folder, parts or (ANY_DEPTH,))
    elif not is_hidden(posixpath.basename(folder)):
        yield InputFile(folder, found.st_size, found.st_mtime_ns)


def split_pattern(pattern: str, root: str) -> tuple[str, tuple[str, ...]]:
    """Split a pattern into its fixed prefix and the components from the first wildcard on, which is after the root."""
    parts, literal = pattern.rstrip("/").split("/"), root.rstrip("/").split("/")
    first = len(literal) if root and parts[: len(literal)] == literal else 0
    fixed = next((number for number in range(first, len(parts)) if _MAGIC.search(parts[number])), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "."), tuple(parts[fixed:])


def _below(folder: str, parts: tuple[str, ...]) -> Iterator[InputFile]:
    """Yield the files whose path below the folder matches the components of a pattern, or continues a match."""
    first, *others = parts
    rest = tuple(others)
    if first == ANY_DEPTH and rest:
        yield from _below(folder, rest)
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not is_hidden(entry.name)]
    for entry in visible:
        if first != ANY_DEPTH and not fnmatchcase(entry.name, first):
            continue
        if entry.is_dir():
            yield from _below(entry.path, parts if first == ANY_DEPTH else rest or (ANY_DEPTH,))
        elif not rest:
            found = entry.stat()
            yield InputFile(entry.path, found.st_size, found.st_mtime_ns)


def _remote(folder: str, parts: tuple[str, ...]) -> Iterator[InputFile]:
    from pyarrow import fs

    system, base = arrow_file_system(folder)
    if not parts and (info := system.get_file_info(base)).is_file and not is_hidden(info.base_name):
        yield InputFile(folder, info.size, info.mtime_ns or 0)
    for info in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
        inner = info.path.removeprefix(base).strip("/")
        names = inner.split("/")
        if inner and info.is_file and not any(map(is_hidden, names)) and _matches(names, parts):
            yield InputFile(f"{folder}/{inner}", info.size, info.mtime_ns or 0)


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether a path matches the components of a pattern, or lies below a folder that matches them."""
    if not parts:
        return True
    if parts[0] == ANY_DEPTH:
        return any(_matches(names[skipped:], parts[1:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def is_hidden(name: str) -> bool:
    """Return whether Spark skips the name, too: it would read no row of such a file."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
