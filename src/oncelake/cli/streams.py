"""The commands of streams whose checkpoint is lost, damaged or does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import oncelake as once
from oncelake.cli.options import confirm
from oncelake.cli.output import Output
from oncelake.cli.project_options import project_options

if TYPE_CHECKING:
    from oncelake.operations.checkpoint_findings import Finding
    from oncelake.operations.restart import Restart


@click.command(short_help="Restart a stream: adopt its commits, or read all again.")
@click.option("--adopt", is_flag=True, help="Rebuild the checkpoint from the offsets in the targets' own commits.")
@click.option("--from-beginning", is_flag=True, help="Read everything again, into the same rows.")
@click.option("--accept-loss", is_flag=True, help="Go on although the source no longer has everything.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and exit.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.argument("name")
@project_options
def restart(project: once.Project, output: Output, name: str, dry_run: bool, yes: bool, **how: bool) -> int:
    """Restart a stream whose checkpoint is lost or does not fit its targets. Does not start Spark.

    With --adopt it goes on after the last batch that its targets have. With --from-beginning the next run reads
    everything again; targets that are added to lose their rows first. The same command resumes one that was killed.
    """
    if how["adopt"] == how["from_beginning"]:
        raise click.UsageError("use either --adopt or --from-beginning")
    if how["accept_loss"] and how["adopt"]:
        raise click.UsageError("--accept-loss goes with --from-beginning")

    if dry_run or not yes:
        planned = project.restart(name, dry_run=True, **how)
        _show(planned, output)
        if dry_run or planned.outcome == "already_done":
            output.document(planned.document())
            return 0
        confirm("restart?", "pass --yes")
    done = project.restart(name, **how)
    _show(done, output)
    output.document(done.document())
    return 0


def _show(restart: Restart, output: Output) -> None:
    planned = restart.outcome == "planned"
    if restart.outcome == "already_done":
        output.say(f"nothing to do: the checkpoint of {restart.pipeline} fits its targets ({restart.checkpoint})")
    elif restart.how == "--adopt":
        verb = "would go on" if planned else "goes on"
        output.say(f"{restart.pipeline} {verb} with batch {restart.next_batch} ({restart.checkpoint})")
        if restart.moved_to:
            output.say(f"  the old checkpoint is kept in {restart.moved_to}")
    else:
        verb = "would begin" if planned else "has begun"
        output.say(f"{restart.pipeline} {verb} epoch {restart.epoch} ({restart.checkpoint})")
    for each in restart.clears:
        rows = "all rows" if each.rows is None else f"{each.rows:,} rows"
        done = "would be removed" if planned else f"were removed in version {each.version}"
        output.say(f"  {each.target}: {rows} {done}, and are read again by the next run")
    if restart.lost:
        output.say(f"  not read again: {restart.lost}")
    for note in restart.notes:
        output.say(f"note: {note}")
    if not planned:
        output.say(f"next: oncelake run {restart.pipeline}")


@click.command(short_help="Examine the set-up, or the checkpoints of streams.")
@click.option("--streams", is_flag=True, help="Examine the checkpoints of streams.")
@click.option("--fix", is_flag=True, help="Fix what is certain to be right; nothing that loses data.")
@click.argument("names", nargs=-1)
@project_options
def doctor(project: once.Project, output: Output, names: tuple[str, ...], streams: bool, fix: bool) -> int:
    """Examine the set-up of a project, or, with --streams, the checkpoints of its streams. Does not start Spark.

    Exit code 3 means that errors are left.
    """
    if fix and not streams:
        raise click.UsageError("--fix goes with --streams")
    diagnosis = project.doctor(*names, streams=streams, fix=fix)
    for finding in diagnosis.findings:
        _show_finding(finding, output)
    found = f"{len(diagnosis.findings)} findings" if diagnosis.findings else "nothing found"
    output.say(f"examined {', '.join(diagnosis.examined) or 'no streams'}: {found}")
    output.document(diagnosis.document())
    return diagnosis.exit_code


def _show_finding(finding: Finding, output: Output) -> None:
    of = f"{finding.pipeline}: " if finding.pipeline else ""
    output.say(f"{'fixed' if finding.fixed else finding.severity} {finding.code}: {of}{finding.message}")
    output.say(f"  {finding.path}")
    if finding.fix:
        output.say(f"  {'done' if finding.fixed else 'with --fix'}: {finding.fix}")
    if finding.next and not finding.fixed:
        output.say(f"  next: {finding.next}")
