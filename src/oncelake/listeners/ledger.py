"""The ledger: a Delta table of attempts for people to read, written without a JVM. A cache: the targets' logs decide."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from oncelake.delta.log import find_log
from oncelake.delta.tables import Lake
from oncelake.errors import CorruptLog
from oncelake.model.events import Event, RunEnded, WorkEnded, WorkStarted
from oncelake.model.intervals import Interval, parse_interval
from oncelake.model.slices import Batch
from oncelake.model.streams import StreamId
from oncelake.model.work import ALREADY_DONE, BLOCKED, BUSY, FAILED, Work, work_document
from oncelake.running.invocation import find_invocation
from oncelake.storage.objects import storage
from oncelake.storage.options import delta_rs_options
from oncelake.storage.paths import is_local, local_path

if TYPE_CHECKING:
    from oncelake.delta.files import Files

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURES = (BLOCKED, FAILED, BUSY)
# For so many seconds at most a row of a stream waits for others.
_STREAM_PERIOD = 60.0
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
    "invocation": "string",
}


class DeltaLedger:
    """The ledger of a lake, a listener. An error of the ledger is a warning and fails no run."""

    def __init__(self, lake: Lake, warn: Callable[[str], None]) -> None:
        """Open nothing: the table is created by the first entry."""
        path = lake.internal_path("ledger")
        self.path = str(local_path(path)) if is_local(path) else path
        self._warn = warn
        # Rows of micro-batches that wait to be written together, and since when.
        self._waiting: list[dict[str, Any]] = []
        self._since = 0.0
        self._lock = threading.Lock()

    def on(self, event: Event) -> None:
        """Write a row when a work starts and when it ends; work that was done before the run is not recorded.

        A stream may commit every second: its batches are recorded when they end, those of a minute in one commit.
        """
        if isinstance(event, WorkStarted):
            works = [work for work in event.works if not _is_of_stream(work)]
            rows = [{"run": event.run, "event": "started", **work_document(work)} for work in works]
            self._add(rows, 0 if rows else _STREAM_PERIOD)
        elif isinstance(event, WorkEnded):
            ended = [each for each in event.outcomes if event.attempted or each.outcome != ALREADY_DONE]
            may_wait = all(_is_of_stream(each.work) and each.outcome not in _FAILURES for each in ended)
            documents = (outcome.document() for outcome in ended)
            rows = [{"run": event.run, "event": "ended", **doc, "rows": json.dumps(doc["rows"])} for doc in documents]
            self._add(rows, _STREAM_PERIOD if may_wait else 0)
        elif isinstance(event, RunEnded):
            self._add(())

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first."""
        return self._read(lambda files: files.paths())

    def failures(self) -> list[dict[str, Any]]:
        """Return the newest failed, busy or blocked entry of each work; some of these works may be done since."""
        last: dict[tuple[str, ...], dict[str, Any]] = {}
        for entry in self._read(_may_contain_failures):
            if entry["outcome"] in _FAILURES:
                last[entry["pipeline"], entry["target"], entry["slice"]] = entry
        return list(last.values())

    def failed_intervals(self) -> dict[str, list[Interval]]:
        """Return the intervals whose last attempt failed, by pipeline."""
        failed: dict[str, list[Interval]] = {}
        for entry in self.failures():
            failed.setdefault(entry["pipeline"], [])
            if entry["start"]:
                failed[entry["pipeline"]].append(parse_interval(f"{entry['start']}..{entry['end']}"))
        return failed

    def _read(self, wanted: Callable[[Files], list[str]]) -> list[dict[str, Any]]:
        """Return the entries of the wanted files. What cannot be read is reported: the tables' logs decide what is done."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        entries: list[dict[str, Any]] = []
        problems: list[str] = []
        try:
            log = find_log("the ledger", self.path)
            files = [unquote(path) for path in wanted(log.files)] if log else []
        except (CorruptLog, OSError) as error:
            files, problems = [], [str(error).partition("\n")[0]]
        for path, content in zip(files, storage(self.path).read_all(files), strict=True):
            try:
                if isinstance(content, OSError):
                    raise content
                entries += pq.read_table(pa.BufferReader(content)).to_pylist()
            except (OSError, pa.ArrowException) as error:
                problems.append(f"{path}: {str(error).partition(chr(10))[0]}")
        if problems:
            lost = f"could not read {len(problems)} of the {max(len(files), 1)} files of the ledger {self.path}"
            self._warn(f"{lost}, so attempts are missing ({problems[0]}); the logs of the tables decide what is done")
        return sorted(entries, key=lambda entry: entry["at"])

    def _add(self, entries: Iterable[dict[str, Any]], period: float = 0) -> None:
        """Write rows with those that wait; leave them waiting until the first has waited for so many seconds."""
        common = {"at": datetime.now(UTC), "invocation": str(find_invocation())}
        with self._lock:
            self._since = self._since if self._waiting else time.monotonic()
            self._waiting += [{**common, **entry} for entry in entries]
            if not self._waiting or time.monotonic() - self._since < period:
                return
            rows, self._waiting = self._waiting, []
        try:
            _append(self.path, rows)
        except Exception as error:  # noqa: BLE001  the ledger must never stop a run
            self._warn(f"could not write the ledger {self.path}: {_in_one_line(error)}")


def _in_one_line(error: Exception) -> str:
    """Return the message of an error of delta-rs, which has several lines, arrows and colours, and the store's answer at its end."""
    parts = (line.strip(" ↳") for line in _COLOUR.sub("", str(error)).splitlines())
    return "; ".join(part for part in parts if part and not part.startswith("<"))


def _is_of_stream(work: Work) -> bool:
    return isinstance(work.slice, Batch) and StreamId.parse(work.slice.stream) is not None


def _may_contain_failures(files: Files) -> list[str]:
    """Return the files that may contain a failure, by the least and the greatest outcome in their statistics."""
    found = files.statistics("outcome", "string")
    ranges = zip(files.paths(), found.least.to_pylist(), found.most.to_pylist(), strict=True)
    return [
        path
        for path, least, most in ranges
        if least is not None and most is not None and any(least <= outcome <= most for outcome in _FAILURES)
    ]


def _append(path: str, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    types = {"timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string()}
    types |= {"int64": pa.int64(), "double": pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in _COLUMNS.items()])
    table = pa.Table.from_pylist(rows, schema=schema)
    # An append, and `status`, read the checkpoint and the commits after it: on an object store a request each.
    settings = {"delta.checkpointInterval": "20"}
    # A ledger that an earlier version created may have fewer columns.
    write_deltalake(
        path,
        table,
        mode="append",
        schema_mode="merge",
        configuration=settings,
        storage_options=delta_rs_options(path),
    )
