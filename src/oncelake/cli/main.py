"""The commands. Each parses its options, calls the public API and passes the result to `Output`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

import oncelake as once
from oncelake.cli.arrivals import files, quarantine
from oncelake.cli.dev import dev
from oncelake.cli.options import (
    confirm,
    confirm_many,
    date_options,
    effort_options,
    log_warnings,
    selection_options,
    validate_options,
)
from oncelake.cli.output import Output
from oncelake.cli.project_options import lazy_project_options, project_options
from oncelake.cli.streams import doctor, restart

EXIT_CODES = """\b
Exit codes:
  0    done or already done
  1    failed or blocked
  2    usage or configuration error
  3    proof violated, or tables differ
  4    busy: another runner holds the table (safe to retry)
  130  interrupted
"""


class _Group(click.Group):
    """A group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.commands)


@click.group(
    cls=_Group,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(once.__version__, prog_name="oncelake")
@click.option("--project", "-p", default=None, metavar="DIR", help="Project folder (default: the current folder).")
@click.option("--profile", default=None, metavar="NAME", help="Profile in oncelake.yaml (default: ONCELAKE_PROFILE).")
@click.pass_context
def cli(ctx: click.Context, project: str | None, profile: str | None) -> None:
    """Exactly-once data pipelines on Spark and Delta Lake."""
    ctx.obj = {"project": project, "profile": profile}


@cli.command()
@click.argument("folder", metavar="DIR")
def init(folder: str) -> None:
    """Create a small working project with sample data."""
    from oncelake.cli.init import create_project

    output = Output(as_json=False)
    try:
        files = create_project(folder)
    except once.OncelakeError as error:
        sys.exit(output.error(error))
    output.created(folder, files)


@cli.command(short_help="Process everything that is due, upstream first.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of more than 1,000 commits.")
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Write N slices in parallel if the table is partitioned by time.",
)
@click.option("--accept-new-input", is_flag=True, help="Finish interrupted works from the input as it is now.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=10.0,
    metavar="[SECONDS]",
    help="Go on until stopped: look for new work every 10 (or so many) seconds.",
)
@selection_options
@date_options
@click.argument("names", nargs=-1)
@project_options
def run(
    project: once.Project,
    output: Output,
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    jobs: int,
    **options: Any,
) -> int:
    """Process everything that is due, or the given date or range, upstream first.

    Intervals that are already done are skipped, so the same command is also the retry.
    """
    accept_new_input, watch_every = options.pop("accept_new_input"), options.pop("watch")
    if watch_every is not None:
        from oncelake.cli.watch import watch

        log_warnings()
        return watch(project, output, watch_every, names, validate_options(options))
    plan = project.plan(*names, **validate_options(options))
    if dry_run:
        return output.plan(plan)
    log_warnings()
    if not yes:
        confirm_many(plan)
    with output.progress() as progress:
        report = project.apply(plan, progress, jobs, accept_new_input)
    return output.report(report)


@cli.command(name="plan", short_help="Show what `run` would do, and why.")
@selection_options
@date_options
@click.argument("names", nargs=-1)
@project_options
def show_plan(project: once.Project, output: Output, names: tuple[str, ...], **options: Any) -> int:
    """Show what `run` would do, and why. Does not start Spark."""
    return output.plan(project.plan(*names, **validate_options(options)))


@cli.command(short_help="Reprocess finished intervals on purpose.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be replaced and exit.")
@click.option("--downstream", is_flag=True, help="Also restate the pipelines that read the result.")
@date_options
@click.argument("name")
@project_options
def restate(
    project: once.Project, output: Output, name: str, yes: bool, dry_run: bool, downstream: bool, **options: Any
) -> int:
    """Reprocess finished intervals on purpose and replace their rows, as the next generation.

    The command shows what it will replace and asks for confirmation. If it is killed, the same command or `run`
    resumes it.
    """
    requests = project.restatement(name, downstream=downstream, **validate_options(options))
    restated = {request.pipeline for request in requests}
    omitted = [other for other in project.downstream(name) if other not in restated]
    output.restatement(requests, omitted, downstream, dry_run)
    if dry_run:
        return 0
    if not yes:
        confirm("restate?", "pass --yes")
    log_warnings()
    with output.progress() as progress:
        report = project.restate(name, downstream=downstream, listener=progress, **options)
    return output.report(report)


@cli.command(short_help="Show the dependencies between pipelines.")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@project_options
def graph(project: once.Project, output: Output, mermaid: bool) -> int:
    """Show the dependencies between pipelines and tables. Does not start Spark."""
    return output.graph(project.pipelines, mermaid)


@cli.command(short_help="Show what is done, missing, stale or failed.")
@click.argument("names", nargs=-1)
@project_options
def status(project: once.Project, output: Output, names: tuple[str, ...]) -> int:
    """Show what is done, missing, stale or failed, per target. Does not start Spark."""
    from oncelake.operations.environment import find_environment

    return output.status(project.status(*names), find_environment(project.settings))


@cli.command(short_help="Show the commits of a table and who wrote them.")
@click.argument("target")
@click.option("--limit", "-n", type=click.IntRange(min=1), metavar="N", help="Show only the newest N commits.")
@project_options
def history(project: once.Project, output: Output, target: str, limit: int | None) -> int:
    """Show the commits of a table: pipeline, slice, generation and row counts. Does not start Spark."""
    return output.history(target, project.history(target, limit))


@cli.command(short_help="Remove duplicate rows from a table.")
@click.argument("target")
@click.option("--keys", required=True, metavar="COLUMNS", help="Key columns, separated by commas.")
@click.option("--keep", metavar="latest_by=COLUMNS", help="Of differing rows, keep the one with the greatest values.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed and exit.")
@project_options
def repair(project: once.Project, output: Output, target: str, keys: str, keep: str | None, dry_run: bool) -> int:
    """Remove duplicate rows from a table in one commit that rewrites only the affected files.

    Of identical rows with the same key, one is kept. Differing rows with the same key are all kept unless --keep
    says which one is right.
    """
    name, _, columns = (keep or "latest_by=").partition("=")
    if name != "latest_by" or (keep and not columns):
        raise click.UsageError("--keep must look like latest_by=updated_at")
    order = tuple(filter(None, columns.split(",")))
    return output.repair(project.repair(target, tuple(filter(None, keys.split(","))), order, dry_run), dry_run)


@cli.command(short_help="Restore a table to an older version.")
@click.argument("target")
@click.option(
    "--to", "version", type=click.IntRange(min=0), required=True, metavar="VERSION", help="Version to restore."
)
@click.option("--dry-run", is_flag=True, help="Show what would be undone and exit.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@project_options
def restore(project: once.Project, output: Output, target: str, version: int, dry_run: bool, yes: bool) -> int:
    """Restore a table to an older version. The next `run` reprocesses what the restore undoes.

    Delta's own RESTORE keeps the markers of undone commits, so every re-run would skip them.
    """
    if not dry_run and not yes:
        output.restore(project.restore(target, version, dry_run=True), dry_run=True)
        confirm("restore?", "pass --yes")
    return output.restore(project.restore(target, version, dry_run), dry_run, last=True)


@cli.command(short_help="Rebuild a table from its inputs.")
@click.argument("target")
@click.option("--dry-run", is_flag=True, help="Show how much there is to read and exit.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@project_options
def rebuild(project: once.Project, output: Output, target: str, dry_run: bool, yes: bool) -> int:
    """Replay all completed works of a table from its inputs, and replace its content in one commit.

    Use it after corrected input or code for merge, scd2 and aggregate, whose slices cannot be taken out one by one.
    Readers see the old table or the new one. A rebuild that is killed is resumed by the same command.
    """
    output.rebuild(project.rebuild(target, dry_run=True), dry_run)
    if dry_run:
        return 0
    if not yes:
        confirm("rebuild?", "pass --yes")
    log_warnings()
    with output.progress() as progress:
        rebuilt = project.rebuild(target, listener=progress)
    return output.rebuild(rebuilt, dry_run=False, last=True)


@cli.command(short_help="Crash a pipeline at every step and compare the tables.")
@click.option("--script", type=click.Path(), help="Prove a PySpark script; its arguments follow after --.")
@click.option(
    "--table", "tables", multiple=True, metavar="PATH", help="Delta table that the script writes (repeatable)."
)
@click.option("--exclude", multiple=True, metavar="[TABLE:]COLUMN", help="Exclude a column from the comparison.")
@click.option("--junit", type=click.Path(), help="Write a JUnit report to this file.")
@click.option("--certificate", type=click.Path(), help="Write the verdict as JSON to this file.")
@effort_options
@date_options
@click.argument("names", nargs=-1)
@lazy_project_options
def prove(open_project: Callable[[], once.Project], output: Output, names: tuple[str, ...], **options: Any) -> int:
    """Crash a pipeline at every step, retry it, and compare its tables with those of one clean run.

    The pipeline runs in a sandbox; real tables are only read. Exit code 3 means that a case violates exactly-once.
    """
    from oncelake.cli.prove import ProofOptions, prove_command

    span = validate_options({key: options.pop(key) for key in ("date", "start", "end")})
    files = {key: options.pop(key) for key in ("junit", "certificate")}
    proof = ProofOptions(names, options.pop("script"), options.pop("tables"), options.pop("exclude"), span, options)
    return prove_command(open_project, proof, output, **files)


@cli.command(short_help="Print a hash of the content of a table.")
@click.argument("target")
@click.option("--exclude", multiple=True, metavar="COLUMN", help="Exclude a column (repeatable).")
@click.option("--quick", is_flag=True, help="Faster (xxhash64 instead of SHA-256), without the collision bound.")
@click.option("--version", type=click.IntRange(min=0), metavar="V", help="Read this version of the table.")
@click.option("--against", metavar="OTHER", help="Compare with another table and show the differences.")
@lazy_project_options
def fingerprint(open_project: Callable[[], once.Project], output: Output, target: str, **options: Any) -> int:
    """Print a hash of the content of a table, independent of the order of rows and files.

    TARGET is a table of the project or the path of a Delta table. With --against, exit code 3 means that the tables
    differ.
    """
    from oncelake.cli.prove import print_fingerprint

    return print_fingerprint(open_project, target, output, **options)


cli.add_command(files)
cli.add_command(quarantine)
cli.add_command(restart)
cli.add_command(doctor)
cli.add_command(dev)


@cli.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    To enable it in bash, run: eval "$(oncelake completion bash)"
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(cli, {}, "oncelake", "_ONCELAKE_COMPLETE").source())


def main() -> None:
    """Run the command `oncelake`."""
    # A plan is many small records that live until the end: collecting garbage among them costs time and frees nothing.
    gc.set_threshold(200_000)
    try:
        cli(prog_name="oncelake", complete_var="_ONCELAKE_COMPLETE")
    except SystemExit as ended:
        if isinstance(ended.code, int | None) and not _has_spark():
            _leave(ended.code or 0)
        raise


def _has_spark() -> bool:
    """Return whether this process has started a JVM or a Connect session, which have an end of their own to come."""
    context, connect = (sys.modules.get(f"pyspark.{name}") for name in ("core.context", "sql.connect.session"))
    has_jvm = context is not None and context.SparkContext._gateway is not None  # noqa: SLF001  nothing public says it
    has_client = connect is not None and connect.SparkSession._default_session is not None  # noqa: SLF001
    return has_jvm or has_client


def _leave(code: int) -> None:
    """End the process without the interpreter's own end, in which threads of Arrow and delta-rs have aborted it."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
