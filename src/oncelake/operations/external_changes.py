"""What somebody else did to rows that a pipeline owns: a foreign overwrite, DELETE or RESTORE, found in the target's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.commit_file import CommitFile
from oncelake.delta.log import TableLog
from oncelake.delta.time_ranges import TimeColumn, touched
from oncelake.model.contracts import Pattern, RangeWriter
from oncelake.model.intervals import Interval, subtract
from oncelake.model.slices import Whole, parse_slice


@dataclass(frozen=True)
class ExternalChange:
    """A commit that was none of ours and changed rows of ours: which, as far as it says."""

    version: int
    operation: str
    rows: tuple[Interval, ...]

    def __str__(self) -> str:
        """For people."""
        which = f"rows of {', '.join(map(str, self.rows))}" if self.rows else "rows"
        return f"{which} changed by someone else in version {self.version} ({self.operation})"


def external_changes(pipeline: Pipeline, pattern: Pattern, log: TableLog) -> list[ExternalChange]:
    """The foreign changes to a target that no work of ours has written over since, oldest first."""
    if not any(name.startswith("once/") for name in log.markers):
        return []
    zone = pipeline.grid.zone if pipeline.grid else "UTC"
    column = TimeColumn.of(log, getattr(pattern, "time", ""), zone) if isinstance(pattern, RangeWriter) else None
    since: list[Interval] = []
    found: list[ExternalChange] = []
    for entry in log.newest():
        restate_requests = "requested" in entry.facts
        if restate_requests and pattern.replaces:
            continue
        # Where it cannot be told whose rows are whose, whoever had some of them restated since knows of it.
        if restate_requests or _settles(entry.facts):
            break
        since += _written(entry.facts)
        if not entry.facts and (pattern.replaces or _takes_away(entry)):
            change = _change(entry, column, since, zone)
            found += [change] if change else []
    return found[::-1]


def _settles(facts: Mapping[str, Any]) -> bool:
    """Whether the whole was written anew, or knowingly restored: what came before does not matter any more."""
    return "restore" in facts or facts.get("slice") == Whole().text or facts.get("pattern") == "overwrite"


def _written(facts: Mapping[str, Any]) -> list[Interval]:
    """The time that a commit of ours wrote; a repair does not say which."""
    slice_ = parse_slice(facts["slice"]) if "slice" in facts else None
    return [slice_] if isinstance(slice_, Interval) else []


def _takes_away(entry: CommitFile) -> bool:
    """Whether a commit took rows away. A table that is merged into or appended to may have other feeders, which change rows."""
    removed = any(file.get("dataChange", True) for file in entry.actions("remove"))
    return removed and entry.info.get("operation") not in ("MERGE", "UPDATE")


def _change(entry: CommitFile, column: TimeColumn | None, since: list[Interval], zone: str) -> ExternalChange | None:
    operation = entry.info.get("operation", "?")
    if operation == "CREATE TABLE" or (not any(entry.actions("remove")) and entry.version == 0):
        return None
    rows = touched(entry, column) if column else _any(entry)
    if rows is None:
        return ExternalChange(entry.version, operation, ())
    left = subtract(rows, since)
    return (
        ExternalChange(entry.version, operation, tuple(Interval(p.start, p.end, zone) for p in left)) if left else None
    )


def _any(entry: CommitFile) -> list[Interval] | None:
    """Nothing if a commit changed no rows; else it is not known which."""
    changes = (file for kind in ("add", "remove") for file in entry.actions(kind))
    return None if any(file.get("dataChange", True) for file in changes) else []
