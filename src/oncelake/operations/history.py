"""The history of a table: who wrote what, from its own log, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncelake.delta.commit_file import CommitFile
from oncelake.model.intervals import instant_text
from oncelake.model.slices import parse_slice
from oncelake.model.work import Rows

# What the commit of a batch records of its files: rows read = written + quarantined + filtered.
_ACCOUNT = ("files", "rows_read", "quarantined", "filtered", "rescued", "duplicates", "schema")


@dataclass(frozen=True)
class HistoryEntry:
    """One commit of a table: its operation, and the work that it committed, if any."""

    version: int
    at: datetime | None
    operation: str
    rows: Rows
    facts: Mapping[str, Any]

    @property
    def slice(self) -> str | None:
        """The slice it wrote, formatted for display."""
        return str(parse_slice(self.facts["slice"])) if "slice" in self.facts else None

    def document(self) -> dict[str, Any]:
        """Return the entry as `history --json` prints it."""
        facts = {key: self.facts.get(key) for key in ("pipeline", "generation", "run", "invocation", "pins", "code")}
        return {
            "version": self.version,
            "at": instant_text(self.at) if self.at else None,
            "operation": self.operation,
            "slice": self.slice,
            **facts,
            "rows": vars(self.rows).copy(),
            "account": {name: self.facts[name] for name in _ACCOUNT if name in self.facts} or None,
        }


def history_entry(entry: CommitFile) -> HistoryEntry:
    """Return the history entry of a commit."""
    return HistoryEntry(entry.version, entry.timestamp, entry.info.get("operation", "?"), entry.rows, entry.facts)
