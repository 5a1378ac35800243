"""List the files of a pattern in an object store: a few folders deep one by one, then everything below them, in parallel.

A store answers with a page of a thousand names at a time, and the next page needs the end of the one before: only listings
of different prefixes run side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.discovery import CHUNK, FILES, Found
from oncelake.sources.arrivals.matching import Glob, NameRules, States
from oncelake.storage.object_store import PARALLEL, in_parallel, is_object_store
from oncelake.storage.options import arrow_file_system, is_s3, object_store

UNREADABLE_KEY = "name cannot be a path"
# Folders are listed one by one for so many levels, until there are enough of them for all connections.
_LEVELS = 4
_RETRIES = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
# obstore refuses such names, and Hadoop cannot open them.
_BAD_KEY = re.compile(r"(^|/)(\.{0,2})(/|$)|[\x00-\x1f\x7f]")


def list_remote(folder: str, found: Found, glob: Glob, rules: NameRules) -> None:
    """Collect the files below the fixed prefix of a pattern; the prefix may be a file."""
    listing = _RemoteListing(folder, found.prefix, glob, rules)
    with _errors():
        if glob.is_empty:
            found.add([listing.single()])
        if not is_object_store(folder):
            found.add([listing.list_by_arrow("")])
            return
        prefixes = [""]
        for _ in range(_LEVELS):
            if 0 < len(prefixes) < PARALLEL:
                levels = in_parallel(listing.list_level, prefixes)
                found.add(each for each, _ in levels)
                prefixes = [inner for _, folders in levels for inner in folders]
        if prefixes:
            found.add(in_parallel(listing.list_below, prefixes))


class _RemoteListing:
    """The listing of one folder of a store."""

    def __init__(self, folder: str, prefix: str, glob: Glob, rules: NameRules) -> None:
        self._folder, self._prefix, self._glob, self._rules = folder, prefix, glob, rules
        self._store: Any = object_store(folder, retry_config=_RETRIES) if is_object_store(folder) else None

    def single(self) -> Found:
        """Return the file that the pattern names, if there is one."""
        found = Found(self._prefix)
        system, path = arrow_file_system(self._folder)
        info = system.get_file_info(path)
        stored, reason = self._prefix.rstrip("/"), self._rules.reason(path.rpartition("/")[2])
        if not info.is_file:
            return found
        if reason:
            found.ignore(stored, reason)
        else:
            columns = [[stored], [info.size], self._times([info]).cast(pa.int64())]
            found.batches.append(pa.record_batch(columns, schema=FILES))
        return found

    def list_level(self, prefix: str) -> tuple[Found, list[str]]:
        """Return the files in a folder, and the folders in it that may contain others."""
        from obstore.exceptions import InvalidPathError

        try:
            objects, folders = self._objects(prefix)
        except InvalidPathError:
            return self.list_by_arrow(prefix), []
        selected = self._selected()
        selected.take(objects)
        return selected.found, [each for each in folders if selected.states(each)]

    def list_below(self, prefix: str) -> Found:
        """Return all files below a folder."""
        from obstore.exceptions import InvalidPathError

        selected = self._selected()
        try:
            for batch in self._store.list(prefix, chunk_size=CHUNK, return_arrow=True):
                selected.take(self._without_folders(pa.table(batch)))
        except InvalidPathError:
            return self.list_by_arrow(prefix)
        return selected.found

    def list_by_arrow(self, prefix: str) -> Found:
        """Return all files below a folder as pyarrow lists them: slower, but in every store, and with every name."""
        from pyarrow import fs

        selected = self._selected()
        system, base = arrow_file_system(self._folder)
        selector = fs.FileSelector(f"{base}/{prefix}".rstrip("/"), recursive=True, allow_not_found=True)
        files = [info for info in system.get_file_info(selector) if info.is_file]
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            keys = [info.path.removeprefix(f"{base}/") for info in chunk]
            columns = {"path": keys, "size": [info.size for info in chunk], "last_modified": self._times(chunk)}
            selected.take(pa.table(columns), _BAD_KEY)
        return selected.found

    def _objects(self, prefix: str) -> tuple[pa.Table, list[str]]:
        """Return the objects and folders in a folder, without its own object, whose name ends with a slash."""
        listed = self._store.list_with_delimiter(prefix or None, return_arrow=True)
        objects = pa.table(listed["objects"])
        return objects.filter(pc.not_equal(objects["path"], prefix)), listed["common_prefixes"]

    def _selected(self) -> _Selected:
        return _Selected(self._prefix, self._glob, self._rules)

    def _times(self, infos: Sequence[Any]) -> pa.Array:
        """Return modification times. S3 says them in whole seconds, except that some servers list smaller fractions."""
        unit = 1_000_000_000 if is_s3(self._folder) else 1
        return pa.array([(info.mtime_ns or 0) // unit * unit for info in infos], pa.timestamp("ns", "UTC"))

    def _without_folders(self, listed: pa.Table) -> pa.Table:
        """Leave out the objects that stand for folders: empty ones, whose slash at the end the listing does not show."""
        empty = pc.equal(listed["size"], 0)
        if not pc.any(empty).as_py():
            return listed
        parents = {path.rpartition("/")[0] for path in listed.filter(empty)["path"].to_pylist()}
        files = pa.concat_tables([self._objects(parent)[0] for parent in parents])
        is_file = pc.is_in(listed["path"], value_set=files["path"])
        return listed.filter(pc.or_(is_file, pc.invert(empty)))


class _Selected:
    """What of a listing matches the pattern."""

    def __init__(self, prefix: str, glob: Glob, rules: NameRules) -> None:
        self.found = Found(prefix)
        self._glob, self._rules = glob, rules
        self._states: dict[str, States] = {"": glob.start}

    def states(self, folder: str) -> States:
        """Return how much of the pattern a folder matched; nothing if its files are left out."""
        known = self._states.get(folder)
        if known is None:
            known = self._states[folder] = self._find_states(folder)
        return known

    def take(self, listed: pa.Table, bad_key: re.Pattern[str] | None = None) -> None:
        """Collect what matches, without the keys that no reader can open."""
        for batch in listed.select(["path", "size", "last_modified"]).to_batches(max_chunksize=CHUNK):
            keys = batch.column(0).to_pylist()
            chosen = batch.filter(pa.array([self._matches(key, bad_key) for key in keys], pa.bool_()))
            paths = pc.binary_join_element_wise(self.found.prefix, chosen.column(0), "")
            times = pc.floor_temporal(chosen.column(2), unit="second") if bad_key is None else chosen.column(2)
            columns = [paths, chosen.column(1).cast(pa.int64()), times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())]
            self.found.batches.append(pa.record_batch(columns, schema=FILES))

    def _matches(self, key: str, bad_key: re.Pattern[str] | None) -> bool:
        if bad_key is not None and bad_key.search(key):
            self.found.ignore(self.found.prefix + key, UNREADABLE_KEY)
            return False
        folder, _, name = key.rpartition("/")
        states = self.states(folder)
        matches = self._glob.files(states)
        if not name or not states or (matches is not None and not matches(name)):
            return False
        reason = self._rules.reason(name)
        if reason:
            self.found.ignore(self.found.prefix + key, reason)
        return reason is None

    def _find_states(self, folder: str) -> States:
        parent, _, name = folder.rpartition("/")
        states = self._glob.below(self.states(parent), name)
        if states and (reason := self._rules.reason(name)):
            self.found.ignore(f"{self.found.prefix}{folder}/", reason)
            return frozenset()
        return states


@contextmanager
def _errors() -> Iterator[None]:
    """Raise what goes wrong in a store as an error of files."""
    if find_spec("obstore") is None:
        yield
        return
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise OSError(str(error).splitlines()[0]) from error
