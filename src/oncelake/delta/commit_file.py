"""One commit file of a Delta log: its actions, markers, facts and row counts."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from oncelake.errors import CorruptLog
from oncelake.model.work import Commit, Rows
from oncelake.storage.objects import Storage

LOG = "_delta_log"


@dataclass(frozen=True)
class CommitFile:
    """One commit file: its version and the lines in it."""

    table: str
    path: str
    version: int
    lines: tuple[bytes, ...]

    def actions(self, name: str) -> Iterator[dict[str, Any]]:
        """The actions of one kind."""
        start = b'{"' + name.encode()
        for line in self.lines:
            # Most lines are files with long statistics: only those that can hold the action are parsed.
            if line.startswith(start) or not line.startswith(b'{"'):
                action = self._parse(line)
                if name in action:
                    yield action[name]

    @cached_property
    def info(self) -> dict[str, Any]:
        """The commit's own account of itself."""
        return next(self.actions("commitInfo"), {})

    @property
    def timestamp_ms(self) -> int | None:
        """When it was committed, by the writer's clock."""
        return self.info.get("timestamp")

    @cached_property
    def markers(self) -> dict[str, int]:
        """The app ids it carries, and their versions."""
        return {txn["appId"]: txn["version"] for txn in self.actions("txn")}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the run that wrote it; empty if it was not one of ours."""
        try:
            facts = json.loads(self.info.get("userMetadata") or "null")
        except ValueError:
            return {}
        return facts["oncelake"] if isinstance(facts, dict) and isinstance(facts.get("oncelake"), dict) else {}

    @property
    def timestamp(self) -> datetime | None:
        """When it was committed."""
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def commit(self) -> Commit:
        """What a report says of it."""
        return Commit(self.version, self.timestamp, self.rows, self.facts)

    @cached_property
    def rows(self) -> Rows:
        """Row counts as Delta reports them: in the metrics, else in the statistics of the files, else not at all."""
        metrics = {key: int(value) for key, value in self.info.get("operationMetrics", {}).items() if _is_count(value)}
        read, aside = self.facts.get("rows_read"), self.facts.get("quarantined", 0)
        if "numTargetRowsInserted" in metrics:
            merged = metrics["numTargetRowsInserted"] + metrics.get("numTargetRowsUpdated", 0)
            return Rows(read, merged, metrics.get("numTargetRowsDeleted"), aside)
        written = metrics.get("numOutputRows")
        if written is not None:
            written -= metrics.get("numCopiedRows", 0)
        else:
            written = _added(self.actions("add"), metrics.get("numCopiedRows", 0))
        deleted = metrics.get("numDeletedRows")
        if deleted is None:
            deleted = _records(self.actions("remove"))
        return Rows(read, written, deleted, aside)

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            action = json.loads(line)
        except ValueError as error:
            raise CorruptLog(table=self.table, path=self.path, problem=str(error)) from error
        if not isinstance(action, dict):
            raise CorruptLog(table=self.table, path=self.path, problem=f"{line[:40]!r} is no action")
        return action


def read_commit_file(place: Storage, table: str, path: str, version: int) -> CommitFile:
    """One commit file."""
    name = posixpath.join(LOG, f"{version:020}.json")
    try:
        content = place.read(name)
    except OSError as error:
        raise CorruptLog(table=table, path=_commit_path(path, version), problem=str(error)) from error
    lines = tuple(line for each in content.splitlines() if (line := each.strip()))
    # Not every line is parsed, but one that was cut off is seen.
    if not lines or not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise CorruptLog(table=table, path=_commit_path(path, version), problem="it is empty or cut off")
    return CommitFile(table, _commit_path(path, version), version, lines)


def _commit_path(path: str, version: int) -> str:
    return posixpath.join(path, LOG, f"{version:020}.json")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.isdigit())


def _added(adds: Iterator[dict[str, Any]], copied: int) -> int | None:
    # A file with a deletion vector was there before, and so were the rows of files that change no data.
    fresh = (add for add in adds if add.get("dataChange", True) and not add.get("deletionVector"))
    records = _records(fresh)
    return None if records is None else records - copied


def statistics_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """What a file's action says of its rows; empty where it says nothing."""
    statistics: dict[str, Any] = json.loads(action.get("stats") or "{}")
    return statistics


def _records(actions: Iterator[dict[str, Any]]) -> int | None:
    total = 0
    for action in actions:
        statistics = statistics_of(action)
        if "numRecords" not in statistics:
            return None
        total += statistics["numRecords"]
    return total
