"""One commit file of a Delta log: its actions, markers (`txn`), facts (`userMetadata`) and row counts."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from oncelake.errors import CorruptLog
from oncelake.model.work import AS_WRITTEN, Commit, Rows
from oncelake.storage.objects import Storage

LOG = "_delta_log"


@dataclass(frozen=True)
class CommitFile:
    """One commit file: its version and its lines."""

    table: str
    path: str
    version: int
    lines: tuple[bytes, ...]

    def actions(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the actions of one kind."""
        start = b'{"' + name.encode()
        for line in self.lines:
            # Most lines are `add` actions with long statistics: only lines that can contain the action are parsed.
            if line.startswith(start) or not line.startswith(b'{"'):
                action = self._parse(line)
                if name in action:
                    yield action[name]

    @cached_property
    def info(self) -> dict[str, Any]:
        """Return the `commitInfo` action."""
        return next(self.actions("commitInfo"), {})

    @property
    def timestamp_ms(self) -> int | None:
        """Return when it was committed in milliseconds, by the writer's clock."""
        return self.info.get("timestamp")

    @cached_property
    def markers(self) -> dict[str, int]:
        """Return the version by app id of its `txn` actions."""
        return {txn["appId"]: txn["version"] for txn in self.actions("txn")}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return the facts of the run that wrote it; empty if oncelake did not write it."""
        try:
            facts = json.loads(self.info.get("userMetadata") or "null")
        except ValueError:
            return {}
        found = facts["oncelake"] if isinstance(facts, dict) and isinstance(facts.get("oncelake"), dict) else {}
        # The count of what was read and written in one pass is known only to the commit itself.
        return {**found, "rows_read": self._written} if found.get("rows_read") == AS_WRITTEN else found

    @property
    def timestamp(self) -> datetime | None:
        """Return when it was committed."""
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def commit(self) -> Commit:
        """Return the record of this commit for reports."""
        return Commit(self.version, self.timestamp, self.rows, self.facts)

    @cached_property
    def _metrics(self) -> dict[str, int]:
        found = self.info.get("operationMetrics", {}).items()
        return {key: int(value) for key, value in found if _is_count(value)}

    @property
    def _written(self) -> int | None:
        """Return how many rows a commit that merges nothing wrote."""
        written, copied = self._metrics.get("numOutputRows"), self._metrics.get("numCopiedRows", 0)
        return _count_added(self.actions("add"), copied) if written is None else written - copied

    @cached_property
    def rows(self) -> Rows:
        """Return row counts from Delta's metrics, else from the file statistics, else None."""
        metrics = self._metrics
        read, quarantined = self.facts.get("rows_read"), self.facts.get("quarantined", 0)
        if "numTargetRowsInserted" in metrics:
            merged = metrics["numTargetRowsInserted"] + metrics.get("numTargetRowsUpdated", 0)
            return Rows(read, merged, metrics.get("numTargetRowsDeleted"), quarantined)
        deleted = metrics.get("numDeletedRows")
        if deleted is None:
            deleted = _count_records(self.actions("remove"))
        return Rows(read, self._written, deleted, quarantined)

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            action = json.loads(line)
        except ValueError as error:
            raise CorruptLog(table=self.table, path=self.path, problem=str(error)) from error
        if not isinstance(action, dict):
            raise CorruptLog(table=self.table, path=self.path, problem=f"{line[:40]!r} is not an action")
        return action


def read_commit_files(place: Storage, table: str, path: str, versions: Sequence[int]) -> Iterator[CommitFile]:
    """Read commit files, in parallel where each is a request; raise CorruptLog if one is missing, empty or truncated."""
    contents = place.read_all([commit_name(version) for version in versions]) if versions else []
    for version, content in zip(versions, contents, strict=True):
        if isinstance(content, OSError):
            problem = str(content)
            raise CorruptLog(table=table, path=commit_path(path, version), problem=problem) from content
        lines = tuple(line for each in content.splitlines() if (line := each.strip()))
        # Not every line is parsed, but this detects a truncated one.
        if not lines or not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise CorruptLog(table=table, path=commit_path(path, version), problem="it is empty or truncated")
        yield CommitFile(table, commit_path(path, version), version, lines)


def commit_versions(names: Iterable[str]) -> tuple[int, ...]:
    """Return the versions of the commit files among the names in a log, in order."""
    numbers = (name[:-5] for name in names if len(name) == 25 and name.endswith(".json"))
    return tuple(sorted(int(number) for number in numbers if number.isdigit()))


def refuse_gaps(table: str, path: str, first: int, versions: Sequence[int]) -> None:
    """Raise CorruptLog unless the versions are all from the first one on."""
    if versions and list(versions) != list(range(first, versions[-1] + 1)):
        gap = next(v for v, found in zip(range(first, versions[-1] + 1), versions, strict=False) if v != found)
        raise CorruptLog(table=table, path=commit_path(path, gap), problem="this commit is missing")


def commit_file_name(version: int) -> str:
    """Return the name of a commit file within the folder of its log."""
    return f"{version:020}.json"


def commit_name(version: int) -> str:
    """Return the name of a commit file within its table's folder."""
    return posixpath.join(LOG, commit_file_name(version))


def commit_path(path: str, version: int) -> str:
    """Return the path of a commit file of the table at a path."""
    return posixpath.join(path, commit_name(version))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.isdigit())


def _count_added(adds: Iterator[dict[str, Any]], copied: int) -> int | None:
    # A file with a deletion vector existed before, and so did the rows of files with dataChange=false.
    new = (add for add in adds if add.get("dataChange", True) and not add.get("deletionVector"))
    records = _count_records(new)
    return None if records is None else records - copied


def statistics_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of an `add` or `remove` action; empty if it has none."""
    statistics: dict[str, Any] = json.loads(action.get("stats") or "{}")
    return statistics


def _count_records(actions: Iterator[dict[str, Any]]) -> int | None:
    total = 0
    for action in actions:
        statistics = statistics_of(action)
        if "numRecords" not in statistics:
            return None
        total += statistics["numRecords"]
    return total
