"""Read what is in quarantine once more, after the schema or the declaration was fixed, as a batch of its own.

The raw rows become files below oncelake's folder, and those files a manifest like any other. So a retry is done once, can
be killed at any moment, and what fails again is in quarantine again. The manifest says where each row came from: if the batch
that could not read a row is read again, and can read it by then, the retry leaves the row out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from oncelake.model.arrivals import QuarantinedRow
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.current_files import full_path, stamps
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.manifests import Manifest
from oncelake.sources.arrivals.quarantine_states import place_of, with_retries
from oncelake.sources.arrivals.quarantine_table import (
    QUARANTINED,
    RETRIED,
    change_state,
    quarantined_rows,
    read_quarantine,
)
from oncelake.storage.listing import text_lines
from oncelake.storage.objects import write_file

_FOLDER = "retries"
_EXAMPLES = 3


class RetryFile(NamedTuple):
    """A file of ours with rows from quarantine: its path, the file that they are of, and where each row is, here and there."""

    path: str
    origin: str
    rows: list[list[Any]]


def freeze_retry(backlog: Backlog, rows: Sequence[QuarantinedRow]) -> tuple[str, ...]:
    """Freeze a batch of rows and files in quarantine; return what is to be said of those that cannot be read any more."""
    there = _there(backlog, {row.file for row in rows if _needs_file(backlog, row)})
    gone = [row for row in rows if _needs_file(backlog, row) and row.file not in there]
    left = [row for row in rows if not _needs_file(backlog, row) or row.file in there]
    while left := [row for row in with_retries(backlog, left) if row.state == QUARANTINED]:
        number = backlog.next_number()
        written = list(_write_rows(backlog, [row for row in left if not row.is_file], number))
        whole = dict.fromkeys(row.file for row in left if row.is_file)
        files = _with_stamps(backlog, [*whole, *(each.path for each in written)])
        there = set(files["path"].to_pylist())
        taken = [row for row in left if not row.is_file or row.file in there]
        facts = {
            "retries": [row.key for row in taken],
            "origins": {each.path: each.origin for each in written},
            "rows": {each.path: each.rows for each in written},
        }
        if backlog.freeze_files(number, files, facts):
            change_state(backlog.reading, taken, RETRIED, number)
            gone += [row for row in left if row.is_file and row.file not in there]
            break
    return tuple(_gone_notes(gone))


def written_since(backlog: Backlog, manifest: Manifest) -> dict[str, list[int]]:
    """Return the lines of the files of a retry that are not in quarantine any more: their own batch was read again, and has them."""
    rows: dict[str, list[list[Any]]] = manifest.facts.get("rows", {})
    table = read_quarantine(backlog.reading, manifest.number) if rows else None
    if table is None:
        return {}
    known = {(place_of(row.key), row.digest) for row in quarantined_rows(table)}
    found = {
        path: [line for line, *key, digest in places if (place_of(key), digest) not in known]
        for path, places in rows.items()
    }
    return {path: lines for path, lines in found.items() if lines}


def _needs_file(backlog: Backlog, row: QuarantinedRow) -> bool:
    """Return whether a retry needs the file itself: as a whole, or for the header of its columns."""
    return row.is_file or backlog.source.format == "csv"


def _there(backlog: Backlog, files: set[str]) -> set[str]:
    paths = sorted(files)
    return set(_with_stamps(backlog, paths)["path"].to_pylist())


def _gone_notes(gone: Sequence[QuarantinedRow]) -> Iterator[str]:
    if gone:
        files = sorted({row.file for row in gone})
        examples = ", ".join(files[:_EXAMPLES])
        yield f"{len(gone):,} entries stay in quarantine, because their files are gone: {examples}"


def _write_rows(backlog: Backlog, rows: Sequence[QuarantinedRow], number: int) -> Iterator[RetryFile]:
    """Write the raw rows of each file into a file of ours."""
    root = backlog.reading.lake.file("")
    for index, (file, group) in enumerate(groupby(rows, key=lambda row: row.file)):
        name = f"{_FOLDER}/{number:08}/{index:06}.{backlog.source.format}"
        lines = [_header(full_path(file, root))] if backlog.source.format == "csv" else []
        line, places = 1 + len(lines), []
        for row in group:
            lines.append((row.raw or b"").rstrip(b"\r\n"))
            places.append([line, *row.key, row.digest])
            line += 1 + lines[-1].count(b"\n")
        write_file(backlog.manifests.folder, name, b"\n".join(lines) + b"\n")
        yield RetryFile(f"{backlog.manifests.folder}/{name}", file, places)


def _with_stamps(backlog: Backlog, paths: Sequence[str]) -> pa.Table:
    """Return the files that are there, as they are now."""
    root = backlog.reading.lake.file("")
    found = stamps([full_path(path, root) for path in paths]) if paths else []
    entries = [(path, *stamp) for path, stamp in zip(paths, found, strict=True) if stamp]
    columns = [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], []]
    return pa.table(columns, schema=FILES)


def _header(path: str) -> bytes:
    return next(iter(text_lines(path, "utf-8-sig")), "").encode()
