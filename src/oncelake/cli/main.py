"""The commands. Each parses, calls the public API and hands what comes back to `output`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

import oncelake as once
from oncelake.cli import output

EXITS = """\b
Exit codes: 0 done or already done, 1 failed, 2 usage or configuration, 3 check or proof violated,
4 lost to another runner (safe to retry), 5 effects in doubt, 130 interrupted."""


# More commits than these are asked about first.
MANY = 1000


class _Group(click.Group):
    """A group that lists its commands in the order one meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.commands)


@click.group(
    cls=_Group,
    epilog=EXITS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(once.__version__, prog_name="oncelake")
@click.option("--project", "-p", default=None, metavar="DIR", help="The project's folder (default: the current one).")
@click.option("--profile", default=None, help="A profile of oncelake.yaml (or ONCELAKE_PROFILE).")
@click.pass_context
def cli(ctx: click.Context, project: str | None, profile: str | None) -> None:
    """Exactly-once data pipelines on Spark and Delta Lake."""
    ctx.obj = {"project": project, "profile": profile}


def _lazy_project_options(command: Callable[..., Any]) -> Callable[..., None]:
    """Options of every command; it gets a function that opens the project, for it may do without one."""

    @click.option("--project", "-p", default=None, metavar="DIR", help="The project's folder.")
    @click.option("--profile", default=None, help="A profile of oncelake.yaml.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
    @wraps(command)
    def answered(project: str | None, profile: str | None, as_json: bool, **options: Any) -> None:
        ctx = click.get_current_context()
        shown = output.Output(as_json)
        folder = project or ctx.obj["project"] or "."
        try:
            code = command(lambda: once.open(folder, profile or ctx.obj["profile"]), shown, **options)
        except once.OncelakeError as error:
            code = shown.error(error)
        except KeyboardInterrupt:
            code = shown.interrupted()
        ctx.exit(code)

    return answered


def _project_options(command: Callable[..., Any]) -> Callable[..., None]:
    """Options of every command that works on a project, which is opened first."""

    @wraps(command)
    def opened(opening: Callable[[], once.Project], shown: output.Output, **options: Any) -> Any:
        return command(opening(), shown, **options)

    return _lazy_project_options(opened)


def _range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that takes a date or a range."""
    for option in (
        click.option("--to", "end", metavar="B", help="End of a range, exclusive."),
        click.option("--from", "start", metavar="A", help="Start of a range."),
        click.option("--date", metavar="D", help="One interval: the one that starts there."),
        click.argument("names", nargs=-1),
    ):
        command = option(command)
    return command


def _choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that narrow what is done of all there is to do, and its order."""
    for option in (
        click.option("--limit", type=click.IntRange(min=1), help="At most so many intervals, the others another time."),
        click.option("--newest-first", is_flag=True, help="The newest intervals first."),
        click.option("--stale", is_flag=True, help="Only what is done from inputs or code that changed since."),
        click.option("--failed", is_flag=True, help="Only what failed when it was last tried."),
    ):
        command = option(command)
    return command


def _confirm_many(planned: once.Plan) -> None:
    commits = sum(item.action == "run" for item in planned.works)
    if commits > MANY:
        _confirm(f"that is {commits:,} commits; go on?", "--yes does it without asking, --limit N a part of it")


def _confirm(question: str, otherwise: str) -> None:
    """Ask a person; a machine has to have said so."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question.rstrip('?')}: {otherwise}")
    click.confirm(question, abort=True, err=True)


def _effort_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say how much a proof tries."""
    level = click.Choice(["calls", "steps"])
    for option in (
        click.option("--case", metavar="CASE", help="Only this case, as a violation names it."),
        click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Only this scenario, or these."),
        click.option("--level", type=level, help="calls: every file call (Linux, C compiler). steps: named points."),
        click.option("--seed", type=int, default=0, show_default=True, help="What a sample is chosen by."),
        click.option("--points", type=click.IntRange(min=1), help="At most so many crash states, a fair sample."),
        click.option("--minutes", type=click.FloatRange(min=0), help="At most so long, every scenario its share."),
        click.option("--kills", type=click.IntRange(min=0), default=3, show_default=True, help="Real SIGKILLs."),
        click.option("--faults", type=click.IntRange(min=0), default=12, show_default=True, help="Failing calls."),
    ):
        command = option(command)
    return command


def _checked(span: dict[str, str | None]) -> dict[str, Any]:
    if span["date"] is not None and (span["start"] is not None or span["end"] is not None):
        raise click.UsageError("--date and --from/--to exclude each other")
    if span.get("failed") and span.get("stale"):
        raise click.UsageError("--failed and --stale exclude each other")
    return span


def _log_to_people() -> None:
    """Show warnings of the user's own code, but not the stack that py4j logs for every Ctrl-C."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


@cli.command()
@click.argument("folder", metavar="DIR")
def init(folder: str) -> None:
    """Make a small working project with sample data."""
    from oncelake.cli.init import make_project

    try:
        made = make_project(folder)
    except once.OncelakeError as error:
        sys.exit(output.Output(as_json=False).error(error))
    output.Output(as_json=False).made(folder, made)


@cli.command()
@click.option("--yes", is_flag=True, help="Do not ask before a great many commits.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="So many slices at once, if partitioned by them.")
@_choice_options
@_range_options
@_project_options
def run(
    project: once.Project,
    shown: output.Output,
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    jobs: int,
    **options: Any,
) -> int:
    """Do everything due (or the range), upstream first; what is done already is skipped."""
    planned = project.plan(*names, **_checked(options))
    if dry_run:
        return shown.plan(planned)
    _log_to_people()
    if not yes:
        _confirm_many(planned)
    with shown.progress() as progress:
        report = project.apply(planned, progress, jobs)
    return shown.report(report)


@cli.command()
@_choice_options
@_range_options
@_project_options
def plan(project: once.Project, shown: output.Output, names: tuple[str, ...], **options: Any) -> int:
    """Show what `run` would do, and why. Starts no Spark."""
    return shown.plan(project.plan(*names, **_checked(options)))


@cli.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done again.")
@click.option("--downstream", is_flag=True, help="Do again what was made from it, too.")
@click.option("--to", "end", metavar="B", help="End of a range, exclusive.")
@click.option("--from", "start", metavar="A", help="Start of a range.")
@click.option("--date", metavar="D", help="One interval: the one that starts there.")
@click.argument("name")
@_project_options
def restate(
    project: once.Project, shown: output.Output, name: str, yes: bool, dry_run: bool, downstream: bool, **span: Any
) -> int:
    """Do again, on purpose, what is done: in the next generation, in the place of what is there.

    What is to be replaced is shown first. A restatement that was killed is resumed by the same command, or by `run`.
    """
    found = project.restatement(name, downstream=downstream, **_checked(span))
    options = {each.pipeline for each in found}
    left = [other for other in project.downstream(name) if other not in options]
    shown.restatement(found, left, downstream, dry_run)
    if dry_run:
        return 0
    if not yes:
        _confirm("restate?", "--yes does it without asking")
    _log_to_people()
    with shown.progress() as progress:
        report = project.restate(name, downstream=downstream, watcher=progress, **_checked(span))
    return shown.report(report)


@cli.command()
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart.")
@_project_options
def graph(project: once.Project, shown: output.Output, mermaid: bool) -> int:
    """Show how pipelines hang together through the tables they read and write. Starts no Spark."""
    return shown.graph(project.pipelines, mermaid)


@cli.command()
@click.argument("names", nargs=-1)
@_project_options
def status(project: once.Project, shown: output.Output, names: tuple[str, ...]) -> int:
    """Show where things stand. Starts no Spark."""
    return shown.status(project.status(*names))


@cli.command()
@click.argument("target")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=None, help="Only the newest N commits.")
@_project_options
def history(project: once.Project, shown: output.Output, target: str, limit: int | None) -> int:
    """Show who wrote what to a table, when, under which marker. Starts no Spark."""
    return shown.history(target, project.history(target, limit))


@cli.command()
@click.argument("target")
@click.option("--keys", required=True, metavar="COLUMNS", help="The columns that tell rows apart, with commas.")
@click.option("--keep", metavar="latest_by=COLUMNS", help="Of rows that differ, keep the one with the greatest.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@_project_options
def repair(project: once.Project, shown: output.Output, target: str, keys: str, keep: str, dry_run: bool) -> int:
    """Remove rows that are there more than once, in one commit that touches only the files that hold them.

    Identical rows need no more than --keys. Rows of one key that differ are left alone, unless --keep says which is right.
    """
    name, _, columns = (keep or "latest_by=").partition("=")
    if name != "latest_by" or (keep and not columns):
        raise click.UsageError("--keep is like latest_by=updated_at")
    order = tuple(filter(None, columns.split(",")))
    return shown.repair(project.repair(target, tuple(filter(None, keys.split(","))), order, dry_run), dry_run)


@cli.command()
@click.argument("target")
@click.option(
    "--to", "version", type=click.IntRange(min=0), required=True, metavar="VERSION", help="The version to go back to."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be undone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_project_options
def restore(project: once.Project, shown: output.Output, target: str, version: int, dry_run: bool, yes: bool) -> int:
    """Go back to an older version of a table. What that undoes is to be done again: the next `run` does it.

    Delta's own RESTORE leaves it marked as done, and every rerun would be skipped.
    """
    if not dry_run and not yes:
        shown.restore(project.restore(target, version, dry_run=True), dry_run=True)
        _confirm("restore?", "--yes does it without asking")
    return shown.restore(project.restore(target, version, dry_run), dry_run, last=True)


@cli.command()
@click.option("--script", type=click.Path(), help="A PySpark script instead of a pipeline; its arguments after --.")
@click.option("--table", "tables", multiple=True, metavar="PATH", help="A Delta table the script writes.")
@click.option("--exclude", multiple=True, metavar="[TABLE:]COLUMN", help="A column left out of the comparison.")
@click.option("--junit", type=click.Path(), help="Write a JUnit report.")
@click.option("--certificate", type=click.Path(), help="Write the verdict to a file that can be checked in.")
@_effort_options
@_range_options
@_lazy_project_options
def prove(opening: Callable[[], once.Project], shown: output.Output, names: tuple[str, ...], **options: Any) -> int:
    """Kill a pipeline everywhere, run it again, and compare its tables with those of one clean run.

    It runs in a sandbox; real tables are only read. Exit code 3 means that a case was found that breaks it.
    """
    from oncelake.cli.prove import ProofOptions, prove_command

    span = _checked({key: options.pop(key) for key in ("date", "start", "end")})
    files = {key: options.pop(key) for key in ("junit", "certificate")}
    proof = ProofOptions(names, options.pop("script"), options.pop("tables"), options.pop("exclude"), span, options)
    return prove_command(opening, proof, shown, **files)


@cli.command()
@click.argument("target")
@click.option("--exclude", multiple=True, metavar="COLUMN", help="A column left out.")
@click.option("--quick", is_flag=True, help="Hardly dearer than a scan, without the strict one's bound.")
@click.option("--version", type=click.IntRange(min=0), help="An older version of the table.")
@click.option("--against", metavar="OTHER", help="Another table: say whether and where they differ.")
@_lazy_project_options
def fingerprint(opening: Callable[[], once.Project], shown: output.Output, target: str, **options: Any) -> int:
    """Print what a table holds as one short text: equal for equal content, whatever the order.

    TARGET is a table of the project, or the path of a Delta table. With --against, exit code 3 says they differ.
    """
    from oncelake.cli.prove import print_fingerprint

    return print_fingerprint(opening, target, shown, **options)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print the line that teaches a shell to complete oncelake's commands.

    \b
    bash: eval "$(oncelake completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "oncelake", "_ONCELAKE_COMPLETE").source())


def main() -> None:
    """The command `oncelake`."""
    # A plan is many small records that live until the end: whoever looks among them for garbage finds none.
    gc.set_threshold(200_000)
    cli(prog_name="oncelake", complete_var="_ONCELAKE_COMPLETE")
