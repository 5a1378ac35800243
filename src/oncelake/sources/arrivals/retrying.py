"""Read what is in quarantine once more, after the schema or the declaration was fixed, as a batch of its own.

The raw rows become files below oncelake's folder, and those files a manifest like any other. So a retry is done once, can
be killed at any moment, and what fails again is in quarantine again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from oncelake.model.arrivals import QuarantinedRow
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.current_files import full_path, stamps
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.quarantine_table import QUARANTINED, RETRIED, change_state
from oncelake.storage.listing import text_lines
from oncelake.storage.objects import write_file

_FOLDER = "retries"


def freeze_retry(backlog: Backlog, rows: Sequence[QuarantinedRow]) -> int:
    """Freeze a batch of rows and files in quarantine, and return its number."""
    rows = [row for row in finish_retries(backlog, rows) if row.state == QUARANTINED]
    manifests = backlog.manifests.load_all(backlog.manifests.numbers())
    known = {path: file for each in manifests for path, file in each.facts.get("origins", {}).items()}
    while True:
        number = backlog.next_number()
        files, origins = _files(backlog, rows, number, known)
        if backlog.freeze_files(number, files, {"retries": [row.key for row in rows], "origins": origins}):
            change_state(backlog.reading, rows, RETRIED, number)
            return number


def finish_retries(backlog: Backlog, rows: Sequence[QuarantinedRow]) -> list[QuarantinedRow]:
    """Return the rows with their true states: what a manifest has is retried, also if its runner was killed right after."""
    open_rows = {tuple(row.key): row for row in rows if row.state == QUARANTINED}
    found: dict[int, list[QuarantinedRow]] = {}
    for manifest in backlog.manifests.load_all(backlog.manifests.numbers()) if open_rows else ():
        keys = (tuple(key) for key in manifest.facts.get("retries", ()))
        if retried := [open_rows[key] for key in keys if key in open_rows]:
            found[manifest.number] = retried
    for number, retried in found.items():
        change_state(backlog.reading, retried, RETRIED, number)
    numbers = {row.number: number for number, retried in found.items() for row in retried}
    return [
        replace(row, state=RETRIED, retried_in=numbers[row.number]) if row.number in numbers else row for row in rows
    ]


def _files(
    backlog: Backlog, rows: Sequence[QuarantinedRow], number: int, known: Mapping[str, str]
) -> tuple[pa.Table, dict[str, str]]:
    """Return the files of a retry: files in quarantine as they are now, and the rows of each other file as a file of ours.

    The latter with the files that they are of, which for files of an earlier retry are `known`.
    """
    origins = {}
    root, paths = backlog.reading.lake.file(""), [row.file for row in rows if row.line is None and row.offset is None]
    single = [row for row in rows if row.line is not None or row.offset is not None]
    for index, (file, group) in enumerate(groupby(single, key=lambda row: row.file)):
        suffix = f".{backlog.source.format}"
        name = f"{_FOLDER}/{number:08}/{index:06}{suffix}"
        header = [_header(full_path(file, root))] if backlog.source.format == "csv" else []
        lines = [*header, *((row.raw or b"").rstrip(b"\r\n") for row in group)]
        write_file(backlog.manifests.folder, name, b"\n".join(lines) + b"\n")
        paths.append(f"{backlog.manifests.folder}/{name}")
        origins[paths[-1]] = known.get(file, file)
    found = stamps([full_path(path, root) for path in paths])
    entries = [(path, *stamp) for path, stamp in zip(paths, found, strict=True) if stamp]
    columns = [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], []]
    return pa.table(columns, schema=FILES), origins


def _header(path: str) -> bytes:
    return next(iter(text_lines(path, "utf-8-sig")), "").encode()
