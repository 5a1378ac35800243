"""What `history` says: who wrote what, from the target's own log, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.delta.commit_file import CommitFile
from oncelake.model.intervals import instant_text
from oncelake.model.slices import parse_slice
from oncelake.model.work import Rows


@dataclass(frozen=True)
class HistoryEntry:
    """One commit of a table: what it was, and which work of ours it did, if it did one."""

    version: int
    at: datetime | None
    operation: str
    rows: Rows
    facts: Mapping[str, Any]

    @property
    def slice(self) -> str | None:
        """The slice it wrote, as people read it."""
        return str(parse_slice(self.facts["slice"])) if "slice" in self.facts else None

    def document(self) -> dict[str, Any]:
        """The change as `history --json` prints it."""
        ours = {key: self.facts.get(key) for key in ("pipeline", "generation", "run", "invocation", "pins", "code")}
        return {
            "version": self.version,
            "at": instant_text(self.at) if self.at else None,
            "operation": self.operation,
            "slice": self.slice,
            **ours,
            "rows": vars(self.rows).copy(),
        }


def history_entry(entry: CommitFile) -> HistoryEntry:
    """A commit of the log, as history tells it."""
    return HistoryEntry(entry.version, entry.timestamp, entry.info.get("operation", "?"), entry.rows, entry.facts)
