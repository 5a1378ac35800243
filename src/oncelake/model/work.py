"""The frozen records of a run: the request, the plan, the works and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oncelake.errors import OncelakeError
from oncelake.model.intervals import Interval, instant_text
from oncelake.model.markers import Marker
from oncelake.model.slices import Slice

COMMITTED, ALREADY_DONE, FAILED, BUSY, BLOCKED = "committed", "already_done", "failed", "busy", "blocked"
INTERRUPTED = "interrupted"
# Why a work is in a plan: not done yet, restated, done from inputs or code that changed since, done, or failed before.
MISSING, RESTATED, STALE, DONE, FAILED_BEFORE = "missing", "restated", "stale", "done", "failed"
# A request may also ask for late data only: stale works whose inputs changed, not their code.
LATE = "late"
# From best to worst: a run has the worst outcome of its works. The first two count as "done".
_SEVERITY = (COMMITTED, ALREADY_DONE, BUSY, BLOCKED, FAILED, INTERRUPTED)
EXIT_CODES = {"done": 0, BUSY: 4, BLOCKED: 1, FAILED: 1, INTERRUPTED: 130}


@dataclass(frozen=True)
class Request:
    """The arguments of a command: some pipelines or all, and a date, a range, or everything due at `now`."""

    now: datetime
    names: tuple[str, ...] = ()
    date: str | None = None
    start: str | None = None
    end: str | None = None
    only: str | None = None  # a cause (RESTATED, STALE, FAILED_BEFORE, …) or LATE: plan only those works
    newest_first: bool = False
    limit: int | None = None
    frozen_only: bool = False  # of what arrives, only the batches that are frozen already


@dataclass(frozen=True)
class InputSize:
    """The size of an input, as far as it is known without reading it."""

    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Work:
    """The smallest thing that commits."""

    pipeline: str
    target: str
    slice: Slice
    generation: int
    marker: Marker

    @property
    def interval(self) -> Interval | None:
        """The interval it covers, if its slice is one."""
        return self.slice if isinstance(self.slice, Interval) else None


class _WorkFields:
    """The fields of a work in JSON documents, as attributes with the same names and values."""

    work: Work

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.work.pipeline

    @property
    def target(self) -> str:
        """The table it writes."""
        return self.work.target

    @property
    def slice(self) -> str:
        """The slice, formatted for display."""
        return str(self.work.slice)

    @property
    def start(self) -> str | None:
        """The start of its interval in UTC, if it covers one."""
        return instant_text(self.work.interval.start) if self.work.interval else None

    @property
    def end(self) -> str | None:
        """The end of its interval in UTC, exclusive, if it covers one."""
        return instant_text(self.work.interval.end) if self.work.interval else None

    @property
    def generation(self) -> int:
        """The generation."""
        return self.work.generation


# In the facts of a commit instead of the number of rows read: every row that was read was written, in one pass.
AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Rows:
    """Row counts as Delta reports them; a count that Delta does not report is None, never a guess."""

    read: int | None = None
    written: int | None = None
    deleted: int | None = None
    quarantined: int | None = 0

    def __getitem__(self, name: str) -> int | None:
        """Return the count of that name, as in the JSON document."""
        return vars(self)[name]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Commit:
    """A commit with an oncelake marker: its version, its row counts and its facts (`userMetadata`)."""

    version: int
    timestamp: datetime | None
    rows: Rows
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Upstream:
    """A pipeline that has not yet written the interval of its table that a work reads."""

    pipeline: str
    table: str
    interval: Interval


@dataclass(frozen=True)
class Planned(_WorkFields):
    """A work in a plan: what a run would do with it, and why."""

    work: Work
    action: str  # "run", "skip" or "wait"
    why: str
    cause: str = MISSING
    size: InputSize = InputSize()
    waits_for: Upstream | None = None
    # What a run reports for the work instead of attempting it.
    refusal: OncelakeError | None = None

    @property
    def estimated_rows(self) -> int | None:
        """The estimated number of rows to read, if statistics are available."""
        return self.size.rows

    def document(self) -> dict[str, Any]:
        """Return the work as `plan --json` prints it."""
        planned = {"action": self.action, "why": self.why, "cause": self.cause, "estimated_rows": self.estimated_rows}
        return {**work_document(self.work), **planned}


@dataclass(frozen=True)
class Scope:
    """How much of a pipeline a request covers."""

    pipeline: str
    span: Interval | None
    intervals: int
    # What is covered, where that is not time.
    text: str = ""

    def document(self) -> dict[str, Any]:
        """Return the scope as `plan --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "range": str(self.span) if self.span else None,
            "intervals": self.intervals,
        }


@dataclass(frozen=True)
class Plan:
    """The plan for a request: the scope of each pipeline, and the works in the order they would run."""

    pipelines: tuple[Scope, ...]
    works: tuple[Planned, ...]
    notes: tuple[str, ...] = ()
    # Whether works were left for another run, because only so many were requested.
    limited: bool = False
    # Whether what arrived since is left for another run: no batch is frozen for it.
    frozen_only: bool = False

    @property
    def to_do(self) -> tuple[Planned, ...]:
        """The works that are not done."""
        return tuple(item for item in self.works if item.action != "skip")

    def document(self) -> dict[str, Any]:
        """Return the plan as `plan --json` prints it."""
        return {
            "pipelines": [scope.document() for scope in self.pipelines],
            "works": [item.document() for item in self.works],
            "to_do": len(self.to_do),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Outcome(_WorkFields):
    """The outcome of one work."""

    work: Work
    outcome: str
    version: int | None = None
    rows: Rows = Rows()
    seconds: float = 0.0
    error: str | None = None
    code: str | None = None
    splittable: bool = False
    stops_run: bool = False

    def document(self) -> dict[str, Any]:
        """Return the work as `run --json` prints it."""
        return {
            **work_document(self.work),
            "outcome": self.outcome,
            "version": self.version,
            "rows": vars(self.rows).copy(),
            "seconds": round(self.seconds, 3),
            "error": self.error,
            "code": self.code,
        }


@dataclass(frozen=True)
class Report:
    """The report of one run: the outcome of each work."""

    run: str
    works: tuple[Outcome, ...]
    interrupted: bool = False

    @property
    def outcome(self) -> str:
        """The worst outcome of its works; `done` means committed or already done."""
        if self.interrupted:
            return INTERRUPTED
        worst = max((work.outcome for work in self.works), key=_SEVERITY.index, default=ALREADY_DONE)
        return "done" if worst in (COMMITTED, ALREADY_DONE) else worst

    @property
    def exit_code(self) -> int:
        """The exit code for the outcome."""
        return EXIT_CODES[self.outcome]

    def document(self) -> dict[str, Any]:
        """Return the report as `run --json` prints it."""
        return {"run": self.run, "outcome": self.outcome, "works": [work.document() for work in self.works]}


def work_document(work: Work) -> dict[str, Any]:
    """Return the fields of a work that every JSON document has."""
    start, end = work.interval.text.split("..") if work.interval else (None, None)
    return {
        "pipeline": work.pipeline,
        "target": work.target,
        "slice": str(work.slice),
        "start": start,
        "end": end,
        "generation": work.generation,
    }
