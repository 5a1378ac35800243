"""The commands `prove` and `fingerprint`, and their output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oncelake as once
from oncelake.cli.output import Output

if TYPE_CHECKING:
    from oncelake.proving.cases import Case

OpenProject = Callable[[], "once.Project"]


@dataclass(frozen=True)
class ProofOptions:
    """What to prove: a pipeline or a script, over which range, with how much effort."""

    names: tuple[str, ...]
    script: str | None
    tables: tuple[str, ...]
    exclude: tuple[str, ...]
    span: Mapping[str, Any]
    effort: Mapping[str, Any]


def prove_command(
    open_project: OpenProject, options: ProofOptions, output: Output, *, junit: str | None, certificate: str | None
) -> int:
    """Run the proof, print the verdict and write the requested files."""
    with _progress(output) as report_case:
        if options.script:
            verdict = _prove_script(options, report_case)
        else:
            verdict = _prove_pipeline(open_project, options, report_case)
    if junit:
        Path(junit).write_bytes(verdict.junit())
    if certificate:
        Path(certificate).write_text(json.dumps(verdict.document(), indent=2, ensure_ascii=False) + "\n")
    _print_verdict(verdict, output)
    output.document(verdict.document())
    return verdict.exit_code


def _prove_pipeline(open_project: OpenProject, options: ProofOptions, report_case: Any) -> once.Verdict:
    if options.tables:
        raise click.UsageError("--table needs --script; the tables of a pipeline are known")
    project = open_project()
    names = options.names or tuple(project.pipelines)
    if len(names) != 1:
        raise click.UsageError(f"name exactly one pipeline of: {', '.join(project.pipelines)}")
    pipeline = project.pipelines.get(names[0])  # the prover raises UnknownPipeline
    exclude = _excluded_columns(options.exclude, sorted(pipeline.writes_tables)) if pipeline else {}
    return once.prove(project, names[0], on_case=report_case, **options.span, **options.effort, exclude=exclude)


def _prove_script(options: ProofOptions, report_case: Any) -> once.Verdict:
    if any(options.span.values()):
        raise click.UsageError("a script has no intervals; pass its arguments after --")
    assert options.script is not None
    exclude = _excluded_columns(options.exclude, options.tables)
    return once.prove_script(
        options.script, options.tables, options.names, on_case=report_case, **options.effort, exclude=exclude
    )


def _excluded_columns(arguments: Sequence[str], tables: Sequence[str]) -> dict[str, list[str]]:
    """Return the excluded columns by table from arguments like `TABLE:COLUMN`."""
    excluded: dict[str, list[str]] = {}
    for text in arguments:
        table, _, column = text.rpartition(":")
        if table not in (*tables, "") or (not table and len(tables) != 1):
            raise click.UsageError(f"--exclude {text}: write TABLE:COLUMN with one of {', '.join(tables)}")
        excluded.setdefault(table or tables[0], []).append(column)
    return excluded


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[Case, int, int], None]]:
    """Print the case in progress: one live line on a terminal, one line per scenario elsewhere."""
    start = time.monotonic()
    status: Any = nullcontext()
    if sys.stderr.isatty():
        from rich.console import Console

        status = Console(stderr=True, highlight=False).status("clean run in the sandbox, the reference for all cases")
    seen: set[str] = set()

    def report_case(case: Case, index: int, total: int) -> None:
        elapsed = time.monotonic() - start
        line = f"{index}/{total} cases · {elapsed:.0f} s · {case.scenario}: {case.story}"
        if sys.stderr.isatty():
            status.update(line)
        elif case.scenario not in seen:
            output.say(line)
        seen.add(case.scenario)

    with status:
        yield report_case


def _print_verdict(verdict: once.Verdict, output: Output) -> None:
    output.say(f"{verdict.job}: {verdict.scope}, level {verdict.level}, seed {verdict.seed}")
    what = "file calls" if verdict.level == "calls" else "failpoints"
    output.say(f"  {verdict.points:,} {what}, {verdict.states:,} distinct states recovered")
    for name, count in verdict.counts.items():
        if count.tried:
            output.say(f"  {LABELS[name]:34} {count.tried:>4} of {count.there}")
    for why in dict.fromkeys(verdict.not_tried.values()):
        output.say(f"  not tried: {', '.join(name for name, said in verdict.not_tried.items() if said == why)} ({why})")
    if not verdict.confirmed.endswith(" 0"):
        output.say(f"  {'crash states confirmed by a kill':34} {verdict.confirmed:>4}")
    for table, found in verdict.fingerprints.items():
        excluded = f", without {', '.join(found['excluded'])}" if found and found["excluded"] else ""
        output.say(f"  {table}: {found['fingerprint'] if found else 'no table'}{excluded}")
    if verdict.sampled and not verdict.violation:
        output.say("  this is a sample; more --points or --minutes try more cases")
    output.say()
    if verdict.violation is None:
        output.say(f"PROVEN in {verdict.seconds:.0f} s")
        return
    output.say(f"VIOLATED  {verdict.violation.story}")
    _print_examples(verdict.violation.examples, output)
    output.say(f"  reproduce: {verdict.reproduce}")


LABELS = {
    "clean": "second clean run",
    "twice": "run twice",
    "checkpoint": "checkpoint damaged or replaced",
    "order": "run in another order",
    "combine_intervals": "run as one range",
    "restate": "restated",
    "late": "late or withdrawn input",
    "layout": "input in other tasks or order",
    "reader": "read between commits",
    "corrected": "input corrected and redone",
    "restored": "restored between runs",
    "second_target": "second target declared",
    "renamed": "pipeline renamed",
    "other_time": "upstream by another time column",
    "grid_changed": "grid changed",
    "no_lock": "concurrent runs without a lock",
    "step": "stopped at a failpoint",
    "crash": "crashed after a file call",
    "recovery": "crashed during recovery",
    "lost": "committed, response lost",
    "fault": "file call failed",
    "race": "concurrent runs",
    "zombie": "stalled writer resumed",
    "kill": "process killed (SIGKILL)",
    "lost_jvm": "JVM killed, same run went on",
}


def print_fingerprint(
    open_project: OpenProject, target: str, output: Output, *, against: str | None, version: int | None, **options: Any
) -> int:
    """Print the fingerprint of a table and, with `against`, its differences from another table."""
    path = _table_path(open_project, target)
    found = once.fingerprint(path, version=version, **options)
    output.say(f"{found.text}  {found.rows:,} rows")
    output.say(f"  {found.schema}")
    if found.excluded:
        output.say(f"  without {', '.join(found.excluded)}")
    document = {"target": target, **found.document()}
    other_path = None if against is None else _table_path(open_project, against)
    other = None if other_path is None else once.fingerprint(other_path, **options)
    if other is not None:
        document |= {"against": against, "same": found == other, "differing": found.differing(other)}
        output.say(f"{other.text}  {against}: {'identical' if found == other else 'different'}")
    if other is None or found == other:
        output.document(document)
        return 0
    assert other_path is not None
    differences = once.differences(path, other_path, exclude=options["exclude"]).document()
    _print_differences(document["differing"], differences, output)
    output.document({**document, "differences": differences})
    return 3


def _table_path(open_project: OpenProject, target: str) -> str:
    """Return the path of a table, given as a path or as a name in the project."""
    if "/" in target:
        return target
    project = open_project()
    project.lake.table(target).log()  # a lake that cannot be reached needs no session
    project.session()  # with the settings of the project, before the fingerprint opens a default session
    return project.lake.table(target).path


def _print_differences(differing: Sequence[str], differences: Mapping[str, Any], output: Output) -> None:
    for part in differing[:10]:
        output.say(f"  differs: {part}")
    if differences["columns"]:
        output.say(f"  columns differ: {', '.join(differences['columns'])}")
        return
    output.say(
        f"  rows only in the first table: {differences['only_left']:,}, only in the second: {differences['only_right']:,}"
    )
    _print_examples(differences["examples"], output)


def _print_examples(examples: Sequence[Mapping[str, Any]], output: Output) -> None:
    for example in examples[:5]:
        row = json.dumps(example["row"], ensure_ascii=False, default=str)
        output.say(f"  {example['left']} × instead of {example['right']} ×: {row}")
