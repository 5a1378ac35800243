"""The contents of files: which have the same bytes as a file of another name, in their own batch or an earlier one.

`contents/<number>.parquet` has the hashes of the files of a batch. It is written before the commit of the batch, and counts
for later batches, which are read only once it is committed. `hashes-<number>.parquet` has all up to a batch: a cache, that
is rebuilt from the others if it is missing or damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.discovery import partition_values
from oncelake.sources.arrivals.manifests import REOPENED, Manifests, conform, from_parquet, to_parquet
from oncelake.storage.objects import remove_file, replace_file, storage

# `replaces` is 1 for a file whose earlier content was replaced by its batch.
CONTENTS = pa.schema({"hash": pa.string(), "path": pa.string(), "batch": pa.int64(), "replaces": pa.int64()})
_NUMBERED, _CACHE = re.compile(r"(\d{8,})\.parquet"), re.compile(r"hashes-(\d{8,})\.parquet")
_FOLDER = "contents"
# The cache is written after so many batches.
_MANY_BATCHES = 50


def to_hashes(high: pa.ChunkedArray, low: pa.ChunkedArray) -> pa.Array:
    """Return hashes as texts, from their halves as integers; null where there is none."""
    halves = np.column_stack([np.asarray(pc.fill_null(half, 0), ">i8") for half in (high, low)])
    digits = halves.tobytes().hex()
    texts = [digits[start : start + 32] for start in range(0, len(digits), 32)]
    return pa.array(texts, pa.string(), mask=np.asarray(pc.is_null(high), bool))


@dataclass(frozen=True)
class Contents:
    """The hashes of the files of a pipeline."""

    folder: str

    def write(self, number: int, paths: Sequence[str], hashes: Sequence[str | None], replaces: bool = False) -> None:
        """Write the hashes of the files of a batch, in place of those of an earlier attempt."""
        for cached in self._cached():
            if cached >= number:
                remove_file(self.folder, _cache_name(cached))
        count = len(hashes)
        table = pa.table([hashes, paths, [number] * count, [int(replaces)] * count], schema=CONTENTS)
        replace_file(self.folder, _name(number), to_parquet(table, {}))

    def find(self, identities: Collection[str], before: int) -> dict[str, str]:
        """Return the first file of each of some identities, in the batches before a number. Replaced content is not there."""
        wanted = pa.array({each.partition(" ")[0] for each in identities}, pa.string())
        found = self._rows(before, lambda table: pc.is_in(table["hash"], wanted)) if identities else []
        paths = pa.array({row["path"] for row in found}, pa.string())
        later = (
            self._rows(before, lambda table: pc.and_(pc.equal(table["replaces"], 1), pc.is_in(table["path"], paths)))
            if found
            else []
        )
        replaced = {row["path"]: row["batch"] for row in later}
        first: dict[str, str] = {}
        for row in found:
            if replaced.get(row["path"], -1) <= row["batch"]:
                first.setdefault(identity(row["hash"], row["path"]), row["path"])
        return {each: path for each, path in first.items() if each in identities}

    def _rows(self, before: int, is_wanted: Callable[[pa.Table], pa.Array]) -> list[dict[str, Any]]:
        """Return some rows of the batches before a number, oldest first."""
        tables = self._tables(before)
        return [
            row
            for table in tables
            for row in table.filter(pc.and_(is_wanted(table), pc.less(table["batch"], before))).to_pylist()
        ]

    def compact(self, through: int) -> None:
        """Write the cache of all batches up to a number, if there are many that it lacks."""
        newest = max(self._cached(), default=-1)
        if len([number for number in self._numbers(newest) if number <= through]) < _MANY_BATCHES:
            return
        tables = [table.filter(pc.less_equal(table["batch"], through)) for table in self._tables(through + 1)]
        replace_file(self.folder, _cache_name(through), to_parquet(pa.concat_tables(tables), {}))
        for cached in self._cached():
            if cached < through:
                remove_file(self.folder, _cache_name(cached))

    def _tables(self, before: int) -> Iterator[pa.Table]:
        """Yield the hashes of all batches, oldest first: the newest cache, and the batches after it."""
        through = -1
        for number in sorted(self._cached(), reverse=True):
            cached = self._read(_cache_name(number))
            if cached is not None:
                through = number
                yield cached
                break
        for number in self._numbers(through):
            if number < before and (table := self._read(_name(number))) is not None:
                yield table

    def _read(self, name: str) -> pa.Table | None:
        """Return what a file has; None if it is damaged: a copy is not noticed then, and nothing is lost."""
        try:
            found = from_parquet(storage(self.folder).read(name), CONTENTS)
        except (OSError, ValueError):
            return None
        return conform(found.replace_schema_metadata(None), CONTENTS)

    def _cached(self) -> list[int]:
        found = (_CACHE.fullmatch(name) for name in storage(self.folder).names())
        return [int(match[1]) for match in found if match]

    def _numbers(self, after: int) -> list[int]:
        found = (_NUMBERED.fullmatch(name) for name in storage(self.folder).names(_FOLDER))
        return sorted(number for match in found if match and (number := int(match[1])) > after)


def identity(content: str, path: str) -> str:
    """Return what the rows of a file are made from: the hash of its content, and the columns that its folders name."""
    folders = partition_values(path) if "=" in path else {}
    return f"{content} {json.dumps(sorted(folders.items()))}" if folders else content


def find_copies(paths: Sequence[str], identities: Sequence[str | None], earlier: dict[str, str]) -> dict[int, str]:
    """Return the files that another file was the same as before, by their number, and that file."""
    first, copies = dict(earlier), dict[int, str]()
    for number, (path, content) in enumerate(zip(paths, identities, strict=True)):
        if content is not None and first.setdefault(content, path) is not path:
            copies[number] = first[content]
    return copies


def reopen_copies(manifests: Manifests, replaced: pa.Table) -> None:
    """Record that skipped copies of files whose content was replaced by other content are not ingested: they count as new."""
    now = {row["path"]: row["hash"] if row["state"] == "done" else None for row in replaced.to_pylist()}
    for number, outcomes in list(manifests.outcomes_of(manifests.recorded())):
        originals, hashes = outcomes["duplicate_of"].to_pylist(), outcomes["hash"].to_pylist()
        skipped = pc.equal(outcomes["state"], "duplicate").to_pylist()
        lost = [
            each and original in now and content != now[original]
            for each, original, content in zip(skipped, originals, hashes, strict=True)
        ]
        if any(lost):
            states = pc.if_else(pa.array(lost, pa.bool_()), REOPENED, outcomes["state"])
            at = outcomes.column_names.index("state")
            manifests.record(number, outcomes.set_column(at, "state", states))


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:08}.parquet"


def _cache_name(number: int) -> str:
    return f"hashes-{number:08}.parquet"
