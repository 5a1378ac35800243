"""The commands of what arrives: what is known of each file, and what is in quarantine, of files and of streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

import oncelake as once
from oncelake.cli.output import Output
from oncelake.cli.project_options import project_options

if TYPE_CHECKING:
    from oncelake.model.arrivals import FileEntry, QuarantinedRow

STATES = ("new", "frozen", "done", "quarantined", "changed", "gone", "duplicate", "replaced", "retried", "reopened")
_SHOWN = 50


_OR_STATES = f"{', '.join(STATES[:-1])} or {STATES[-1]}"


@click.command(short_help="Show the files of a pipeline that is driven by arrivals.")
@click.argument("name")
@click.option("--state", metavar="STATE", type=click.Choice(STATES), help=f"Show only files that are {_OR_STATES}.")
@click.option("--rebuild", is_flag=True, help="Write missing or damaged manifests from the facts of the commits.")
@project_options
def files(project: once.Project, output: Output, name: str, state: str | None, rebuild: bool) -> int:
    """Show every file of a pipeline: its state, batch, commit and rows. Does not start Spark."""
    arrivals = project.arrivals(name)
    if rebuild:
        written = arrivals.rebuild()
        output.say(f"wrote the manifests of {len(written)} batches from the commits of the targets")
        output.document({"pipeline": name, "rebuilt": written})
        return 0
    entries = arrivals.files(state)
    counts = Counter(entry.state for entry in entries)
    header = ("file", "size", "state", "batch", "version", "read", "written", "quarantined")
    output.table(header, [_file_row(entry) for entry in entries[:_SHOWN]])
    if len(entries) > _SHOWN:
        output.say(f"and {len(entries) - _SHOWN:,} more; --json prints all")
    output.say(", ".join(f"{count:,} {each}" for each, count in counts.items()) or "no files")
    output.document({"pipeline": name, "counts": dict(counts), "files": [entry.document() for entry in entries]})
    return 0


@click.group(short_help="Show, retry or drop what could not be read.")
def quarantine() -> None:
    """Rows, files and messages that could not be read, with the reason."""


@quarantine.command(name="list", short_help="List what is in quarantine.")
@click.argument("name")
@click.option("--all", "every", is_flag=True, help="Include what was retried or dropped.")
@project_options
def list_rows(project: once.Project, output: Output, name: str, every: bool) -> int:
    """List what is in quarantine. Does not start Spark."""
    rows = project.arrivals(name).quarantine(None if every else "quarantined")
    table = [(str(r.number), str(r.batch), r.file, _place(r), r.state, r.reason) for r in rows[:_SHOWN]]
    place = rows[0].place_name if rows else "line"
    output.table(("number", "batch", "file", place, "state", "reason"), table)
    output.say(f"{len(rows):,} in quarantine" if rows else "nothing is in quarantine")
    output.document({"pipeline": name, "quarantined": [row.document() for row in rows]})
    return 0


@quarantine.command(short_help="Show one entry with its raw text.")
@click.argument("name")
@click.argument("number", type=int)
@project_options
def show(project: once.Project, output: Output, name: str, number: int) -> int:
    """Show one entry with its raw text."""
    row = _find(project.arrivals(name).quarantine(None), number)
    document = row.document()
    for key, value in document.items():
        output.say(f"{key}: {value}")
    output.document(document)
    return 0


@quarantine.command(short_help="Read entries once more, after a fix.")
@click.argument("name")
@click.argument("numbers", nargs=-1, type=int)
@project_options
def retry(project: once.Project, output: Output, name: str, numbers: tuple[int, ...]) -> int:
    """Read entries (all, or those with these numbers) once more, as a work of their own."""
    _check(project, name, numbers)
    with output.progress() as progress:
        report = project.retry_quarantine(name, numbers, progress)
    return output.report(report)


@quarantine.command(short_help="Mark entries as dropped.")
@click.argument("name")
@click.argument("numbers", nargs=-1, type=int, required=True)
@project_options
def drop(project: once.Project, output: Output, name: str, numbers: tuple[int, ...]) -> int:
    """Mark entries as dropped. Their raw text is kept, and `list --all` shows them."""
    arrivals = project.arrivals(name)
    rows = _check(project, name, numbers)
    arrivals.drop(rows)
    output.say(f"dropped {len(rows):,}")
    output.document({"pipeline": name, "dropped": [row.number for row in rows]})
    return 0


def _check(project: once.Project, name: str, numbers: Iterable[int]) -> list[QuarantinedRow]:
    rows = project.arrivals(name).quarantine()
    return [_find(rows, number) for number in numbers]


def _find(rows: list[QuarantinedRow], number: int) -> QuarantinedRow:
    found = next((row for row in rows if row.number == number), None)
    if found is None:
        raise click.UsageError(f"there is no entry {number} in quarantine")
    return found


def _place(row: QuarantinedRow) -> str:
    return "" if row.place is None else str(row.place)


def _file_row(entry: FileEntry) -> tuple[str, ...]:
    numbers = (entry.batch, entry.version, entry.rows_read, entry.rows_written, entry.rows_quarantined)
    batch, *others = ("-" if each is None else f"{each:,}" for each in numbers)
    state = f"{entry.state}, same as {entry.duplicate_of}" if entry.duplicate_of else entry.state
    return (entry.path, f"{entry.size:,}", state, batch, *others)
