"""The headers of CSV rows that are retried: those of the contents that the rows came from, whatever their files have by now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.current_files import full_path, stamps
from oncelake.sources.arrivals.manifests import Manifest
from oncelake.sources.arrivals.parsing.csv_dialect import dialect_of
from oncelake.sources.arrivals.parsing.csv_header import find_header
from oncelake.storage.listing import first_bytes

if TYPE_CHECKING:
    from oncelake.model.arrivals import QuarantinedRow
    from oncelake.sources.arrivals.backlog import Backlog

# Where a header is looked for: in the first bytes of a file.
_HEAD = 1 << 20

Place = tuple[int, str]


def has_header(backlog: Backlog) -> bool:
    """Return whether rows mean nothing without the header of their file."""
    return backlog.source.format == "csv" and dialect_of(backlog.source.options).header


def known_headers(backlog: Backlog, rows: Iterable[QuarantinedRow]) -> dict[Place, str]:
    """Return the headers of rows, by their batch and file. One that nobody knows any more is not there."""
    places = sorted({(row.batch, row.file) for row in rows if not row.is_file}) if has_header(backlog) else []
    found: dict[Place, str] = {}
    for number, group in groupby(places, key=lambda place: place[0]):
        files = [file for _, file in group]
        manifest = backlog.manifests.load(number)
        retried = dict(_retried(manifest))
        read = [file for file in files if file not in retried]
        headers = retried | _unchanged(backlog, manifest, read)
        found |= {(number, file): header for file in files if (header := headers.get(file)) is not None}
    return found


def _retried(manifest: Manifest) -> Iterator[tuple[str, str | None]]:
    """Yield the files of whose rows a batch is a retry, with the header; None if there were several."""
    headers: dict[str, set[str]] = {}
    for path, origin in manifest.facts.get("origins", {}).items():
        headers.setdefault(origin, set()).add(manifest.facts.get("headers", {}).get(path))
    for origin, known in headers.items():
        yield origin, known.pop() if len(known) == 1 else None


def _unchanged(backlog: Backlog, manifest: Manifest, files: list[str]) -> dict[str, str]:
    """Return the headers of files that are as the batch read them."""
    outcomes = backlog.manifests.outcomes(manifest.number)
    read = manifest.files if outcomes is None else outcomes
    some = read.filter(pc.is_in(read["path"], value_set=pa.array(files, pa.string()))).to_pylist()
    then = {row["path"]: (row["size"], row["modified"]) for row in some}
    root = backlog.reading.lake.file("")
    headers = {file: _header(backlog, full_path(file, root)) for file in then}
    # After they were read: a file that is replaced meanwhile has another stamp by now.
    now = dict(zip(then, stamps([full_path(file, root) for file in then]) if then else (), strict=True))
    return {file: header for file, header in headers.items() if header is not None and now[file] == then[file]}


def _header(backlog: Backlog, path: str) -> str | None:
    try:
        head = first_bytes(path, _HEAD)
    except OSError:
        return None
    return find_header(head, dialect_of(backlog.source.options), whole=len(head) < _HEAD)
