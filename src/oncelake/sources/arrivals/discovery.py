"""Discover the files that a pattern matches, as an Arrow table: a million files are never a million Python objects.

The pattern means the same as in `storage/listing`. What is left out is counted, with its reason: a file that somebody
expects and that never arrives is found in the report, not by reading this module.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import pyarrow as pa

from oncelake.sources.arrivals.matching import TEMPORARY, Glob, NameRules, States
from oncelake.storage.listing import readable, split_pattern
from oncelake.storage.options import is_s3, s3_uri
from oncelake.storage.paths import is_local, local_path

FILES = pa.schema({"path": pa.string(), "size": pa.int64(), "modified": pa.int64()})
# So many files at a time are Python objects.
CHUNK = 20_000
_SAMPLES = 10
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
NOT_UTF8, NOT_A_FILE = "name is not UTF-8", "not a regular file"
DANGLING, LOOP, LISTED = "link to nothing", "link that leads to itself", "link to a folder that is listed already"


class Ignored(NamedTuple):
    """A file that was left out, or a folder with everything in it, whose path ends with a slash."""

    path: str
    reason: str


@dataclass(frozen=True, eq=False)
class Discovery:
    """The files that exist now (path, size, modification time in nanoseconds), by path; and what was left out.

    `ignored` has up to ten examples of each reason, `ignored_by_reason` counts all of them.
    """

    files: pa.Table
    ignored: tuple[Ignored, ...]
    ignored_by_reason: Mapping[str, int]

    @property
    def ignored_count(self) -> int:
        """How many files and folders were left out."""
        return sum(self.ignored_by_reason.values())


def discover(pattern: str, root: str = "", ignore: Sequence[str] = TEMPORARY) -> Discovery:
    """Return the files that match a glob pattern, or that lie below a folder that matches it.

    Paths below `root` are relative to it: a project that is moved keeps its known files. Hidden names and names like one
    of `ignore` are left out in every component below the fixed prefix of the pattern. A folder that does not exist has no
    files; one that cannot be listed is an error, because its files would be taken for absent.
    """
    root = _plain(root)
    folder, parts = split_pattern(_plain(pattern), root)
    found = Found(_prefix(folder, root))
    with readable(folder):
        if is_local(folder):
            _LocalScan(found, Glob(parts), NameRules(ignore)).scan(folder)
        else:
            from oncelake.sources.arrivals.object_listing import list_remote

            list_remote(folder, found, Glob(parts), NameRules(ignore))
    return found.discovery()


def partition_values(path: str) -> dict[str, str | None]:
    """Return the values of the hive-style folders (`day=2024-03-15`) in a path, decoded as Spark does; the innermost wins."""
    return dict(folder_pairs(path))


def folder_pairs(path: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of the hive-style folders in a path, from the outermost one."""
    for name, is_pair, value in (folder.partition("=") for folder in path.split("/")[:-1]):
        if name and is_pair:
            yield _decode(name), None if value == _NO_PARTITION else _decode(value)


def _decode(text: str) -> str:
    """Decode `%3A` and the like. Spark encodes single ASCII characters only, never the bytes of UTF-8."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), text)


def _plain(path: str) -> str:
    """Return a path as it is compared and stored: without file://, and with one name for S3, because paths are identities."""
    if is_s3(path):
        return s3_uri(path).replace("s3://", "s3a://", 1)
    return str(local_path(path)) if path and is_local(path) else path


def stored_prefix(pattern: str, root: str) -> str:
    """Return what the stored paths of the files of a pattern start with; the same for every spelling of a folder."""
    root = _plain(root)
    return _prefix(split_pattern(_plain(pattern), root)[0], root)


def _prefix(folder: str, root: str) -> str:
    """Return what the paths of files in a folder start with: relative to the root if it lies below it, or was declared so."""
    if not is_local(folder):
        return f"{folder.rstrip('/')}/".removeprefix(f"{root.rstrip('/')}/" if root else "")
    plain = f"{_normal(folder).rstrip('/')}/"
    below = _below(plain, _normal(root))
    if below is not None:
        return below
    relative = _below(f"{folder.rstrip('/')}/", root)
    if relative is None or ".." in plain.split("/"):
        return plain if relative is None else relative
    return f"{posixpath.normpath(relative)}/"


def _below(folder: str, root: str) -> str | None:
    start = f"{root.rstrip('/')}/"
    return folder.removeprefix(start) if root and folder.startswith(start) else None


def _normal(path: str) -> str:
    """Return a local path without `..`; as it is, if that leads elsewhere, because there is a link before the `..`."""
    plain = posixpath.normpath(path) if path else ""
    try:
        return plain if plain == path or os.path.samefile(plain, path) else path
    except OSError:
        return path


class Found:
    """Collects files, and converts them to Arrow in chunks."""

    def __init__(self, prefix: str) -> None:
        """Collect files whose paths start with a prefix."""
        self.prefix = prefix
        self.paths: list[str] = []
        self.sizes: list[int] = []
        self.times: list[int] = []
        self.batches: list[pa.RecordBatch] = []
        self._ignored: Counter[str] = Counter()
        self._samples: dict[str, list[str]] = {}

    def ignore(self, path: str, reason: str) -> None:
        """Count something that is left out."""
        self._ignored[reason] += 1
        sample = self._samples.setdefault(reason, [])
        if len(sample) < _SAMPLES:
            sample.append(os.fsencode(path).decode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Convert what was collected."""
        try:
            paths = pa.array(self.paths, pa.string())
        except UnicodeEncodeError:
            self._drop_undecodable()
            paths = pa.array(self.paths, pa.string())
        columns = [paths, pa.array(self.sizes, pa.int64()), pa.array(self.times, pa.int64())]
        self.batches.append(pa.record_batch(columns, schema=FILES))
        for values in (self.paths, self.sizes, self.times):
            values.clear()

    def add(self, others: Iterable[Found]) -> None:
        """Add what others collected."""
        for other in others:
            other.flush()
            self.batches += other.batches
            for reason, sample in other._samples.items():  # noqa: SLF001  of the same class
                kept = self._samples.setdefault(reason, [])
                kept += sample[: _SAMPLES - len(kept)]
            self._ignored += other._ignored  # noqa: SLF001

    def discovery(self) -> Discovery:
        """Return everything, sorted by path."""
        self.flush()
        files = pa.Table.from_batches(self.batches, FILES)
        # Of a million paths, no more copies than one: without this, sorting makes another.
        self.batches.clear()
        files = files.combine_chunks()
        files = files.sort_by("path")
        examples = (Ignored(path, reason) for reason, paths in sorted(self._samples.items()) for path in sorted(paths))
        return Discovery(files, tuple(examples), dict(self._ignored))

    def _drop_undecodable(self) -> None:
        for path in self.paths:
            if not is_utf8(path):
                self.ignore(path, NOT_UTF8)
        good = [is_utf8(path) for path in self.paths]
        self.sizes, self.times = list(compress(self.sizes, good)), list(compress(self.times, good))
        self.paths = list(compress(self.paths, good))


def is_utf8(name: str) -> bool:
    """Return whether a name of the file system could be decoded; Python marks bytes that could not as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class _Folder:
    """A folder to scan: where it is, what the paths of its files start with, and how much of the pattern it matched."""

    path: str
    prefix: str
    states: States


class _LocalScan:
    """A scan of folders on the local disk. Real folders come first, then links, by name: each folder is listed once.

    So a link to a folder that is listed anyway (`latest`, or a loop) adds nothing, and the path of a file does not depend on
    the order in which the file system happens to name folders.
    """

    def __init__(self, found: Found, glob: Glob, rules: NameRules) -> None:
        self._found, self._glob, self._rules = found, glob, rules
        self._links: list[_Folder] = []
        self._listed: set[tuple[int, int, States]] = set()

    def scan(self, path: str) -> None:
        """Collect the files below the fixed prefix of the pattern; the prefix may be a file."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return
        if self._glob.is_empty and not stat.S_ISDIR(found.st_mode):
            self._single(path, found)
            return
        self._walk(_Folder(path, self._found.prefix, self._glob.start))
        while self._links:
            links, self._links = sorted(self._links, key=lambda link: link.path), []
            for link in links:
                if self._is_listed(link):
                    self._found.ignore(link.prefix, LISTED)
                else:
                    self._walk(link, again=False)

    def _single(self, path: str, found: os.stat_result) -> None:
        stored, reason = self._found.prefix.rstrip("/"), self._rules.reason(posixpath.basename(path))
        if reason is None and not stat.S_ISREG(found.st_mode):
            reason = NOT_A_FILE
        if reason:
            self._found.ignore(stored, reason)
        else:
            self._take(stored, found)

    def _walk(self, first: _Folder, again: bool = True) -> None:
        """Scan a folder and the real folders below it; those that are listed already only if that is wanted."""
        waiting = [first]
        while waiting:
            folder = waiting.pop()
            if not again and self._is_listed(folder):
                continue
            with readable(folder.path):
                try:
                    self._note(folder)
                    with os.scandir(folder.path) as entries:
                        self._scan(folder, entries, waiting)
                except FileNotFoundError:  # removed since it was seen
                    if folder is first and again:
                        raise

    def _scan(self, folder: _Folder, entries: Iterable[os.DirEntry[str]], waiting: list[_Folder]) -> None:
        prefix, matches, reason_for, take = (
            folder.prefix,
            self._glob.files(folder.states),
            self._rules.reason,
            self._take,
        )
        for entry in entries:
            name = entry.name
            try:
                if entry.is_dir():
                    self._folder(folder, entry, waiting)
                elif matches is None or matches(name):
                    reason = reason_for(name)
                    if reason is None:
                        take(prefix + name, entry.stat())
                    else:
                        self._found.ignore(prefix + name, reason)
            except OSError as error:
                self._cannot_stat(prefix + name, entry, error)

    def _take(self, path: str, status: os.stat_result) -> None:
        found = self._found
        if not stat.S_ISREG(status.st_mode):
            found.ignore(path, NOT_A_FILE)
            return
        found.paths.append(path)
        found.sizes.append(status.st_size)
        found.times.append(status.st_mtime_ns)
        if len(found.paths) >= CHUNK:
            found.flush()

    def _folder(self, parent: _Folder, entry: os.DirEntry[str], waiting: list[_Folder]) -> None:
        states = self._glob.below(parent.states, entry.name)
        if not states:
            return
        prefix = f"{parent.prefix}{entry.name}/"
        reason = self._rules.reason(entry.name) or (None if is_utf8(entry.name) else NOT_UTF8)
        if reason:
            self._found.ignore(prefix, reason)
        elif entry.is_symlink():
            self._links.append(_Folder(entry.path, prefix, states))
        else:
            waiting.append(_Folder(entry.path, prefix, states))

    def _cannot_stat(self, path: str, entry: os.DirEntry[str], error: OSError) -> None:
        """Go on after a file that vanished since it was seen, and after links that lead nowhere."""
        if error.errno == errno.ELOOP:
            self._found.ignore(path, LOOP)
        elif not isinstance(error, FileNotFoundError):
            raise error
        elif entry.is_symlink():
            self._found.ignore(path, DANGLING)

    def _note(self, folder: _Folder) -> None:
        self._listed.add(_identity(folder))

    def _is_listed(self, folder: _Folder) -> bool:
        with readable(folder.path):
            try:
                return _identity(folder) in self._listed
            except FileNotFoundError:
                return False


def _identity(folder: _Folder) -> tuple[int, int, States]:
    found = os.stat(folder.path)
    return found.st_dev, found.st_ino, folder.states
