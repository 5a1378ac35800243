"""Options that several commands share, and their checks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

import oncelake as once

# `run` asks for confirmation before it writes more commits than this.
CONFIRM_ABOVE = 1000


def date_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a date or a range."""
    for option in (
        click.option("--to", "end", metavar="B", help="End of the range (exclusive)."),
        click.option("--from", "start", metavar="A", help="Start of the range."),
        click.option("--date", metavar="D", help="Start of a single interval."),
    ):
        command = option(command)
    return command


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that restrict and order the work of a plan."""
    count = click.IntRange(min=1)
    for option in (
        click.option("--limit", type=count, metavar="N", help="Process at most N intervals in this run."),
        click.option("--newest-first", is_flag=True, help="Process the newest intervals first."),
        click.option("--stale", is_flag=True, help="Reprocess only stale intervals: input or code changed since."),
        click.option("--failed", is_flag=True, help="Retry only intervals whose last attempt failed."),
    ):
        command = option(command)
    return command


def effort_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that bound how much a proof tries."""
    level, count, size = click.Choice(["calls", "steps"]), click.IntRange(min=0), click.IntRange(min=1)
    minutes = click.FloatRange(min=0)
    for option in (
        click.option("--case", metavar="CASE", help="Try only this case (a violation prints its name)."),
        click.option(
            "--scenario", "scenarios", multiple=True, metavar="NAME", help="Try only this scenario (repeatable)."
        ),
        click.option("--level", type=level, help="Crash after every file call (Linux, C compiler) or at failpoints."),
        click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the sample."),
        click.option("--points", type=size, metavar="N", help="Try at most N crash states, sampled evenly."),
        click.option("--minutes", type=minutes, metavar="M", help="Time budget, shared evenly by the scenarios."),
        click.option("--kills", type=count, default=3, show_default=True, metavar="N", help="Number of real SIGKILLs."),
        click.option(
            "--faults", type=count, default=12, show_default=True, metavar="N", help="Number of injected I/O errors."
        ),
    ):
        command = option(command)
    return command


def validate_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, or raise a usage error if two of them exclude each other."""
    if options["date"] is not None and (options["start"] is not None or options["end"] is not None):
        raise click.UsageError("use either --date or --from/--to")
    if options.get("failed") and options.get("stale"):
        raise click.UsageError("use either --failed or --stale")
    return options


def confirm_many(plan: once.Plan) -> None:
    """Ask before a run that writes very many commits."""
    commits = sum(item.action == "run" for item in plan.works)
    if commits > CONFIRM_ABOVE:
        confirm(f"write {commits:,} commits?", "pass --yes to write them all, or --limit N to write some")


def confirm(question: str, alternative: str) -> None:
    """Ask for confirmation on a terminal; without one, fail and name the option to pass."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"cannot ask without a terminal: {question} {alternative}")
    click.confirm(question, abort=True, err=True)


def log_warnings() -> None:
    """Log warnings of the user's code to standard error, without the stack trace that py4j logs for every Ctrl-C."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
