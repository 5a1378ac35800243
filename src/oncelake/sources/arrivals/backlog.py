"""The backlog of a pipeline: which files are new, which batches are frozen and not done, and what became of the others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.errors import ManifestsMissing
from oncelake.model.arrivals import Waiting, WaitingBatch
from oncelake.model.contracts import Pins, Reading
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval
from oncelake.model.slices import Slice
from oncelake.sources.arrivals.clean_up import refuse_tables
from oncelake.sources.arrivals.contents import Contents, reopen_copies
from oncelake.sources.arrivals.discovery import Discovery, discover
from oncelake.sources.arrivals.known_files import Difference, KnownFiles, cached_through, may_be_due
from oncelake.sources.arrivals.manifests import LEFT, OUTCOMES, Manifests, decode_files
from oncelake.sources.arrivals.packing import split_batches
from oncelake.sources.arrivals.parts import is_large
from oncelake.sources.arrivals.path_dates import path_times
from oncelake.sources.arrivals.redoing import newly_redone, note_redone, with_stamps
from oncelake.sources.arrivals.restated_parts import finish_parts
from oncelake.sources.arrivals.restating import without_provenance
from oncelake.sources.arrivals.work_list import large_files

if TYPE_CHECKING:
    from oncelake.sources.arrivals.arriving import ArrivingFiles

_EXAMPLES = 3
# The looks of plans: the run that follows at once need not list a million files again, and compare them with the known ones.
_RECENT_SECONDS = 5.0
_looks: dict[tuple[str, str, str], Look] = {}


class Look(NamedTuple):
    """What a folder had at some moment, and how it differed from the files that the manifests name."""

    made: float
    listing: Discovery
    # Which batches were frozen then, and of which the outcomes were recorded.
    batches: tuple[list[int], list[int]]
    slice: Slice
    found: tuple[Discovery, Difference]


class Part(NamedTuple):
    """The files of one batch, and whether their rows replace those of their earlier content."""

    files: pa.Table
    replaces: bool


@dataclass(frozen=True)
class Backlog:
    """What is known of the files of a pipeline."""

    source: ArrivingFiles
    reading: Reading
    manifests: Manifests

    @classmethod
    def of(cls, source: ArrivingFiles, reading: Reading) -> Backlog:
        """Return the backlog of a source; nothing is read yet."""
        if source.archive is not None:
            refuse_tables(reading, source.archive)
        return cls(source, reading, Manifests(folder_of(reading)))

    def waiting(self, done: int | None) -> Waiting:
        """Return the frozen batches that are not done, and those that would be frozen from the files there are now."""
        numbers = self.manifests.numbers()
        batches = [self.frozen_batch(number) for number in self._undone(numbers, done)]
        discovery, found = self.look()
        first = numbers[-1] + 1 if numbers else 0
        for number, part in enumerate(self._split(found), first):
            batches.append(self.waiting_batch(number, part.files, frozen=False))
        return Waiting(self.source.stream, tuple(batches), tuple(self._notes(discovery, found)))

    def frozen(self, done: int | None) -> Waiting:
        """Return the frozen batches that are not done."""
        finish_parts(self.manifests)
        undone = self._undone(self.manifests.numbers(), done)
        return Waiting(self.source.stream, tuple(self.frozen_batch(number) for number in undone))

    def freeze(self, done: int | None) -> Waiting:
        """Freeze what has arrived, and return the frozen batches that are not done.

        A number is frozen once, by the runner that comes first. The others look again, so each file is in one manifest.
        """
        while True:
            finish_parts(self.manifests)
            numbers = self.manifests.numbers()
            undone = self._undone(numbers, done)
            first = numbers[-1] + 1 if numbers else 0
            parts = list(enumerate(self._split(self.look(recent=True)[1]), first))
            if all(self._freeze(number, part) for number, part in parts):
                _release_memory()
                batches = (self.frozen_batch(number) for number in (*undone, *(number for number, _ in parts)))
                return Waiting(self.source.stream, tuple(batches))

    def freeze_files(self, number: int, files: pa.Table, facts: Mapping[str, Any]) -> bool:
        """Freeze files under a number; return False if it is taken."""
        facts = {
            "path": self.source.path,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "provenance": list(self.source.provenance),
            **facts,
        }
        finish_parts(self.manifests)
        frozen = self.manifests.freeze(number, files, facts)
        failpoint("frozen")
        return frozen

    def next_number(self) -> int:
        """Return the number of the next batch to freeze; raise if manifests were lost, so that no number is given twice."""
        numbers = self.manifests.numbers()
        self.require_all(numbers, numbers[-1] if numbers else None)
        return numbers[-1] + 1 if numbers else 0

    def _freeze(self, number: int, part: Part) -> bool:
        return self.freeze_files(number, part.files, {"replaces": True} if part.replaces else {})

    def settle(self, facts: Mapping[int, Mapping[str, Any]]) -> None:
        """Record what became of the files of committed batches, where that is not recorded yet."""
        recorded = set(self.manifests.recorded())
        redone = newly_redone(self.manifests.folder, facts, recorded)
        for number in sorted({*(facts.keys() - recorded), *redone}):
            if accounts := facts[number].get("accounts"):
                outcomes = decode_files(accounts)
                if self.source.duplicates == "skip" and facts[number].get("frozen", {}).get("replaces"):
                    reopen_copies(self.manifests, outcomes)  # first: a kill must not leave it out
                self.manifests.record(number, outcomes)
                failpoint("accounted")
        if redone:
            note_redone(self.manifests.folder, facts, redone)
        self.contents.compact(max(facts, default=-1))
        if may_be_due(self.manifests.folder):
            KnownFiles.load(self.manifests.folder).compact()

    def rebuild(self, facts: Mapping[int, Mapping[str, Any]], done: int | None) -> list[int]:
        """Write the manifests and outcomes that are missing or damaged, from the accounts in the facts of the commits.

        Batches after `done` are in no target. If no commit tells of one, it becomes empty: its files count as new.
        """
        last = max([*self.manifests.numbers(), *facts], default=-1)
        damaged = [number for number in range(last + 1) if not self.manifests.is_readable(number)]
        written = []
        for number in damaged:
            accounts = facts.get(number, {}).get("accounts")
            if accounts or number > (-1 if done is None else done):
                files = decode_files(accounts) if accounts else OUTCOMES.empty_table()
                self._rebuild(number, files, facts.get(number, {}).get("frozen", {}))
                written.append(number)
        return written

    def _rebuild(self, number: int, files: pa.Table, frozen: Mapping[str, Any]) -> None:
        self._rebuild_contents(number, files, bool(frozen.get("replaces")))
        self.manifests.remove(number)
        self.manifests.freeze(number, files.select(["path", "size", "modified"]), {"path": self.source.path, **frozen})
        self.manifests.record(number, files)

    def _rebuild_contents(self, number: int, files: pa.Table, replaces: bool) -> None:
        if "hash" in files.column_names:
            is_known = pc.or_(pc.is_valid(files["hash"]), replaces)
            taken = files.filter(pc.and_(pc.equal(files["state"], "done"), is_known))
            self.contents.write(number, taken["path"].to_pylist(), taken["hash"].to_pylist(), replaces)

    @property
    def contents(self) -> Contents:
        """The hashes of the files."""
        return Contents(self.manifests.folder)

    def pinned_files(self, pins: Pins) -> pa.Table:
        """Return the files that a batch reads: those of its manifest, without those that it leaves out."""
        files = self.manifests.load(pins["manifest"]).files
        left = [path for state in LEFT for path in pins.get(state, ())]
        if left:
            files = files.filter(pc.invert(pc.is_in(files["path"], value_set=pa.array(left, pa.string()))))
        return with_stamps(files, pins["current"]) if pins.get("current") else files

    def left_paths(self, number: int) -> set[str]:
        """Return the files that a batch left to a later one; none if its outcomes are not recorded."""
        outcomes = self.manifests.outcomes(number)
        if outcomes is None:
            return set()
        left = outcomes.filter(pc.is_in(outcomes["state"], value_set=pa.array(LEFT)))
        return set(left["path"].to_pylist())

    def look(self, recent: bool = False) -> tuple[Discovery, Difference]:
        """Return the files there are now, and what is new or changed among them; with `recent` as a plan saw them just before, once.

        A file that has changed since then is noticed before it is read, like one that changes after any listing.
        """
        place = (self.manifests.folder, self.reading.lake.file(self.source.path), self.reading.lake.file(""))
        last = _looks.pop(place, None)
        if not recent or last is None or time.monotonic() - last.made >= _RECENT_SECONDS:
            last = None
        batches = self.manifests.numbers(), self.manifests.recorded()
        if last is not None and (last.batches, last.slice) == (batches, self.reading.slice):
            return last.found
        listing = discover(*place[1:]) if last is None else last.listing
        _release_memory()
        discovery = replace(listing, files=self.in_range(listing.files))
        found = discovery, KnownFiles.load(self.manifests.folder).subtract(discovery.files)
        _release_memory()
        if not recent:
            _looks[place] = Look(time.monotonic(), listing, batches, self.reading.slice, found)
        return found

    def in_range(self, files: pa.Table) -> pa.Table:
        """Return the files in the range of the reading, by the date in their path if that is declared, or when they were modified."""
        span, pattern = self.reading.slice, self.source.path_date
        if not isinstance(span, Interval):
            return files
        first, last = (int(instant.timestamp()) * 10**9 for instant in (span.start, span.end))
        times = files["modified"] if pattern is None else path_times(files["path"], pattern)
        return files.filter(pc.and_(pc.greater_equal(times, first), pc.less(times, last)))

    def _undone(self, numbers: list[int], done: int | None) -> list[int]:
        """Return the frozen batches after the last one that every target has; raise if manifests were lost."""
        self.require_all(numbers, done)
        return [number for number in numbers if done is None or number > done]

    def require_all(self, numbers: list[int], done: int | None) -> None:
        """Raise if a manifest is missing. Numbers have no gaps: each is frozen after the one before it."""
        done = -1 if done is None else done
        recorded = self.manifests.recorded(numbers[-1] if numbers else -1)
        last = max([*numbers, *recorded, done], default=-1)
        if last >= len(numbers):
            # What the batches up to a cache of known files took in is known, and none of them is read again.
            known = min(cached_through(self.manifests.folder), done)
            lost = [number for number in sorted(set(range(last + 1)).difference(numbers)) if number > known]
            if lost:
                raise ManifestsMissing(pipeline=self.reading.pipeline, folder=self.manifests.folder, number=lost[0])

    def frozen_batch(self, number: int) -> WaitingBatch:
        """Return a frozen batch."""
        files = self.manifests.load(number).files
        return self.waiting_batch(number, files, frozen=True)

    def waiting_batch(self, number: int, files: pa.Table, frozen: bool) -> WaitingBatch:
        """Return a batch of files, and how they are read."""
        return WaitingBatch(number, files.num_rows, size_of(files), frozen, self._explain(files))

    def _explain(self, files: pa.Table) -> str:
        """Say how the files of a batch are read."""
        split = int(pc.sum(large_files(files, self.source.split_by)).as_py() or 0)
        whole = int(pc.sum(is_large(files)).as_py() or 0) - split
        large = [f"{split:,} large, read in parts by their {self.source.split_by}"] if split else []
        large += [f"{whole:,} large, read by a task each"] if whole else []
        rest = files.num_rows - split - whole
        return ", ".join([*large, *(["the others packed" if large else "packed"] if rest else [])])

    def _split(self, found: Difference) -> list[Part]:
        """Return the files of the batches to freeze. Changed files whose rows are replaced have batches of their own."""
        new, changed = found.new, found.changed.select(found.new.column_names)
        if self.source.changed == "append" and changed.num_rows:
            new = pa.concat_tables([new, changed])
        limits = (self.source.max_files, self.source.max_bytes)
        parts = [Part(files, replaces=False) for files in split_batches(new, *limits)] if new.num_rows else []
        if self.source.changed == "replace" and changed.num_rows:
            changed = self._replaceable(found.changed).select(found.new.column_names)
        if self.source.changed == "replace" and changed.num_rows:
            parts += [Part(files, replaces=True) for files in split_batches(changed, *limits)]
        return parts

    def _replaceable(self, changed: pa.Table) -> pa.Table:
        """Return the changed files whose earlier rows say which file they came from."""
        unknown = without_provenance(self.manifests, changed["batch"].to_pylist())
        return changed.filter(pc.invert(pc.is_in(changed["batch"], value_set=pa.array(unknown, pa.int64()))))

    def _notes(self, discovery: Discovery, found: Difference) -> Iterator[str]:
        if found.changed.num_rows and self.source.changed == "refuse":
            paths = found.changed["path"][:_EXAMPLES].to_pylist()
            yield f"{found.changed.num_rows:,} ingested files have changed since, and are not read: {', '.join(paths)}"
        if self.source.changed == "replace":
            kept = found.changed.num_rows - self._replaceable(found.changed).num_rows
            if kept:
                yield f'{kept:,} changed files were ingested before provenance="file" was declared, and are not read'
        if discovery.ignored:
            examples = ", ".join(f"{each.path} ({each.reason})" for each in discovery.ignored[:_EXAMPLES])
            yield f"{discovery.ignored_count:,} files are left out: {examples}"


def _release_memory() -> None:
    """Give back what sorting and comparing a million files needed: Arrow would keep it while Spark runs."""
    pa.default_memory_pool().release_unused()


def folder_of(reading: Reading) -> str:
    """Return the folder of what is known of the files of a pipeline; of a renamed one, that of its former name."""
    names = (reading.pipeline, *reading.formerly)
    folders = [reading.lake.internal_path("arrivals", quote(name, safe=" ")) for name in names]
    return next((folder for folder in folders[1:] if Manifests(folder).numbers()), folders[0])


def size_of(files: pa.Table) -> int:
    """Return the bytes of some files."""
    return int(pc.sum(files["size"]).as_py() or 0)
