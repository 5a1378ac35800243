"""The frozen records that travel: what is asked for, what there is to do, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oncelake.model.intervals import Interval, instant_text
from oncelake.model.markers import Marker
from oncelake.model.slices import Slice

COMMITTED, ALREADY_DONE, FAILED, BUSY, BLOCKED = "committed", "already_done", "failed", "busy", "blocked"
INTERRUPTED = "interrupted"
# Why a work is in a plan: never done, asked for again, done from inputs or code that changed since, or simply done.
MISSING, RESTATED, STALE, DONE, FAILED_BEFORE = "missing", "restated", "stale", "done", "failed"
# The worst outcome of its works is the run's; the first two are both "done".
_BADNESS = (COMMITTED, ALREADY_DONE, BUSY, BLOCKED, FAILED, INTERRUPTED)
EXIT_CODES = {"done": 0, BUSY: 4, BLOCKED: 1, FAILED: 1, INTERRUPTED: 130}


@dataclass(frozen=True)
class Request:
    """What a command was asked for: some pipelines or all, a date, a range, or everything due at `now`."""

    now: datetime
    names: tuple[str, ...] = ()
    date: str | None = None
    start: str | None = None
    end: str | None = None
    only: str | None = None  # of what there is to do only what is MISSING, ASKED, STALE or FAILED
    newest_first: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class InputSize:
    """How much there is to read, as far as that is known without reading it."""

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
        """The interval of time it covers, if it covers one."""
        return self.slice if isinstance(self.slice, Interval) else None


class _OfWork:
    """What a document says of a work, as attributes of the same names and values."""

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
        """The slice, as people read it."""
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


@dataclass(frozen=True)
class Rows:
    """Row counts as Delta reports them; what it does not report is None, never a guess."""

    read: int | None = None
    written: int | None = None
    deleted: int | None = None
    quarantined: int | None = 0

    def __getitem__(self, name: str) -> int | None:
        """The count of that name, as in the document."""
        return vars(self)[name]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Commit:
    """A commit that carries a marker of ours: where it is, what it did, and the facts it was given."""

    version: int
    timestamp: datetime | None
    rows: Rows
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Upstream:
    """A pipeline that has not done yet what a work reads of its table."""

    pipeline: str
    table: str
    interval: Interval


@dataclass(frozen=True)
class Planned(_OfWork):
    """A work, and what a run would do with it and why."""

    work: Work
    action: str  # "run", "skip" or "wait"
    why: str
    cause: str = MISSING
    size: InputSize = InputSize()
    waits_for: Upstream | None = None

    @property
    def estimated_rows(self) -> int | None:
        """About how many rows it would read, if that can be told from statistics."""
        return self.size.rows

    def document(self) -> dict[str, Any]:
        """The work as `plan --json` prints it."""
        told = {"action": self.action, "why": self.why, "cause": self.cause, "estimated_rows": self.estimated_rows}
        return {**work_document(self.work), **told}


@dataclass(frozen=True)
class Scope:
    """How much of a pipeline a request covers."""

    pipeline: str
    span: Interval | None
    intervals: int

    def document(self) -> dict[str, Any]:
        """The scope as `plan --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "range": str(self.span) if self.span else None,
            "intervals": self.intervals,
        }


@dataclass(frozen=True)
class Plan:
    """What a request comes to: per pipeline its scope, and the works in the order they would run."""

    pipelines: tuple[Scope, ...]
    works: tuple[Planned, ...]
    notes: tuple[str, ...] = ()

    @property
    def to_do(self) -> tuple[Planned, ...]:
        """The works that are not done."""
        return tuple(item for item in self.works if item.action != "skip")

    def document(self) -> dict[str, Any]:
        """The plan as `plan --json` prints it."""
        return {
            "pipelines": [scope.document() for scope in self.pipelines],
            "works": [item.document() for item in self.works],
            "to_do": len(self.to_do),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Outcome(_OfWork):
    """What came of one work."""

    work: Work
    outcome: str
    version: int | None = None
    rows: Rows = Rows()
    seconds: float = 0.0
    error: str | None = None
    code: str | None = None
    splittable: bool = False

    def document(self) -> dict[str, Any]:
        """The work as `run --json` prints it."""
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
    """What came of one run."""

    run: str
    works: tuple[Outcome, ...]
    interrupted: bool = False

    @property
    def outcome(self) -> str:
        """The worst of its works, `done` standing for committed and already done."""
        if self.interrupted:
            return INTERRUPTED
        worst = max((work.outcome for work in self.works), key=_BADNESS.index, default=ALREADY_DONE)
        return "done" if worst in (COMMITTED, ALREADY_DONE) else worst

    @property
    def exit_code(self) -> int:
        """The exit code that says the same."""
        return EXIT_CODES[self.outcome]

    def document(self) -> dict[str, Any]:
        """The report as `run --json` prints it."""
        return {"run": self.run, "outcome": self.outcome, "works": [work.document() for work in self.works]}


def work_document(work: Work) -> dict[str, Any]:
    """The fields every document has of a work."""
    start, end = work.interval.text.split("..") if work.interval else (None, None)
    return {
        "pipeline": work.pipeline,
        "target": work.target,
        "slice": str(work.slice),
        "start": start,
        "end": end,
        "generation": work.generation,
    }
