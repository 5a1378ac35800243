"""Refuse to restate files where only the order of batches decides, and a newer batch is not restated with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.errors import BatchesNotRedone
from oncelake.model.slices import Whole
from oncelake.sources.arrivals.known_files import KnownFiles

if TYPE_CHECKING:
    from oncelake.sources.arrivals.backlog import Backlog


def refuse_older(backlog: Backlog, files: pa.Table, batches: pa.ChunkedArray, done: int | None, target: str) -> None:
    """Raise BatchesNotRedone if a batch after the first of these has rows of another file: its keys would get older values."""
    newer = _newer(backlog, files["path"].to_pylist(), batches)
    if not newer:
        return
    reading = backlog.reading
    older = files["path"][pc.index(batches, pc.min(batches)).as_py()].as_py()
    raise BatchesNotRedone(
        verb="restate",
        what=target,
        problem=f"{next(iter(newer))} came after {older}, and is not restated with it: a key in both would get the older value",
        pipeline=reading.pipeline,
        way=_way(backlog, any(number > (-1 if done is None else done) for number in newer.values())),
    )


def _way(backlog: Backlog, unfinished: bool) -> str:
    """Return what works instead, as far as that is known."""
    reading = backlog.reading
    ways = [f"if no key is in two files, declare any_order=True in {reading.where}"]
    if unfinished:
        ways.append(f"take in first what is frozen: oncelake run {reading.pipeline}")
    elif not _newer_of_all(backlog):
        ways.append(f"restate all files, in their order: oncelake restate {reading.pipeline}")
    return "".join(f"{way}; or " for way in ways)


def _newer_of_all(backlog: Backlog) -> dict[str, int]:
    """Return the files that stand in the way of a restatement of all files: they are gone, and came after others."""
    everything = replace(backlog, reading=replace(backlog.reading, slice=Whole()))
    known = KnownFiles.load(backlog.manifests.folder).files
    there = everything.look()[0].files["path"]
    found = known.filter(pc.is_in(known["path"], value_set=there))
    return _newer(backlog, found["path"].to_pylist(), found["batch"])


def _newer(backlog: Backlog, chosen: Collection[str], batches: pa.ChunkedArray) -> dict[str, int]:
    """Return the files that have rows of a batch after the first of those that are chosen, and are not, with that batch."""
    if not len(batches):
        return {}
    known = KnownFiles.load(backlog.manifests.folder).files
    later = known.filter(pc.greater(known["batch"], pc.min(batches))).sort_by("batch")
    numbers = sorted(set(later["batch"].to_pylist()))
    # The rows of a retry are of the files that they came from.
    origins = {
        path: origin
        for manifest in backlog.manifests.load_all(numbers)
        for path, origin in manifest.facts.get("origins", {}).items()
    }
    without, paths = _without_rows(backlog, numbers), set(chosen)
    pairs = zip(later["path"].to_pylist(), later["batch"].to_pylist(), strict=True)
    found = ((origins.get(path, path), number) for path, number in pairs if (number, path) not in without)
    return {path: number for path, number in found if path not in paths}


def _without_rows(backlog: Backlog, numbers: Collection[int]) -> set[tuple[int, str]]:
    """Return the files of batches of which nothing was written: skipped copies, and those in quarantine."""
    recorded = sorted(set(numbers).intersection(backlog.manifests.recorded()))
    return {
        (number, path)
        for number, outcomes in backlog.manifests.outcomes_of(recorded)
        for path in outcomes.filter(pc.equal(outcomes["rows_written"], 0))["path"].to_pylist()
    }
