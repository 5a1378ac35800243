"""Restate a range of files: they are read again, as batches of their own, whose rows replace those of the files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.errors import BatchesNotRedone
from oncelake.model.arrivals import Waiting
from oncelake.sources.arrivals.known_files import KnownFiles
from oncelake.sources.arrivals.manifests import Manifests
from oncelake.sources.arrivals.packing import split_batches
from oncelake.sources.arrivals.restated_order import refuse_older
from oncelake.sources.arrivals.restated_parts import finish_parts, write_parts
from oncelake.storage.paths import INTERNAL

if TYPE_CHECKING:
    from oncelake.sources.arrivals.backlog import Backlog

_EXAMPLES = 3


class Chosen(NamedTuple):
    """The files to restate, as they are now, and the batches that ingested them; and what is to be said of others."""

    files: pa.Table
    batches: pa.ChunkedArray
    notes: tuple[str, ...]


def restated(backlog: Backlog, done: int | None, ordered: str | None) -> Waiting:
    """Return the batches that would be frozen, or are frozen and not done, for the same range."""
    pending = _pending(backlog, done)
    if pending:
        return Waiting(backlog.source.stream, tuple(backlog.frozen_batch(number) for number in pending))
    chosen = _chosen(backlog, done)
    if ordered:
        refuse_older(backlog, chosen.files, chosen.batches, done, ordered)
    first = backlog.next_number()
    parts = _split(backlog, chosen, ordered)
    batches = (backlog.waiting_batch(number, part, frozen=False) for number, part in enumerate(parts, first))
    return Waiting(backlog.source.stream, tuple(batches), chosen.notes)


def freeze_restated(backlog: Backlog, done: int | None, ordered: str | None) -> tuple[str, ...]:
    """Freeze the batches, unless those of the same range are frozen and not done; return what is to be said of other files."""
    while not _pending(backlog, done):
        number = backlog.next_number()  # first: what others freeze meanwhile is looked at again
        chosen = _chosen(backlog, done)
        if ordered:
            refuse_older(backlog, chosen.files, chosen.batches, done, ordered)
        parts = _split(backlog, chosen, ordered)
        if not parts:
            return chosen.notes
        facts = {"replaces": True, "restates": _text(backlog), **write_parts(backlog.manifests, parts)}
        if backlog.freeze_files(number, parts[0], facts):
            finish_parts(backlog.manifests)
            return chosen.notes
    finish_parts(backlog.manifests)
    return ()


def without_provenance(manifests: Manifests, batches: Iterable[int]) -> set[int]:
    """Return the batches whose rows do not say which file they came from."""
    found = manifests.load_all(sorted(set(batches)))
    return {each.number for each in found if "file" not in each.facts.get("provenance", ["file"])}


def _text(backlog: Backlog) -> str:
    return str(backlog.reading.slice)


def _pending(backlog: Backlog, done: int | None) -> list[int]:
    numbers = backlog.manifests.numbers(-1 if done is None else done)
    facts = {manifest.number: manifest.facts for manifest in backlog.manifests.load_all(numbers)}
    return [number for number in numbers if facts[number].get("restates") == _text(backlog)]


def _split(backlog: Backlog, chosen: Chosen, ordered: str | None) -> list[pa.Table]:
    """Return the files of the batches to freeze: where the order matters, those of each batch apart, in the order of the batches."""
    files, batches = chosen.files, chosen.batches
    numbers = sorted(set(batches.to_pylist())) if ordered else []
    groups = [files.filter(pc.equal(batches, number)) for number in numbers] if ordered else [files]
    limits = (backlog.source.max_files, backlog.source.max_bytes)
    return [part for group in groups if group.num_rows for part in split_batches(group, *limits)]


def _chosen(backlog: Backlog, done: int | None) -> Chosen:
    """Return the files of the range that are ingested and still there, as they are now, and what is to be said of the others."""
    known = KnownFiles.load(backlog.manifests.folder).files
    known = known.filter(pc.less_equal(known["batch"], -1 if done is None else done))
    discovery, _ = backlog.look()
    position = pc.index_in(discovery.files["path"], value_set=known["path"])
    files = discovery.files.filter(pc.is_valid(position))
    batches = known["batch"].take(position.drop_null())
    taken = _taken(backlog, files, batches)
    if backlog.source.names_files:
        _refuse_unknown(backlog, batches.filter(taken))
    inside = backlog.in_range(known)
    # Files of ours, with the rows of a retry, are no files that arrived.
    inside = inside.filter(pc.invert(pc.match_substring(inside["path"], f"/{INTERNAL}/arrivals/")))
    gone = inside.filter(pc.invert(pc.is_in(inside["path"], value_set=discovery.files["path"])))
    return Chosen(files.filter(taken), batches.filter(taken), tuple(_gone(gone)))


def _taken(backlog: Backlog, files: pa.Table, batches: pa.ChunkedArray) -> pa.Array:
    """Say of each file whether its rows were ingested: a copy that was skipped has none."""
    skipped: set[tuple[int, str]] = set()
    recorded = set(backlog.manifests.recorded())
    for number, outcome in backlog.manifests.outcomes_of(sorted(set(batches.to_pylist()) & recorded)):
        copies = outcome.filter(pc.equal(outcome["state"], "duplicate"))
        skipped.update((number, path) for path in copies["path"].to_pylist())
    pairs = zip(batches.to_pylist(), files["path"].to_pylist(), strict=True)
    return pa.array([pair not in skipped for pair in pairs], pa.bool_())


def _refuse_unknown(backlog: Backlog, batches: pa.ChunkedArray) -> None:
    """Refuse files that were ingested before the provenance of rows was declared: their rows cannot be found."""
    unknown = without_provenance(backlog.manifests, batches.to_pylist())
    if unknown:
        reading = backlog.reading
        problem = f'the rows of batch {min(unknown)} were written before provenance="file" was declared'
        what = reading.writes[0].target if reading.writes else reading.pipeline
        raise BatchesNotRedone(verb="restate", what=what, problem=problem, pipeline=reading.pipeline, way="")


def _gone(gone: pa.Table) -> Iterable[str]:
    if gone.num_rows:
        examples = ", ".join(gone["path"][:_EXAMPLES].to_pylist())
        yield f"{gone.num_rows:,} files of the range are no longer there, and their rows stay as they are: {examples}"
