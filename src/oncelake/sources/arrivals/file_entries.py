"""What is known of every file: new, done, quarantined, changed since, gone, or frozen in a batch that is not done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from oncelake.model.arrivals import FileEntry
from oncelake.sources.arrivals.backlog import Backlog

_COUNTS = ("rows_read", "rows_written", "rows_quarantined", "rows_filtered", "hash", "duplicate_of")


def file_entries(backlog: Backlog, done: int | None) -> Iterator[FileEntry]:
    """Yield the files of all batches, oldest first, then those that have arrived since."""
    backlog.require_all(backlog.manifests.numbers(), done)  # the files of a missing one would look new
    _, found = backlog.look()
    changed = set(found.changed["path"].to_pylist())
    recorded = set(backlog.manifests.recorded())
    replaced, retried = _replaced(backlog, done), _retried(backlog)
    for number in backlog.manifests.numbers():
        waits = done is None or number > done
        outcomes = backlog.manifests.outcomes(number) if number in recorded and not waits else None
        manifest = backlog.manifests.load(number)
        origins = manifest.facts.get("origins", {})
        for row in (manifest.files if outcomes is None else outcomes).to_pylist():
            # Rows that are retried are in files of ours; what is shown is the file that they came from.
            row["path"] = origins.get(row["path"], row["path"])
            state = "frozen" if waits else row.get("state") or "done"
            if (number, row["path"]) in retried and state == "quarantined":
                state = "retried"
            if replaced.get(row["path"], -1) > number:
                state = "replaced"
            yield _entry(row, "changed" if row["path"] in changed and state == "done" else state, number)
    yield from (_entry(row, "new", None) for row in _rows(found.new))


def _replaced(backlog: Backlog, done: int | None) -> dict[str, int]:
    """Return the last batch that replaced the rows of a file, for each file of which rows were replaced."""
    found: dict[str, int] = {}
    numbers = [number for number in backlog.manifests.numbers() if done is not None and number <= done]
    for manifest in backlog.manifests.load_all(numbers):
        if manifest.facts.get("replaces"):
            found |= dict.fromkeys(manifest.files["path"].to_pylist(), manifest.number)
    return found


def _retried(backlog: Backlog) -> set[tuple[int, str]]:
    """Return the batches and files of which a later batch is a retry."""
    manifests = backlog.manifests.load_all(backlog.manifests.numbers())
    return {(batch, file) for manifest in manifests for batch, file, *_ in manifest.facts.get("retries", [])}


def _rows(files: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in files.to_batches():
        yield from batch.to_pylist()


def _entry(row: dict[str, Any], state: str, batch: int | None) -> FileEntry:
    modified = datetime.fromtimestamp(row["modified"] / 1e9, UTC)
    return FileEntry(row["path"], row["size"], modified, state, batch, **{name: row.get(name) for name in _COUNTS})
