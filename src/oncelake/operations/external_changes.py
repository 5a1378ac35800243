"""External changes: an overwrite, DELETE or RESTORE by another tool on rows that a pipeline owns, found in the log."""

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
    """A commit of another tool that changed rows of a pipeline; `rows` is their time, empty if it is unknown."""

    version: int
    operation: str
    rows: tuple[Interval, ...]

    def __str__(self) -> str:
        """Format for display."""
        which = f"rows of {', '.join(map(str, self.rows))}" if self.rows else "rows"
        said = f"{which} changed outside oncelake in version {self.version} ({self.operation})"
        if self.operation != "RESTORE":
            return said
        # Delta's RESTORE keeps the markers.
        return f"{said}; works that it undid still count as done: restore version {self.version - 1} by oncelake to have them back"


def external_changes(pipeline: Pipeline, pattern: Pattern, log: TableLog) -> list[ExternalChange]:
    """Return the external changes to a target that no work has overwritten since, oldest first."""
    if not any(name.startswith("once/") for name in log.markers):
        return []
    zone = pipeline.grid.zone if pipeline.grid else "UTC"
    column = TimeColumn.of(log, getattr(pattern, "time", ""), zone) if isinstance(pattern, RangeWriter) else None
    rewritten: list[Interval] = []
    changes: list[ExternalChange] = []
    for entry in log.newest():
        is_request = "requested" in entry.facts
        if is_request and pattern.replaces:
            continue
        # If the owner of a row is not known, a restate request since then means that the user knows of earlier changes.
        if is_request or _replaces_table(entry.facts):
            break
        rewritten += _written(entry.facts)
        if not entry.facts and (pattern.replaces or _deletes_rows(entry)):
            change = _change(entry, column, rewritten, zone)
            changes += [change] if change else []
    return changes[::-1]


def written_by_others(log: TableLog) -> list[ExternalChange]:
    """Return the commits of other writers whose rows may still be in a table, oldest first, among the newest commits."""
    changes: list[ExternalChange] = []
    for entry in log.newest():
        if not log.in_lineage(entry.version):
            continue
        if "rebuilt" in entry.facts or entry.facts.get("pattern") == "overwrite":
            break
        if not entry.facts and _without_time(entry) is None:
            changes.append(ExternalChange(entry.version, entry.info.get("operation", "?"), ()))
    return changes[::-1]


def _replaces_table(facts: Mapping[str, Any]) -> bool:
    """Return whether a commit rewrote or restored the whole table: earlier changes do not matter any more."""
    return "restore" in facts or facts.get("slice") == Whole().text or facts.get("pattern") == "overwrite"


def _written(facts: Mapping[str, Any]) -> list[Interval]:
    """Return the interval that a work committed; none for a repair, which does not record it."""
    slice_ = parse_slice(facts["slice"]) if "slice" in facts else None
    return [slice_] if isinstance(slice_, Interval) else []


def _deletes_rows(entry: CommitFile) -> bool:
    """Return whether a commit deleted rows. A table with merges or appends may have other writers, which update rows."""
    removed = any(file.get("dataChange", True) for file in entry.actions("remove"))
    return removed and entry.info.get("operation") not in ("MERGE", "UPDATE")


def _change(
    entry: CommitFile, column: TimeColumn | None, rewritten: list[Interval], zone: str
) -> ExternalChange | None:
    operation = entry.info.get("operation", "?")
    if operation == "CREATE TABLE" or (not any(entry.actions("remove")) and entry.version == 0):
        return None
    rows = touched(entry, column) if column else _without_time(entry)
    if rows is None:
        return ExternalChange(entry.version, operation, ())
    left = subtract(rows, rewritten)
    return (
        ExternalChange(entry.version, operation, tuple(Interval(p.start, p.end, zone) for p in left)) if left else None
    )


def _without_time(entry: CommitFile) -> list[Interval] | None:
    """Return an empty list if a commit changed no rows; else None, because the time of the rows is unknown."""
    changes = (file for kind in ("add", "remove") for file in entry.actions(kind))
    return None if any(file.get("dataChange", True) for file in changes) else []
