"""Known files: everything that was ever frozen in a manifest, to be subtracted from a listing.

The manifests and outcomes are the truth. `known-<number>.parquet` has everything up to a batch, so that a start reads one
file and the few manifests after it. It is a cache: if it is missing or damaged, it is rebuilt from the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.manifests import (
    LEFT,
    Manifests,
    conform,
    from_parquet,
    known_name,
    known_numbers,
    to_parquet,
)
from oncelake.storage.objects import remove_file, replace_file, storage

KNOWN = pa.schema([*FILES, pa.field("batch", pa.int64())])
# The cache is rewritten after so many batches, or when it grows by a quarter, but not for a few files.
_MANY_BATCHES, _GROWTH, _FEW_FILES = 50, 0.25, 1_000
# So many files of a listing are looked up at a time.
_LOOKED_UP = 100_000
# The newest caches that are kept: the second is read if the first is damaged.
_KEPT = 2


@dataclass(frozen=True, eq=False)
class Difference:
    """The files of a listing that are new, and known ones that have another size or modification time.

    Changed files have the columns of the listing, then `known_size`, `known_modified` and `batch`, as they were frozen.
    """

    new: pa.Table
    changed: pa.Table


@dataclass(frozen=True, eq=False)
class KnownFiles:
    """The files of all batches: those up to a batch in one table, and those of the batches after it, one table each."""

    folder: str
    base: pa.Table
    base_number: int
    tail: tuple[tuple[int, pa.Table], ...]
    # The last batch up to which all outcomes are recorded.
    settled: int

    @classmethod
    def load(cls, folder: str) -> KnownFiles:
        """Read the newest cache that can be read, and the manifests and outcomes after it."""
        manifests = Manifests(folder)
        number, base = _newest_cache(folder)
        # The outcomes are listed first: those of a batch that is settled meanwhile are read the next time.
        recorded = set(manifests.recorded(number))
        numbers = manifests.numbers(number)
        settled = number
        for expected, each in enumerate(numbers, number + 1):
            # A cache never goes beyond a manifest that is missing: its files would be forgotten.
            if each != expected or each not in recorded:
                break
            settled = each
        return cls(folder, base, number, tuple(_tail(manifests, numbers, recorded)), settled)

    @cached_property
    def files(self) -> pa.Table:
        """Every known file once, with the number of its newest batch: path, size, modified, batch."""
        return _merge(self.base, [files for _, files in self.tail])

    def subtract(self, listing: pa.Table) -> Difference:
        """Return what of a listing is new, and what has changed since it was frozen."""
        newest = _merge(KNOWN.empty_table(), [files for _, files in self.tail])
        parts = [_subtract(files, _replace(*known)) for files, *known in _aligned(listing, self.base, newest)]
        return Difference(
            pa.concat_tables([part.new for part in parts]), pa.concat_tables([part.changed for part in parts])
        )

    def compact(self, always: bool = False) -> KnownFiles:
        """Write the cache if many batches or files came since; return the known files as they are kept then.

        Batches whose outcomes are not recorded, and those after them, stay out of it: their files may still turn out not to
        be known. Older caches are removed once the new one was read back; manifests and outcomes never are.
        """
        settled = [files for number, files in self.tail if number <= self.settled]
        if not settled or not (always or self._is_due(settled)):
            return self
        whole = _merge(self.base, settled).sort_by("path")
        replace_file(self.folder, known_name(self.settled), to_parquet(whole, {}))
        if _read_cache(self.folder, self.settled) is None:
            return self
        for old in known_numbers(self.folder)[_KEPT:]:
            remove_file(self.folder, known_name(old))
        left = tuple((number, files) for number, files in self.tail if number > self.settled)
        return KnownFiles(self.folder, whole, self.settled, left, self.settled)

    def _is_due(self, settled: Sequence[pa.Table]) -> bool:
        added = sum(files.num_rows for files in settled)
        return len(settled) >= _MANY_BATCHES or added >= max(_FEW_FILES, _GROWTH * self.base.num_rows)


def cached_through(folder: str) -> int:
    """Return the batch up to which the newest cache that can be read goes; -1 if there is none."""
    return _newest_cache(folder)[0]


def may_be_due(folder: str) -> bool:
    """Return whether `compact` may have something to do, by the manifests after the newest cache; that is not read."""
    manifests = Manifests(folder)
    numbers = manifests.numbers(max(known_numbers(folder), default=-1))
    if len(numbers) >= _MANY_BATCHES:
        return True
    added = sum(int(manifest.files.num_rows) for manifest in manifests.load_all(numbers))
    return added >= _FEW_FILES


def _newest_cache(folder: str) -> tuple[int, pa.Table]:
    """Return the newest cache that can be read, and the batch up to which it goes; -1 and no files if there is none."""
    for number in known_numbers(folder):
        found = _read_cache(folder, number)
        if found is not None:
            return number, found
    return -1, KNOWN.empty_table()


def _read_cache(folder: str, number: int) -> pa.Table | None:
    try:
        found = from_parquet(storage(folder).read(known_name(number)), KNOWN)
    except (OSError, ValueError):  # it is rebuilt
        return None
    return found.replace_schema_metadata(None)


def _tail(manifests: Manifests, numbers: Sequence[int], recorded: set[int]) -> Iterable[tuple[int, pa.Table]]:
    """Yield the known files of batches, as they were read: those of the manifest, without those left for a later batch."""
    outcomes = manifests.outcomes_of(number for number in numbers if number in recorded)
    for manifest in manifests.load_all(numbers):
        files = manifest.files
        if manifest.number in recorded:
            _, outcome = next(outcomes)
            # A batch that is read again may read a file as it is then, and not as it was frozen.
            files = outcome.filter(pc.invert(pc.is_in(outcome["state"], value_set=pa.array(LEFT)))).select(FILES.names)
        yield manifest.number, files.append_column("batch", pa.repeat(manifest.number, files.num_rows))


def _aligned(listing: pa.Table, *known: pa.Table) -> Iterator[tuple[pa.Table, ...]]:
    """Yield tables that are sorted by path in ranges of the same paths: to look up a range needs a fraction of the memory."""
    starts, count = [0] * len(known), listing.num_rows
    step = _LOOKED_UP if all(map(_is_sorted, (listing, *known))) else max(count, 1)
    for start in range(0, max(count, 1), step):
        ends = [table.num_rows for table in known]
        if start + step < count:
            following = listing["path"][start + step].as_py()
            ends = [bisect_left(table["path"], following, key=lambda path: path.as_py()) for table in known]
        yield (
            listing.slice(start, step),
            *(table.slice(begin, end - begin) for table, begin, end in zip(known, starts, ends, strict=True)),
        )
        starts = ends


def _is_sorted(files: pa.Table) -> bool:
    paths = files["path"].combine_chunks()
    return files.num_rows < 2 or bool(pc.all(pc.less_equal(paths[:-1], paths[1:])).as_py())


def _subtract(listing: pa.Table, files: pa.Table) -> Difference:
    position = pc.index_in(listing["path"], value_set=files["path"])
    known = files.select(["size", "modified", "batch"]).take(position)
    # Null for new files, which the filter drops.
    differs = pc.or_(pc.not_equal(listing["size"], known["size"]), pc.not_equal(listing["modified"], known["modified"]))
    changed = listing.filter(differs)
    frozen = known.rename_columns(["known_size", "known_modified", "batch"]).filter(differs)
    for name in frozen.column_names:
        changed = changed.append_column(name, frozen[name])
    return Difference(listing.filter(pc.is_null(position)), changed)


def _merge(base: pa.Table, later: Sequence[pa.Table]) -> pa.Table:
    """Return every path once, as the newest batch has it."""
    return _replace(base, _newest_per_path(conform(pa.concat_tables(later), KNOWN))) if later else base


def _replace(base: pa.Table, newest: pa.Table) -> pa.Table:
    if not base.num_rows or not newest.num_rows:
        return newest if newest.num_rows else base
    return pa.concat_tables([base.filter(pc.invert(pc.is_in(base["path"], value_set=newest["path"]))), newest])


def _newest_per_path(files: pa.Table) -> pa.Table:
    ordered = files.sort_by([("path", "ascending"), ("batch", "descending")])
    if not ordered.num_rows:
        return ordered
    paths = ordered["path"].combine_chunks()
    first = pc.not_equal(paths[1:], paths[:-1])
    return ordered.filter(pa.concat_arrays([pa.array([True]), first]))
