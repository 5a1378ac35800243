"""The true states of what is in quarantine, by the manifests of retries and of later batches that have the same files.

The table says what an attempt could not read. A batch that is read again writes its entries anew, so whether they were retried is
read from the manifests: those stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.delta.quarantine import DROPPED, QUARANTINED, RETRIED
from oncelake.model.arrivals import QuarantinedRow
from oncelake.sources.arrivals.manifests import CHANGED, GONE, Manifest

if TYPE_CHECKING:
    from oncelake.sources.arrivals.backlog import Backlog

REPLACED = "replaced"


class Retry(NamedTuple):
    """The batch of a retry, the file that it reads, and the digest of the raw text; None for a file, or if it is not known."""

    batch: int
    path: str
    digest: str | None


def true_states(backlog: Backlog, rows: Sequence[QuarantinedRow], done: int | None) -> list[QuarantinedRow]:
    """Return everything in quarantine with its state: open, retried, dropped, or replaced by a later batch with its file."""
    if not rows:
        return []
    manifests = list(backlog.manifests.load_all(backlog.manifests.numbers()))
    rows = _with_retries(backlog, rows, manifests)
    finished = [each for each in manifests if done is not None and each.number <= done]
    return _with_replaced(backlog, rows, finished)


def with_retries(backlog: Backlog, rows: Sequence[QuarantinedRow]) -> list[QuarantinedRow]:
    """Return rows with their states: what a manifest has is retried, also if its runner was killed right after."""
    return _with_retries(backlog, rows, backlog.manifests.load_all(backlog.manifests.numbers())) if rows else []


def _with_retries(
    backlog: Backlog, rows: Iterable[QuarantinedRow], manifests: Iterable[Manifest]
) -> list[QuarantinedRow]:
    retries: dict[tuple[Any, ...], Retry] = {}
    for manifest in manifests:
        retries |= _retries_of(manifest)
    left = _left_by_retries(backlog, {retry.batch for retry in retries.values()})
    return [_with_retry(row, retries.get(place_of(row.key)), left) for row in rows]


def _retries_of(manifest: Manifest) -> dict[tuple[Any, ...], Retry]:
    found = {place_of(key): Retry(manifest.number, key[1], None) for key in manifest.facts.get("retries", ())}
    for path, places in manifest.facts.get("rows", {}).items():
        found |= {place_of(key): Retry(manifest.number, path, digest) for _, *key, digest in places}
    return found


def place_of(key: Sequence[Any]) -> tuple[Any, ...]:
    """Return where a row is by its key: the offset of a line depends on the encoding, in which it may be read otherwise."""
    batch, file, line, offset = key
    return batch, file, line, offset if line is None else None


def _left_by_retries(backlog: Backlog, batches: set[int]) -> set[tuple[int, str]]:
    """Return the files that retries could not read, with their batches: they had changed or were gone."""
    recorded = sorted(batches.intersection(backlog.manifests.recorded()))
    found: set[tuple[int, str]] = set()
    for number, outcomes in backlog.manifests.outcomes_of(recorded):
        left = outcomes.filter(pc.is_in(outcomes["state"], value_set=pa.array([CHANGED, GONE])))
        found.update((number, path) for path in left["path"].to_pylist())
    return found


def _with_retry(row: QuarantinedRow, retry: Retry | None, left: set[tuple[int, str]]) -> QuarantinedRow:
    if row.state == DROPPED or retry is None:
        return row
    if (retry.batch, retry.path) in left or retry.digest not in (None, row.digest):
        return replace(row, state=QUARANTINED, retried_in=None)
    return replace(row, state=RETRIED, retried_in=retry.batch)


def _with_replaced(
    backlog: Backlog, rows: Sequence[QuarantinedRow], manifests: Sequence[Manifest]
) -> list[QuarantinedRow]:
    """Return rows without open ones whose file was ingested again: a row if its file was replaced, a file in any way."""
    if not any(row.state == QUARANTINED for row in rows):
        return list(rows)
    origins = {path: file for each in manifests for path, file in each.facts.get("origins", {}).items()}
    wanted = pa.array({origins.get(row.file, row.file) for row in rows if row.state == QUARANTINED}, pa.string())
    replaced, ingested = dict[str, int](), dict[str, int]()
    for manifest in manifests:
        paths = manifest.files["path"].filter(pc.is_in(manifest.files["path"], value_set=wanted)).to_pylist()
        left = backlog.left_paths(manifest.number) if paths else ()
        taken = dict.fromkeys((path for path in paths if path not in left), manifest.number)
        ingested |= taken
        replaced |= taken if manifest.facts.get("replaces") else {}
    later = {row.number: _last(row, ingested if row.is_file else replaced, origins) > row.batch for row in rows}
    return [replace(row, state=REPLACED) if row.state == QUARANTINED and later[row.number] else row for row in rows]


def _last(row: QuarantinedRow, batches: dict[str, int], origins: dict[str, str]) -> int:
    return batches.get(origins.get(row.file, row.file), -1)
