"""What people and machines see: tables and a progress line on standard error, one JSON document on standard output."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

import oncelake as once
from oncelake.cli.progress import Lines, Live, count_of, number_text, scope_line

if TYPE_CHECKING:
    from oncelake.keyed.repair import Repair
    from oncelake.model.work import Planned
    from oncelake.operations.history import HistoryEntry
    from oncelake.operations.restate import RestateRequest
    from oncelake.operations.restore import Restore
    from oncelake.operations.status import TargetStatus


class Output:
    """Where the results of commands go. Every method that ends a command returns its exit code."""

    def __init__(self, as_json: bool) -> None:
        """People's output goes to standard error when a machine reads standard output."""
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        """A line for people."""
        print(text, file=sys.stderr if self.as_json else sys.stdout)

    def document(self, document: Any) -> None:
        """The one document for machines."""
        if self.as_json:
            print(json.dumps(document, ensure_ascii=False))

    def error(self, error: once.OncelakeError) -> int:
        """An error that ended the command."""
        print(f"error: {error}", file=sys.stderr)
        told = {"code": error.code, "message": error.message, "next": error.next, "retry": error.retry.value}
        self.document({"outcome": "failed", "error": told, "works": []})
        return error.exit_code

    def interrupted(self) -> int:
        """Ctrl-C before there was anything to report."""
        print("interrupted; nothing was under way", file=sys.stderr)
        self.document({"outcome": "interrupted", "works": []})
        return 130

    @contextmanager
    def progress(self) -> Iterator[Lines]:
        """Somebody to watch a run: a live line on a terminal, plain lines elsewhere."""
        watcher = Live(self.say) if sys.stderr.isatty() else Lines(self.say)
        # What a user's function prints must not end up in front of the document.
        elsewhere = redirect_stdout(sys.stderr) if self.as_json else nullcontext()
        try:
            with elsewhere:
                yield watcher
        finally:
            watcher.close()

    def made(self, folder: str, files: Sequence[str]) -> None:
        """A new project."""
        self.say(f"made {folder}:")
        for file in files:
            self.say(f"  {file}")
        self.say(f"\nnext: cd {folder} && oncelake run")

    def report(self, report: once.Report) -> int:
        """What came of a run."""
        counts = Counter(outcome.outcome for outcome in report.works)
        parts = [f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in counts.items()]
        nothing = "nothing was committed" if report.outcome == "interrupted" else "nothing is due"
        self.say(f"{report.outcome}: {', '.join(parts) or nothing}")
        if report.outcome == "interrupted":
            self.say("  what is committed stays; `oncelake run` goes on with the rest")
        self.document(report.document())
        return report.exit_code

    def plan(self, plan: once.Plan) -> int:
        """What a run would do."""
        for scope in plan.pipelines:
            self.say(scope_line(scope))
        self._table(("pipeline", "target", "slices", "action", "commits", "rows to read", "why"), _folded(plan.works))
        for note in plan.notes:
            self.say(f"note: {note}")
        self.say(f"{len(plan.to_do):,} of {count_of(len(plan.works), 'work')} to do")
        self.document(plan.document())
        return 0

    def restatement(
        self, restate_requests: Sequence[RestateRequest], left: Sequence[str], downstream: bool, dry_run: bool
    ) -> None:
        """What is to be done again, what that replaces, and what is made from it and left as it is."""
        rows = [
            (a.pipeline, a.target, str(a.slice), str(a.generation), _some(a.versions), number_text(a.rows))
            for a in restate_requests
        ]
        self._table(("pipeline", "target", "to do again", "generation", "written in version", "rows"), rows)
        if any(ask.pending for ask in restate_requests):
            self.say("note: it was asked for before, and is not done yet")
        if left and downstream:
            self.say(f"note: made from it, but nothing of that is there to do again: {', '.join(left)}")
        elif left:
            self.say(f"note: made from it, and left as it is without --downstream: {', '.join(left)}")
        self.say("what is there is replaced slice by slice; readers see a slice as it was or as it will be")
        if dry_run:
            self.document({"restate": [ask.document() for ask in restate_requests]})

    def restore(self, restore: Restore, dry_run: bool, last: bool = False) -> int:
        """What a restore undoes."""
        undone = [(each.pipeline, str(each.slice), str(each.generation)) for each in restore.undone]
        self._table(("pipeline", "undone", "to do in generation"), undone)
        for each in restore.elsewhere:
            self.say(
                f"note: once.write(work=...) {each.pipeline} {each.slice} is undone; generation={each.generation} does it again"
            )
        head = "would go" if dry_run else "went"
        self.say(f"{restore.target} {head} back from version {restore.read} to what it was in version {restore.to}")
        if last:
            self.document(restore.document())
        return 0

    def graph(self, pipelines: Mapping[str, once.Pipeline], mermaid: bool) -> int:
        """How pipelines hang together."""
        from oncelake.declare.graph import as_mermaid, as_text, edges

        text = as_mermaid(pipelines) if mermaid else as_text(pipelines)
        self.say(text)
        self.document({"edges": [{"from": a, "to": b} for a, b in edges(pipelines)], "text": text})
        return 0

    def status(self, standings: Sequence[TargetStatus]) -> int:
        """Where things stand."""
        rows = [
            (s.pipeline, s.target, f"{s.done:,}", f"{s.missing:,}", _ranges(s.gaps), _when(s.last), _version(s.version))
            for s in standings
        ]
        self._table(("pipeline", "target", "done", "missing", "gaps", "last commit", "version"), rows)
        for standing in standings:
            self._details(standing)
        self.document({"pipelines": [standing.document() for standing in standings]})
        return 0

    def _details(self, standing: TargetStatus) -> None:
        target = standing.target
        if standing.running:
            self.say(f"running: {target}: {standing.running}")
        if standing.pending:
            self.say(f"restated: {target}: {_ranges(standing.pending)} was asked for and is not done yet")
        for reason, group in _by_reason(standing.stale):
            self.say(f"stale: {target}: {_ranges(group)}: {reason}\n  next: oncelake run {standing.pipeline} --stale")
        for failure in standing.failed:
            self.say(f"failed: {target}: {failure.slice}: {failure.problem}\n  next: {failure.next}")
        for warning in standing.warnings:
            self.say(f"warning: {warning}")

    def history(self, target: str, changes: Sequence[HistoryEntry]) -> int:
        """Who wrote what."""
        rows = [
            (
                _version(c.version),
                _when(c.at),
                c.facts.get("pipeline") or f"({c.operation})",
                c.slice or "",
                *_counts(c),
            )
            for c in changes
        ]
        header = ("version", "at", "pipeline", "slice", "generation", "written", "deleted", "run")
        self._table(header, rows)
        self.document({"target": target, "commits": [change.document() for change in changes]})
        return 0

    def repair(self, repair: Repair, dry_run: bool) -> int:
        """What was there more than once, and what became of it."""
        keys, target = ",".join(repair.keys), repair.target
        if not repair.doubled:
            self.say(f"{target}: no key ({keys}) is there more than once, in version {repair.read}")
        else:
            copies = (
                f"{count_of(repair.doubled, 'key')} ({keys}) more than once, {count_of(repair.surplus, 'surplus row')}"
            )
            self.say(f"{target}, version {repair.read}: {copies} in {count_of(repair.files, 'file')}")
            self.say(
                f"  identical: {count_of(repair.identical, 'key')}; differing: {count_of(repair.differing, 'key')}"
            )
            for commit in repair.since:
                who = commit["pipeline"] or f"({commit['operation']})"
                self.say(f"  version {commit['version']} by {who} brought in {count_of(commit['rows'], 'row')}")
            self.say(f"  such as {', '.join(repair.examples)}")
        if repair.removable:
            removed = f"{count_of(repair.removable, 'row')}"
            self.say(f"would remove {removed}" if dry_run else f"removed {removed} in version {repair.version}")
        if repair.left:
            self.say(f"left: {count_of(repair.left, 'row')} that differ from another row of their key")
            self.say(f"  next: oncelake repair {target} --keys {keys} --keep latest_by=COLUMN")
        self.document(repair.document())
        return 1 if repair.left and not dry_run else 0

    def _table(self, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        if not rows:
            return
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _by_reason(stale: Sequence[tuple[once.Interval, str]]) -> list[tuple[str, list[once.Interval]]]:
    found: dict[str, list[once.Interval]] = {}
    for interval, reason in stale:
        found.setdefault(reason.removeprefix("done, but stale: "), []).append(interval)
    return list(found.items())


def _folded(works: Sequence[Planned]) -> list[tuple[str, ...]]:
    """Works with the same fate as one line."""
    folded: dict[tuple[str, ...], list[Planned]] = {}
    for work in works:
        folded.setdefault((work.pipeline, work.target, work.action, work.why), []).append(work)
    return [
        (pipeline, target, _ranges([work.work.slice for work in same]), action, *_effort(action, same), why)
        for (pipeline, target, action, why), same in folded.items()
    ]


def _effort(action: str, works: Sequence[Planned]) -> tuple[str, str]:
    """How many commits some works come to, and about how many rows they read; nothing where they are not done."""
    if action != "run":
        return "", ""
    rows = [work.estimated_rows for work in works if work.estimated_rows is not None]
    return f"{len(works):,}", f"about {sum(rows):,}" if len(rows) == len(works) else "-"


def _some(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions[:5])) + (", …" if len(versions) > 5 else "") if versions else "-"


def _ranges(slices: Sequence[Any]) -> str:
    intervals = [slice_ for slice_ in slices if isinstance(slice_, once.Interval)]
    if not intervals:
        return ", ".join(str(slice_) for slice_ in slices)
    from oncelake.model.intervals import merge

    merged = merge(intervals)
    shown = ", ".join(str(interval) for interval in merged[:3])
    return shown + (f" and {len(merged) - 3} more" if len(merged) > 3 else "")


def _when(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z" if at else "-"


def _version(version: int | None) -> str:
    return "-" if version is None else str(version)


def _counts(change: HistoryEntry) -> tuple[str, str, str, str]:
    generation = change.facts.get("generation")
    written, deleted = number_text(change.rows.written), number_text(change.rows.deleted)
    return "" if generation is None else str(generation), written, deleted, change.facts.get("run") or ""
