"""The ledger: a Delta table of attempts for people to look at, written without a JVM. A cache: the targets' logs win."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from oncelake.lake.address import Address, is_local, local_path
from oncelake.work import Outcome, Work, work_document

_COLUMNS = {
    "at": "timestamp",
    "run": "string",
    "event": "string",
    "pipeline": "string",
    "target": "string",
    "slice": "string",
    "start": "string",
    "end": "string",
    "generation": "int64",
    "outcome": "string",
    "version": "int64",
    "rows": "string",
    "seconds": "double",
    "error": "string",
    "code": "string",
}


class DeltaLedger:
    """The ledger of a lake. Whatever goes wrong with it is told once and fails no run."""

    def __init__(self, address: Address, warn: Any) -> None:
        """Nothing is opened before there is something to write."""
        path = address.own("ledger")
        self.path = str(local_path(path)) if is_local(path) else path
        self._warn = warn

    def started(self, run: str, works: Sequence[Work]) -> None:
        """An attempt at these works begins."""
        self._add({"run": run, "event": "started", **work_document(work)} for work in works)

    def ended(self, run: str, outcomes: Sequence[Outcome]) -> None:
        """This is what came of them."""
        documents = (outcome.document() for outcome in outcomes)
        self._add({"run": run, "event": "ended", **doc, "rows": json.dumps(doc["rows"])} for doc in documents)

    def entries(self) -> list[dict[str, Any]]:
        """Every entry, oldest first."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        return sorted(found, key=lambda entry: entry["at"])

    def _add(self, entries: Iterable[dict[str, Any]]) -> None:
        at = datetime.now(UTC)
        rows = [{"at": at, **entry} for entry in entries]
        try:
            _append(self.path, rows)
        except Exception as error:  # noqa: BLE001  a journal must never stop the work it tells of
            self._warn(f"the ledger {self.path} could not be written: {error}")


def _append(path: str, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    types = {"timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string()}
    types |= {"int64": pa.int64(), "double": pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in _COLUMNS.items()])
    table = pa.Table.from_pylist(rows, schema=schema)
    # Checkpoints keep opening it cheap; without them every append would read the whole log.
    write_deltalake(path, table, mode="append", configuration={"delta.checkpointInterval": "100"})
