"""Read Delta checkpoints without a JVM: classic, multi-part, and V2 with sidecars."""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelake.errors import CorruptLog
from oncelake.storage.objects import Storage

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = "_delta_log"
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
# A checkpoint of at most so many bytes is kept in memory with its log.
_KEPT = 256 * 1024
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its version, its files, and their size in bytes if it is known."""

    version: int
    files: tuple[str, ...]
    size: int = 0
    # The content of small files: markers, files and statistics are read apart, and on an object store each is a request.
    contents: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)


def newest_checkpoint(names: list[str]) -> Checkpoint | None:
    """Return the newest complete checkpoint of a log. `_last_checkpoint` is not read: it may be missing or outdated."""
    complete = list(_complete_checkpoints(names))
    return max(complete, key=lambda checkpoint: checkpoint.version, default=None)


def _complete_checkpoints(names: list[str]) -> Iterator[Checkpoint]:
    parts: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for name in names:
        if ".checkpoint." not in name:
            continue
        if found := _CLASSIC.fullmatch(name) or _V2.fullmatch(name):
            yield Checkpoint(int(found.group(1)), (name,))
        elif found := _PART.fullmatch(name):
            parts[int(found.group(1)), int(found.group(3))].append(name)
    for (version, count), files in parts.items():
        # A writer that died leaves some of the parts: an incomplete checkpoint is ignored.
        if len(files) == count:
            yield Checkpoint(version, tuple(sorted(files)))


class TxnRecord(NamedTuple):
    """A `txn` action of the log: the version of its app id, when it was written, and by which commit if known."""

    version: int
    updated_ms: int | None
    commit: int | None = None


@dataclass(frozen=True)
class CheckpointState:
    """The table state in a checkpoint: markers (`txn`) by app id, metadata, protocol and domain metadata."""

    markers: dict[str, TxnRecord]
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    domains: dict[str, str]


class CheckpointFiles:
    """The files of a checkpoint. Only the selected columns are read: markers must not cost the statistics of all files."""

    def __init__(self, place: Storage, checkpoint: Checkpoint, table: str, path: str) -> None:
        """Store where the files are; nothing is read yet."""
        self._place = place
        self._checkpoint = checkpoint
        self._table = table
        self._path = path

    def state(self) -> CheckpointState:
        """Read markers, metadata, protocol and domain metadata, in one pass over the files."""
        markers: dict[str, TxnRecord] = {}
        metadata: dict[str, Any] = {}
        protocol: dict[str, Any] = {}
        domains: dict[str, str] = {}
        for file in self._checkpoint.files:
            found = self._columns(posixpath.join(_LOG, file), _STATE)
            markers |= _by_app_id(found["txn"])
            metadata = next(iter(_rows(found["metaData"])), metadata)
            protocol = next(iter(_rows(found["protocol"])), protocol)
            domains |= {row["domain"]: row["configuration"] for row in _rows(found["domainMetadata"])}
        return CheckpointState(markers, metadata, protocol, domains)

    def add_batches(self, fields: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield some fields of the `add` action of every data file, from the checkpoint and its sidecars, in a fixed order.

        Only some thousand files are in memory at a time, because statistics may be long.
        """
        for file in self._checkpoint.files:
            path = posixpath.join(_LOG, file)
            yield from self._adds(path, fields)
            if _V2.fullmatch(file):
                for sidecar in self._columns(path, {"sidecar": ("path",)})["sidecar"].get("path", []):
                    yield from self._adds(posixpath.join(_LOG, "_sidecars", sidecar), fields)

    def _adds(self, file: str, fields: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        from oncelake.delta.add_columns import adds_of_json, adds_of_parquet

        with self._reading(file):
            if file.endswith(".json"):
                yield adds_of_json(self._place.read(file), fields)
            else:
                yield from adds_of_parquet(self._open(file), fields)

    def _columns(self, file: str, selection: FieldSelection) -> dict[str, CheckpointColumns]:
        with self._reading(file):
            if file.endswith(".json"):
                return _parse_json(self._place.read(file), selection)
            return _read_parquet(self._open(file), selection)

    def _open(self, file: str) -> Any:
        """Open a parquet file of the checkpoint, or a sidecar; keep the content of a small checkpoint."""
        import pyarrow as pa

        name, kept = posixpath.basename(file), self._checkpoint.contents
        if name not in self._checkpoint.files or not 0 < self._checkpoint.size <= _KEPT:
            return self._place.open(file)
        if name not in kept:
            kept[name] = self._place.read(file)
        return pa.BufferReader(kept[name])

    @contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            path = posixpath.join(self._path, file)
            raise CorruptLog(table=self._table, path=path, problem=str(error)) from error


# The values of each field, one per action: columns are cheaper than one dict for each of thousands of markers.
CheckpointColumns = dict[str, list[Any]]
# The fields to read by action; None reads all fields.
FieldSelection = Mapping[str, tuple[str, ...] | None]
_STATE: FieldSelection = {
    "txn": ("appId", "version", "lastUpdated"),
    "metaData": ("schemaString", "partitionColumns", "configuration", "id"),
    "protocol": None,
    "domainMetadata": ("domain", "configuration"),
}


_MAPS = ("partitionValues", "configuration", "tags")
_BATCH_ROWS = 32 * 1024


def _parse_json(content: bytes, selection: FieldSelection) -> dict[str, CheckpointColumns]:
    actions = [json.loads(line) for line in content.splitlines()]
    found: dict[str, CheckpointColumns] = {}
    for name in selection:
        rows = [action[name] for action in actions if name in action]
        fields = {field for row in rows for field in row}
        found[name] = {field: [row.get(field) for row in rows] for field in fields}
    return found


def _read_parquet(source: Any, selection: FieldSelection) -> dict[str, CheckpointColumns]:
    from pyarrow import parquet

    with parquet.ParquetFile(source) as file:
        schema = file.schema_arrow
        existing = {name: fields for name, fields in selection.items() if name in schema.names}
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=_paths(schema, existing), use_threads=False)
        found: dict[str, CheckpointColumns] = {name: {} for name in selection}
        for batch in batches:
            for name in existing:
                _collect(batch.column(name), found[name])
    return found


def _collect(actions: Any, found: CheckpointColumns) -> None:
    """Add the fields of the actions in some rows. A row contains one action, and all others are null there."""
    if actions.null_count == len(actions):
        return
    if len(actions) == _BATCH_ROWS:
        actions = actions.drop_null()  # only in large checkpoints: it imports pyarrow.compute, which takes its time
    lists = [values.to_pylist() for values in actions.flatten()]
    # The first field of every action is mandatory.
    present = [index for index, value in enumerate(lists[0]) if value is not None]
    for name, values in zip(actions.type.names, lists, strict=True):
        found.setdefault(name, []).extend(values[index] for index in present)


def _paths(schema: Any, selection: FieldSelection) -> list[str]:
    paths = []
    for name, fields in selection.items():
        present = schema.field(name).type.names
        paths += [name] if fields is None else [f"{name}.{field}" for field in fields if field in present]
    return paths


def _rows(columns: CheckpointColumns) -> list[dict[str, Any]]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    # Parquet returns maps as lists of pairs, and null for fields that an action does not have.
    return [{k: dict(v) if k in _MAPS else v for k, v in row.items() if v is not None} for row in rows]


def _by_app_id(txn: CheckpointColumns) -> dict[str, TxnRecord]:
    ids = txn.get("appId", [])
    times = txn.get("lastUpdated") or [None] * len(ids)
    return dict(zip(ids, map(TxnRecord, txn.get("version", []), times), strict=True))
