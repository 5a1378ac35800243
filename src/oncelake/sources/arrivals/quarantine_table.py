"""Look at the quarantine of a pipeline, and change the state of what is in it. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.delta.log import find_log
from oncelake.model.arrivals import QuarantinedRow
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.backlog import folder_of
from oncelake.storage.options import delta_rs_options

QUARANTINED, RETRIED, DROPPED = "quarantined", "retried", "dropped"


def quarantine_path(reading: Reading) -> str:
    """Return the path of a pipeline's quarantine table."""
    return f"{folder_of(reading)}/quarantine"


def read_quarantine(reading: Reading, done: int | None) -> pa.Table | None:
    """Return what is in quarantine, of the batches that the targets have; None if nothing ever was."""
    path = quarantine_path(reading)
    if done is None or find_log("quarantine", path) is None:
        return None
    found = _open(path).to_pyarrow_table()
    # The rows of a batch that is not done count for nothing: it will be read again.
    return found.filter(pc.less_equal(found["batch"], done)).sort_by(
        [("batch", "ascending"), ("file", "ascending"), ("line", "ascending"), ("offset", "ascending")]
    )


def quarantined_rows(table: pa.Table | None) -> Iterator[QuarantinedRow]:
    """Yield the rows of a quarantine, each with its number, by which commands name it."""
    for number, row in enumerate(table.to_pylist() if table is not None else (), 1):
        yield QuarantinedRow(number, **row)


def change_state(reading: Reading, rows: Iterable[QuarantinedRow], state: str, retried_in: int | None = None) -> None:
    """Change the state of rows in quarantine, in one commit."""
    chosen = [_predicate(row) for row in rows]
    if chosen:
        updates = {"state": f"'{state}'"} | ({} if retried_in is None else {"retried_in": str(retried_in)})
        _open(quarantine_path(reading)).update(updates=updates, predicate=" OR ".join(chosen))


def _open(path: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path, storage_options=delta_rs_options(path))


def _predicate(row: QuarantinedRow) -> str:
    file = row.file.replace("'", "''")
    line = "line IS NULL" if row.line is None else f"line = {row.line}"
    offset = "offset IS NULL" if row.offset is None else f'"offset" = {row.offset}'
    return f"(batch = {row.batch} AND file = '{file}' AND {line} AND {offset})"
