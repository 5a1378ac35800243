"""Read what is in quarantine once more, after the schema or the declaration was fixed, as a batch of its own.

The raw rows become files below oncelake's folder, and those files a manifest like any other. So a retry is done once, can
be killed at any moment, and what fails again is in quarantine again. The manifest says where each row came from: if the batch
that could not read a row is read again, and can read it by then, the retry leaves the row out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from oncelake.model.arrivals import QuarantinedRow
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.current_files import full_path, stamps
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.manifests import Manifest
from oncelake.sources.arrivals.parsing.charset import in_encoding
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, is_too_long
from oncelake.sources.arrivals.parsing.options import declared_encoding
from oncelake.sources.arrivals.quarantine_states import place_of, with_retries
from oncelake.sources.arrivals.quarantine_table import (
    QUARANTINED,
    RETRIED,
    change_state,
    quarantined_rows,
    read_quarantine,
)
from oncelake.sources.arrivals.retried_headers import has_header, known_headers
from oncelake.storage.objects import write_file

_FOLDER = "retries"
_EXAMPLES = 3


class RetryFile(NamedTuple):
    """A file of ours with rows from quarantine: its path, the file that they are of, and where each row is, here and there."""

    path: str
    origin: str
    rows: list[list[Any]]
    header: str | None


def freeze_retry(backlog: Backlog, rows: Sequence[QuarantinedRow]) -> tuple[str, ...]:
    """Freeze a batch of rows and files in quarantine; return what is to be said of those that cannot be read any more."""
    cut = [row for row in rows if is_cut(row)]
    rows = [row for row in rows if not is_cut(row)]
    headers = known_headers(backlog, rows)
    lost = [row for row in rows if _lacks_header(backlog, row, headers)]
    left = [row for row in rows if not _lacks_header(backlog, row, headers)]
    while left := [row for row in with_retries(backlog, left) if row.state == QUARANTINED]:
        number = backlog.next_number()
        written = list(_write_rows(backlog, [row for row in left if not row.is_file], number, headers))
        whole = dict.fromkeys(row.file for row in left if row.is_file)
        files = _with_stamps(backlog, [*whole, *(each.path for each in written)])
        there = set(files["path"].to_pylist())
        taken = [row for row in left if not row.is_file or row.file in there]
        if not taken:
            lost += left
            break
        facts = {
            "retries": [row.key for row in taken],
            "origins": {each.path: each.origin for each in written},
            "rows": {each.path: each.rows for each in written},
            "headers": {each.path: each.header for each in written if each.header is not None},
        }
        if backlog.freeze_files(number, files, facts):
            change_state(backlog.reading, taken, RETRIED, number)
            lost += [row for row in left if row.is_file and row.file not in there]
            break
    return (*_lost_notes(backlog, lost), *_cut_notes(cut))


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


def _lacks_header(backlog: Backlog, row: QuarantinedRow, headers: Mapping[tuple[int, str], str]) -> bool:
    return not row.is_file and has_header(backlog) and (row.batch, row.file) not in headers


def _lost_notes(backlog: Backlog, lost: Sequence[QuarantinedRow]) -> Iterator[str]:
    """Yield what is to be said of entries that cannot be read: their files are gone, or have other content, and another header."""
    there = set(_with_stamps(backlog, sorted({row.file for row in lost}))["path"].to_pylist())
    gone = [row for row in lost if row.file not in there]
    changed = [row for row in lost if row.file in there]
    if gone:
        yield f"{len(gone):,} entries stay in quarantine, because their files are gone: {_examples(gone)}"
    if changed:
        why = "their files are not as they were read, and the header of these rows is not known any more"
        yield f"{len(changed):,} entries stay in quarantine, because {why}: {_examples(changed)}"


def _examples(rows: Sequence[QuarantinedRow]) -> str:
    return ", ".join(sorted({row.file for row in rows})[:_EXAMPLES])


def is_cut(row: QuarantinedRow) -> bool:
    """Return whether only the beginning of a row is in quarantine, so that it cannot be read from there."""
    return not row.is_file and is_too_long(row.reason)


def _cut_notes(cut: Sequence[QuarantinedRow]) -> Iterator[str]:
    if cut:
        yield (
            f"{len(cut):,} entries stay in quarantine, because a row has at most {MAX_RECORD_BYTES:,} bytes, and theirs are"
            f" longer: {_examples(cut)}. Shorten the rows and let them arrive in another file, or drop the entries"
        )


def _write_rows(
    backlog: Backlog, rows: Sequence[QuarantinedRow], number: int, headers: Mapping[tuple[int, str], str]
) -> Iterator[RetryFile]:
    """Write the raw rows of each file into a file of ours: of each batch that read it, which may have had another header."""
    encoding = declared_encoding(backlog.source.file_format)
    for index, (place, group) in enumerate(groupby(rows, key=lambda row: (row.batch, row.file))):
        name = f"{_FOLDER}/{number:08}/{index:06}.{backlog.source.format}"
        header = headers.get(place)
        lines = [] if header is None else [header.encode()]
        line, places = 1 + sum(1 + _newlines(each) for each in lines), []
        for row in group:
            lines.append((row.raw or b"").rstrip(b"\r\n"))
            places.append([line, *row.key, row.digest])
            line += 1 + _newlines(lines[-1])
        write_file(backlog.manifests.folder, name, in_encoding(lines, encoding))
        yield RetryFile(f"{backlog.manifests.folder}/{name}", place[1], places, header)


def _newlines(line: bytes) -> int:
    return line.count(b"\n")


def _with_stamps(backlog: Backlog, paths: Sequence[str]) -> pa.Table:
    """Return the files that are there, as they are now."""
    root = backlog.reading.lake.file("")
    found = stamps([full_path(path, root) for path in paths]) if paths else []
    entries = [(path, *stamp) for path, stamp in zip(paths, found, strict=True) if stamp]
    columns = [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], []]
    return pa.table(columns, schema=FILES)
