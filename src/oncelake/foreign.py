"""What somebody else did to rows that a pipeline owns: a foreign overwrite, DELETE or RESTORE, found in the target's log."""

from __future__ import annotations

from dataclasses import dataclass

from oncelake.contracts import Pattern, Ranged
from oncelake.identity import parse_slice
from oncelake.intervals import Interval, subtract
from oncelake.lake.log import Entry, TableLog
from oncelake.lake.spread import TimeColumn, touched
from oncelake.pipelines import Pipeline

# So many of the newest commits are looked at: each is a file to read.
LOOKED_AT = 256


@dataclass(frozen=True)
class Foreign:
    """A commit that was none of ours and changed rows of ours: which, as far as it says."""

    version: int
    operation: str
    rows: tuple[Interval, ...]

    def __str__(self) -> str:
        """For people."""
        which = f"rows of {', '.join(map(str, self.rows))}" if self.rows else "rows"
        return f"{which} changed by someone else in version {self.version} ({self.operation})"


def foreign_changes(pipeline: Pipeline, pattern: Pattern, log: TableLog) -> list[Foreign]:
    """The foreign changes to a target that no work of ours has written over since, oldest first."""
    if not pattern.replaces or not any(name.startswith("once/") for name in log.markers):
        return []
    zone = pipeline.grid.zone if pipeline.grid else "UTC"
    column = TimeColumn.of(log, getattr(pattern, "time", ""), zone) if isinstance(pattern, Ranged) else None
    since: list[Interval] = []
    found: list[Foreign] = []
    for entry, _ in zip(log.history(), range(LOOKED_AT), strict=False):
        if "asked" in entry.facts:
            continue
        if entry.facts:
            slice_ = parse_slice(entry.facts["slice"]) if "slice" in entry.facts else None
            if not isinstance(slice_, Interval):
                break  # the whole was written anew, or knowingly restored: what came before does not matter any more
            since.append(slice_)
            continue
        change = _change(entry, column, since, zone)
        found += [change] if change else []
    return found[::-1]


def _change(entry: Entry, column: TimeColumn | None, since: list[Interval], zone: str) -> Foreign | None:
    operation = entry.info.get("operation", "?")
    if operation == "CREATE TABLE" or (not any(entry.actions("remove")) and entry.version == 0):
        return None
    rows = touched(entry, column) if column else _any(entry)
    if rows is None:
        return Foreign(entry.version, operation, ())
    left = subtract(rows, since)
    return Foreign(entry.version, operation, tuple(Interval(p.start, p.end, zone) for p in left)) if left else None


def _any(entry: Entry) -> list[Interval] | None:
    """Nothing if a commit changed no rows; else it is not known which."""
    changes = (file for kind in ("add", "remove") for file in entry.actions(kind))
    return None if any(file.get("dataChange", True) for file in changes) else []
