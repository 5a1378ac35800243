"""Output of the commands: text for people, one JSON document for scripts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

import oncelake as once
from oncelake.cli.hints import add_options, add_to_document
from oncelake.cli.progress import Lines, Live, format_count, format_number, format_scope, format_totals

if TYPE_CHECKING:
    from oncelake.keyed.repair import Repair
    from oncelake.model.slices import Slice
    from oncelake.model.work import Planned
    from oncelake.operations.environment import Environment
    from oncelake.operations.history import HistoryEntry
    from oncelake.operations.rebuild import Rebuild
    from oncelake.operations.restate import RestateRequest
    from oncelake.operations.restore import Restore
    from oncelake.operations.status import TargetStatus
    from oncelake.operations.stream_status import StreamStatus


class Output:
    """Print the results of commands. Each method that ends a command returns its exit code."""

    def __init__(self, as_json: bool, options: str = "") -> None:
        """Send text to standard error if standard output is for JSON. Commands in it get the `options` of this one."""
        self.as_json, self.options = as_json, options

    def say(self, text: str = "") -> None:
        """Print a line of text."""
        print(add_options(text, self.options), file=sys.stderr if self.as_json else sys.stdout)

    def document(self, document: Any) -> None:
        """Print the JSON document of the command, if it was requested."""
        if self.as_json:
            print(json.dumps(add_to_document(document, self.options), ensure_ascii=False))

    def error(self, error: once.OncelakeError) -> int:
        """Print an error that ended the command."""
        print(add_options(f"error: {error}", self.options), file=sys.stderr)
        details = {"code": error.code, "message": error.message, "next": error.next, "retry": error.retry.value}
        self.document({"outcome": "failed", "error": details, "works": []})
        return error.exit_code

    def usage_error(self, message: str) -> None:
        """Print the document of a usage error; click prints the text."""
        error = {"code": "usage", "message": message, "next": "", "retry": "useless"}
        self.document({"outcome": "failed", "error": error, "works": []})

    def interrupted(self) -> int:
        """Print that Ctrl-C ended the command before a run began."""
        print("interrupted before any work started", file=sys.stderr)
        self.document({"outcome": "interrupted", "works": []})
        return 130

    @contextmanager
    def progress(self) -> Iterator[Lines]:
        """Return the display of a run: a live line on a terminal, plain lines elsewhere."""
        display = Live(self.say) if sys.stderr.isatty() else Lines(self.say)
        # What a user's function prints must not precede the JSON document on standard output.
        redirect = redirect_stdout(sys.stderr) if self.as_json else nullcontext()
        try:
            with redirect:
                yield display
        finally:
            display.close()

    def created(self, folder: str, files: Sequence[str]) -> None:
        """Print the files of a new project."""
        self.say(f"created {folder}:")
        for file in files:
            self.say(f"  {file}")
        self.say(f"\nnext: cd {folder} && oncelake run")

    def report(self, report: once.Report) -> int:
        """Print the outcome of a run."""
        counts = Counter(outcome.outcome for outcome in report.works)
        parts = [f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in counts.items()]
        nothing = "nothing was committed" if report.outcome == "interrupted" else "nothing is due"
        self.say(f"{report.outcome}: {', '.join(parts) or nothing}")
        if report.outcome == "interrupted":
            self.say("  committed work is kept; to resume, run: oncelake run")
        self.document(report.document())
        return report.exit_code

    def plan(self, plan: once.Plan) -> int:
        """Print what a run would do."""
        for scope in plan.pipelines:
            self.say(format_scope(scope))
        header = ("pipeline", "target", "slices", "action", "commits", "rows to read", "why")
        self.table(header, _group_works(plan.works))
        for note in plan.notes:
            self.say(f"note: {note}")
        self.say(format_totals(plan))
        self.document(plan.document())
        return 0

    def restatement(
        self, requests: Sequence[RestateRequest], omitted: Sequence[str], downstream: bool, dry_run: bool
    ) -> None:
        """Print the slices to restate, what they replace, and the downstream pipelines that are not restated."""
        rows = [
            (r.pipeline, r.target, str(r.slice), str(r.generation), _format_versions(r.versions), format_number(r.rows))
            for r in requests
        ]
        self.table(("pipeline", "target", "slice", "generation", "replaces version", "rows"), rows)
        if files := {request.slice: request.files for request in requests if request.files is not None}:
            self.say(f"{sum(files.values()):,} files are read again")
        if any(request.pending for request in requests):
            self.say("note: an earlier request to restate is pending; this command resumes it")
        if omitted and downstream:
            self.say(f"note: downstream pipelines with no slice to restate yet: {', '.join(omitted)}")
        elif omitted:
            self.say(f"note: downstream pipelines are not restated without --downstream: {', '.join(omitted)}")
        if any(request.replaces for request in requests):
            self.say("each slice is replaced atomically: readers see the old rows or the new ones")
        for target in dict.fromkeys(request.target for request in requests if not request.replaces):
            remain = "its batches are applied again, and rows that they no longer have remain"
            redo = "" if requests[0].files is not None else f"; the true redo is: oncelake rebuild {target}"
            self.say(f"note: {target} is merged into: {remain}{redo}")
        if dry_run:
            self.document({"restate": [request.document() for request in requests]})

    def restore(self, restore: Restore, dry_run: bool, last: bool = False) -> int:
        """Print what a restore undoes."""
        undone = [(each.pipeline, str(each.slice), str(each.generation)) for each in restore.undone]
        self.table(("pipeline", "undone slice", "next generation"), undone)
        for each in restore.elsewhere:
            work = f"{each.pipeline} {each.slice}"
            self.say(f"note: this undoes once.write {work}; the same call writes it again")
        verb = "would restore" if dry_run else "restored"
        self.say(f"{verb} {restore.target} from version {restore.read} to the content of version {restore.to}")
        if last:
            self.document(restore.document())
        return 0

    def rebuild(self, rebuild: Rebuild, dry_run: bool, last: bool = False) -> int:
        """Print what a rebuild replays, or what came of it."""
        if not last:
            rows = "an unknown number of" if rebuild.estimated_rows is None else f"about {rebuild.estimated_rows:,}"
            works = format_count(len(rebuild.works), "completed work")
            self.say(f"{rebuild.target}, version {rebuild.read}: {works} to replay, {rows} rows to read")
            for change in rebuild.external:
                self.say(f"note: no work replays this, so its rows are dropped: {change}")
        elif rebuild.failed:
            self.say(f"{rebuild.target} is unchanged: the replay failed; the same command resumes it")
        else:
            self.say(f"rebuilt {rebuild.target} in version {rebuild.version}")
        if last or dry_run:
            self.document(rebuild.document())
        return 1 if rebuild.failed else 0

    def graph(self, pipelines: Mapping[str, once.Pipeline], mermaid: bool) -> int:
        """Print the dependencies between pipelines."""
        from oncelake.declare.graph import as_mermaid, as_text, edges

        text = as_mermaid(pipelines) if mermaid else as_text(pipelines)
        self.say(text)
        self.document({"edges": [{"from": a, "to": b} for a, b in edges(pipelines)], "text": text})
        return 0

    def status(self, statuses: Sequence[TargetStatus], environment: Environment) -> int:
        """Print where the project runs and the status of every target."""
        for line in environment.lines():
            self.say(line)
        rows = [
            (
                s.pipeline,
                s.target,
                f"{s.done:,}",
                f"{s.missing:,}",
                _format_ranges(s.gaps),
                _format_time(s.last),
                _format_version(s.version),
            )
            for s in statuses
        ]
        self.table(("pipeline", "target", "done", "missing", "gaps", "last commit", "version"), rows)
        for pipeline, stream in {status.pipeline: status.stream for status in statuses}.items():
            if stream is not None:
                self._stream_details(stream, pipeline)
        for status in statuses:
            self._status_details(status)
        # A warning about an input or the ledger concerns several targets.
        for warning in dict.fromkeys(warning for status in statuses for warning in status.warnings):
            self.say(f"warning: {warning}")
        pipelines = [status.document() for status in statuses]
        self.document({"environment": environment.document(), "pipelines": pipelines})
        return 0

    def _status_details(self, status: TargetStatus) -> None:
        target, next_run = status.target, f"  next: oncelake run {status.pipeline}"
        if status.backlog and status.backlog.files:
            backlog = status.backlog
            waiting = f"{format_count(backlog.files, 'file')} ({backlog.bytes:,} bytes, {format_count(backlog.batches, 'batch', 'batches')})"
            self.say(f"backlog: {target}: {waiting} to ingest\n{next_run}")
        if status.running:
            self.say(f"running: {target}: {status.running}")
        if status.pending:
            self.say(
                f"pending: {target}: {_format_ranges(status.pending)}: restate requested, not done yet\n{next_run}"
            )
        for reason, intervals in _group_by_reason(status.stale):
            redo = f"  next: oncelake rebuild {target}" if _only_rebuilt(reason, target) else f"{next_run} --stale"
            self.say(f"stale: {target}: {_format_ranges(intervals)}: {reason}\n{redo}")
        for failure in status.failed:
            self.say(f"failed: {target}: {failure.slice}: {failure.problem}\n  next: {failure.next}")

    def _stream_details(self, stream: StreamStatus, pipeline: str) -> None:
        self.say(f"stream: {pipeline}: {stream.line()}")
        if stream.running:
            self.say(f"running: {pipeline}: {stream.running}")
        if stream.problem:
            self.say(f"stopped: {pipeline}: {stream.problem}\n  next: {stream.next}")
        elif stream.last_error:
            self.say(f"stopped at {stream.noted_at}: {pipeline}: {stream.last_error}")

    def history(self, target: str, entries: Sequence[HistoryEntry]) -> int:
        """Print the commits of a table."""
        rows = [
            (
                _format_version(entry.version),
                _format_time(entry.at),
                entry.facts.get("pipeline") or f"({entry.operation})",
                entry.slice or "",
                *_format_counts(entry),
            )
            for entry in entries
        ]
        header = ("version", "at", "pipeline", "slice", "generation", "written", "deleted", "run")
        self.table(header, rows)
        self.document({"target": target, "commits": [entry.document() for entry in entries]})
        return 0

    def repair(self, repair: Repair, dry_run: bool) -> int:
        """Print the duplicates of a table and what was removed."""
        keys, target = ",".join(repair.keys), repair.target
        if repair.doubled:
            self._duplicates(repair, keys)
        else:
            self.say(f"{target}, version {repair.read}: no duplicate keys ({keys})")
        if repair.removable:
            removed = format_count(repair.removable, "row")
            self.say(f"would remove {removed}" if dry_run else f"removed {removed} in version {repair.version}")
        if repair.left:
            self.say(f"kept: {format_count(repair.left, 'row')} with the key of another row and different values")
            self.say(f"  next: oncelake repair {target} --keys {keys} --keep latest_by=COLUMN")
        self.document(repair.document())
        return 1 if repair.left and not dry_run else 0

    def _duplicates(self, repair: Repair, keys: str) -> None:
        duplicates = f"{format_count(repair.doubled, 'duplicate key')} ({keys})"
        surplus = f"{format_count(repair.surplus, 'surplus row')} in {format_count(repair.files, 'file')}"
        self.say(f"{repair.target}, version {repair.read}: {duplicates}, {surplus}")
        self.say(f"  rows identical: {format_count(repair.identical, 'key')}")
        self.say(f"  rows different: {format_count(repair.differing, 'key')}")
        for commit in repair.since:
            writer = commit["pipeline"] or f"({commit['operation']})"
            self.say(f"  {format_count(commit['rows'], 'row')} written in version {commit['version']} by {writer}")
        self.say(f"  examples: {', '.join(repair.examples)}")

    def table(self, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Print a table, if it has rows."""
        if not rows:
            return
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _only_rebuilt(reason: str, target: str) -> bool:
    """Return whether stale rows cannot be redone by themselves, as their reason says."""
    return reason.endswith((f"oncelake rebuild {target}", "cannot be restated"))


def _group_by_reason(stale: Sequence[tuple[Slice, str]]) -> list[tuple[str, list[Slice]]]:
    groups: dict[str, list[Slice]] = {}
    for interval, reason in stale:
        # The line begins with "stale:" already.
        groups.setdefault(reason.removeprefix("done, but ").removeprefix("stale: "), []).append(interval)
    return list(groups.items())


def _group_works(works: Sequence[Planned]) -> list[tuple[str, ...]]:
    """Return one row per group of works with the same action and reason."""
    groups: dict[tuple[str, ...], list[Planned]] = {}
    for work in works:
        groups.setdefault((work.pipeline, work.target, work.action, work.why), []).append(work)
    return [
        (pipeline, target, _format_ranges([work.work.slice for work in group]), action, *_effort(action, group), why)
        for (pipeline, target, action, why), group in groups.items()
    ]


def _effort(action: str, works: Sequence[Planned]) -> tuple[str, str]:
    """Return the number of commits and the estimated rows to read; empty if nothing would be written."""
    if action != "run":
        return "", ""
    rows = [work.estimated_rows for work in works if work.estimated_rows is not None]
    return f"{len(works):,}", f"about {sum(rows):,}" if len(rows) == len(works) else "-"


def _format_versions(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions[:5])) + (", …" if len(versions) > 5 else "") if versions else "-"


def _format_ranges(slices: Sequence[Any]) -> str:
    intervals = [slice_ for slice_ in slices if isinstance(slice_, once.Interval)]
    if not intervals:
        return ", ".join(str(slice_) for slice_ in slices)
    from oncelake.model.intervals import merge

    merged = merge(intervals)
    text = ", ".join(str(interval) for interval in merged[:3])
    return text + (f" and {len(merged) - 3} more" if len(merged) > 3 else "")


def _format_time(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z" if at else "-"


def _format_version(version: int | None) -> str:
    return "-" if version is None else str(version)


def _format_counts(entry: HistoryEntry) -> tuple[str, str, str, str]:
    generation = entry.facts.get("generation")
    written, deleted = format_number(entry.rows.written), format_number(entry.rows.deleted)
    return "" if generation is None else str(generation), written, deleted, entry.facts.get("run") or ""
