"""Delta checkpoints without a JVM: classic, in several parts, and version 2 with sidecars."""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oncelake.errors import CorruptLog
from oncelake.lake.storage import Storage

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
        if found := _CLASSIC.fullmatch(name) or _V2.fullmatch(name):
            yield Checkpoint(int(found.group(1)), (name,))
        elif found := _PART.fullmatch(name):
            parts[int(found.group(1)), int(found.group(3))].append(name)
    for (version, count), files in parts.items():
        # A writer that died leaves some of the parts: such a checkpoint does not count.
        if len(files) == count:
            yield Checkpoint(version, tuple(sorted(files)))


def read_checkpoint(place: Storage, checkpoint: Checkpoint, table: str, path: str) -> CheckpointState:
    """What a checkpoint holds, read as it is asked for."""
    return CheckpointState(place, checkpoint, table, path)


class CheckpointState:
    """The actions of a checkpoint, a column at a time: markers must not cost the reading of every file's statistics."""

    def __init__(self, place: Storage, checkpoint: Checkpoint, table: str, path: str) -> None:
        """Nothing is read yet."""
        self._place = place
        self._checkpoint = checkpoint
        self._table = table
        self._path = path

    def markers(self) -> Iterator[tuple[str, int, int | None]]:
        """App id, version and time of every marker."""
        for txn in self._actions("txn", ("appId", "version", "lastUpdated")):
            yield txn["appId"], txn["version"], txn.get("lastUpdated")

    def metadata(self) -> Mapping[str, Any]:
        """The table's schema, partitioning and properties."""
        return next(self._actions("metaData", ("schemaString", "partitionColumns", "configuration", "id")), {})

    def protocol(self) -> Mapping[str, Any]:
        """The table's protocol."""
        return next(self._actions("protocol", None), {})

    def adds(self) -> Iterator[Mapping[str, Any]]:
        """The `add` action of every file, in the checkpoint itself and in its sidecars."""
        yield from self._actions("add", None)
        for sidecar in self._actions("sidecar", None):
            yield from self._of_file(posixpath.join(_LOG, "_sidecars", sidecar["path"]), "add", None)

    def _actions(self, name: str, fields: tuple[str, ...] | None) -> Iterator[dict[str, Any]]:
        for file in self._checkpoint.files:
            yield from self._of_file(posixpath.join(_LOG, file), name, fields)

    def _of_file(self, file: str, name: str, fields: tuple[str, ...] | None) -> Iterator[dict[str, Any]]:
        try:
            if file.endswith(".json"):
                yield from _json_actions(self._place.read(file), name)
            else:
                yield from _parquet_actions(self._place.open(file), name, fields)
        except (OSError, ValueError) as error:
            path = posixpath.join(self._path, file)
            raise CorruptLog(table=self._table, path=path, problem=str(error)) from error


def _json_actions(content: bytes, name: str) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        action = json.loads(line)
        if name in action:
            yield action[name]


def _parquet_actions(source: Any, name: str, fields: tuple[str, ...] | None) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(source) as file:
        if name not in file.schema_arrow.names:
            return
        kind = file.schema_arrow.field(name).type
        present = {kind[i].name for i in range(kind.num_fields)}
        columns = [name] if fields is None else [f"{name}.{field}" for field in fields if field in present]
        column = file.read(columns=columns, use_threads=False).column(name)
    for action in column.drop_null().to_pylist():
        # Parquet keeps maps as lists of pairs.
        yield {key: dict(value) if _is_map(value) else value for key, value in action.items() if value is not None}


def _is_map(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, tuple) for item in value)
