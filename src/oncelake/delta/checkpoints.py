"""Delta checkpoints without a JVM: classic, in several parts, and version 2 with sidecars."""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncelake.errors import CorruptLog
from oncelake.storage.objects import Storage

_LOG = "_delta_log"
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the version it holds and the files it consists of."""

    version: int
    files: tuple[str, ...]


def newest_checkpoint(names: list[str]) -> Checkpoint | None:
    """The newest complete checkpoint among the files of a log. The hint file is not needed: it may be missing or old."""
    complete = list(_complete(names))
    return max(complete, key=lambda checkpoint: checkpoint.version, default=None)


def _complete(names: list[str]) -> Iterator[Checkpoint]:
    parts: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for name in names:
        if ".checkpoint." not in name:
            continue
        if found := _CLASSIC.fullmatch(name) or _V2.fullmatch(name):
            yield Checkpoint(int(found.group(1)), (name,))
        elif found := _PART.fullmatch(name):
            parts[int(found.group(1)), int(found.group(3))].append(name)
    for (version, count), files in parts.items():
        # A writer that died leaves some of the parts: such a checkpoint does not count.
        if len(files) == count:
            yield Checkpoint(version, tuple(sorted(files)))


class Recorded(NamedTuple):
    """A marker as the log has it: the version of its app id, when it was written, and by which commit if known."""

    version: int
    updated_ms: int | None
    commit: int | None = None


@dataclass(frozen=True)
class State:
    """What a checkpoint says of the table itself: its markers by app id, metadata, protocol and domains."""

    markers: dict[str, Recorded]
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    domains: dict[str, str]


class CheckpointFiles:
    """The files of a checkpoint. Only the columns asked for are read: markers must not cost every file's statistics."""

    def __init__(self, place: Storage, checkpoint: Checkpoint, table: str, path: str) -> None:
        """Nothing is read yet."""
        self._place = place
        self._checkpoint = checkpoint
        self._table = table
        self._path = path

    def state(self) -> State:
        """Markers, metadata, protocol and domains, in one pass over the files."""
        markers: dict[str, Recorded] = {}
        metadata: dict[str, Any] = {}
        protocol: dict[str, Any] = {}
        domains: dict[str, str] = {}
        for file in self._checkpoint.files:
            found = self._columns(posixpath.join(_LOG, file), _STATE)
            markers |= _by_app_id(found["txn"])
            metadata = next(iter(_rows(found["metaData"])), metadata)
            protocol = next(iter(_rows(found["protocol"])), protocol)
            domains |= {row["domain"]: row["configuration"] for row in _rows(found["domainMetadata"])}
        return State(markers, metadata, protocol, domains)

    def adds(self) -> Iterator[Mapping[str, Any]]:
        """The `add` action of every file, in the checkpoint itself and in its sidecars."""
        for file in self._checkpoint.files:
            found = self._columns(posixpath.join(_LOG, file), {"add": None, "sidecar": None})
            yield from _rows(found["add"])
            for sidecar in _rows(found["sidecar"]):
                path = posixpath.join(_LOG, "_sidecars", sidecar["path"])
                yield from _rows(self._columns(path, {"add": None})["add"])

    def _columns(self, file: str, wanted: Wanted) -> dict[str, CheckpointColumns]:
        try:
            if file.endswith(".json"):
                return _of_json(self._place.read(file), wanted)
            return _of_parquet(self._place.open(file), wanted)
        except (OSError, ValueError) as error:
            path = posixpath.join(self._path, file)
            raise CorruptLog(table=self._table, path=path, problem=str(error)) from error


# The fields of an action, each with its values, one per action: a thousand markers are not worth a thousand dicts.
CheckpointColumns = dict[str, list[Any]]
Wanted = Mapping[str, tuple[str, ...] | None]
_STATE: Wanted = {
    "txn": ("appId", "version", "lastUpdated"),
    "metaData": ("schemaString", "partitionColumns", "configuration", "id"),
    "protocol": None,
    "domainMetadata": ("domain", "configuration"),
}


_MAPS = ("partitionValues", "configuration", "tags")


def _of_json(content: bytes, wanted: Wanted) -> dict[str, CheckpointColumns]:
    actions = [json.loads(line) for line in content.splitlines()]
    found: dict[str, CheckpointColumns] = {}
    for name in wanted:
        rows = [action[name] for action in actions if name in action]
        fields = {field for row in rows for field in row}
        found[name] = {field: [row.get(field) for row in rows] for field in fields}
    return found


def _of_parquet(source: Any, wanted: Wanted) -> dict[str, CheckpointColumns]:
    from pyarrow import parquet

    with parquet.ParquetFile(source) as file:
        schema = file.schema_arrow
        there = {name: fields for name, fields in wanted.items() if name in schema.names}
        table = file.read(columns=_paths(schema, there), use_threads=False)
    found: dict[str, CheckpointColumns] = {name: {} for name in wanted}
    for name in there:
        actions = table.column(name).combine_chunks()
        lists = [values.to_pylist() for values in actions.flatten()]
        # A row holds one action. The first field of every action is one it must have: where that is not, the row is
        # another's. (pyarrow could drop such rows itself, but loading that part of it takes longer than all the rest.)
        mine = [index for index, value in enumerate(lists[0]) if value is not None]
        fields = zip(actions.type.names, lists, strict=True)
        found[name] = {field: [values[index] for index in mine] for field, values in fields}
    return found


def _paths(schema: Any, wanted: Wanted) -> list[str]:
    paths = []
    for name, fields in wanted.items():
        present = schema.field(name).type.names
        paths += [name] if fields is None else [f"{name}.{field}" for field in fields if field in present]
    return paths


def _rows(columns: CheckpointColumns) -> list[dict[str, Any]]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    # Parquet keeps maps as lists of pairs, and every field of every action.
    return [{k: dict(v) if k in _MAPS else v for k, v in row.items() if v is not None} for row in rows]


def _by_app_id(txn: CheckpointColumns) -> dict[str, Recorded]:
    ids = txn.get("appId", [])
    times = txn.get("lastUpdated") or [None] * len(ids)
    return dict(zip(ids, map(Recorded, txn.get("version", []), times), strict=True))
