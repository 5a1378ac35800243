"""What people and machines see of proofs and fingerprints."""

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

Opening = Callable[[], once.Project]


@dataclass(frozen=True)
class ProofOptions:
    """What the command line asked to be proven."""

    names: tuple[str, ...]
    script: str | None
    tables: tuple[str, ...]
    exclude: tuple[str, ...]
    span: Mapping[str, Any]
    effort: Mapping[str, Any]


def prove_command(
    opening: Opening, options: ProofOptions, shown: Output, *, junit: str | None, certificate: str | None
) -> int:
    """Prove what was asked for and show the verdict."""
    with _progress(shown) as told:
        verdict = _of_script(options, told) if options.script else _of_pipeline(opening, options, told)
    if junit:
        Path(junit).write_bytes(verdict.junit())
    if certificate:
        Path(certificate).write_text(json.dumps(verdict.document(), indent=2, ensure_ascii=False) + "\n")
    _show(verdict, shown)
    shown.document(verdict.document())
    return verdict.exit_code


def _of_pipeline(opening: Opening, options: ProofOptions, told: Any) -> once.Verdict:
    if options.tables:
        raise click.UsageError("--table is for --script; a pipeline's tables are known")
    project = opening()
    names = options.names or tuple(project.pipelines)
    if len(names) != 1:
        raise click.UsageError(f"one pipeline at a time: {', '.join(project.pipelines)}")
    pipeline = project.pipelines.get(names[0])  # an unknown one is told by the prover
    exclude = _excluded(options.exclude, sorted(pipeline.writes_tables)) if pipeline else {}
    return once.prove(project, names[0], told=told, **options.span, **options.effort, exclude=exclude)


def _of_script(options: ProofOptions, told: Any) -> once.Verdict:
    if any(options.span.values()):
        raise click.UsageError("a script has no intervals; give it its arguments after --")
    assert options.script is not None
    exclude = _excluded(options.exclude, options.tables)
    return once.prove_script(
        options.script, options.tables, options.names, told=told, **options.effort, exclude=exclude
    )


def _excluded(spelled: Sequence[str], tables: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in spelled:
        table, _, column = text.rpartition(":")
        if table not in (*tables, "") or (not table and len(tables) != 1):
            raise click.UsageError(f"--exclude {text}: name the table too, one of {', '.join(tables)}, as TABLE:COLUMN")
        found.setdefault(table or tables[0], []).append(column)
    return found


@contextmanager
def _progress(shown: Output) -> Iterator[Callable[[Case, int, int], None]]:
    """A moving line on a terminal, a line per scenario elsewhere."""
    begun = time.monotonic()
    status: Any = nullcontext()
    if sys.stderr.isatty():
        from rich.console import Console

        status = Console(stderr=True, highlight=False).status("a clean run in a sandbox, to compare with")
    seen: set[str] = set()

    def told(case: Case, index: int, total: int) -> None:
        spent = time.monotonic() - begun
        line = f"{index}/{total} cases · {spent:.0f} s · {case.scenario}: {case.story}"
        if sys.stderr.isatty():
            status.update(line)
        elif case.scenario not in seen:
            shown.say(line)
        seen.add(case.scenario)

    with status:
        yield told


def _show(verdict: once.Verdict, shown: Output) -> None:
    shown.say(f"{verdict.job}: {verdict.scope}, level {verdict.level}, seed {verdict.seed}")
    what = "file calls" if verdict.level == "calls" else "points"
    shown.say(f"  {verdict.points:,} {what}, {verdict.states:,} distinct states recovered")
    for name, count in verdict.counts.items():
        if count.tried:
            shown.say(f"  {_WORDS[name]:34} {count.tried:>4} of {count.there}")
    if not verdict.confirmed.endswith(" 0"):
        shown.say(f"  {'images that a real kill left alike':34} {verdict.confirmed:>4}")
    for table, found in verdict.fingerprints.items():
        left_out = f", without {', '.join(found['excluded'])}" if found and found["excluded"] else ""
        shown.say(f"  {table}: {found['fingerprint'] if found else 'no table'}{left_out}")
    if verdict.sampled and not verdict.violation:
        shown.say("  a sample, chosen by the seed: more --points or --minutes try more")
    shown.say()
    if verdict.violation is None:
        shown.say(f"PROVEN in {verdict.seconds:.0f} s")
        return
    shown.say(f"VIOLATED  {verdict.violation.story}")
    _show_examples(verdict.violation.examples, shown)
    shown.say(f"  reproduce: {verdict.reproduce}")


_WORDS = {
    "clean": "run again from the beginning",
    "twice": "run twice",
    "order": "other orders",
    "restate": "restated",
    "late": "input late or withdrawn",
    "layout": "input cut into other tasks",
    "reader": "read between two commits",
    "step": "stopped at a point of the ring",
    "crash": "crashed after a call",
    "recovery": "crashed while recovering",
    "lost": "commit landed, answer lost",
    "fault": "call failed",
    "race": "several at once",
    "zombie": "writer woke after its successor",
    "kill": "processes really killed",
}


def print_fingerprint(
    opening: Opening, target: str, shown: Output, *, against: str | None, version: int | None, **options: Any
) -> int:
    """Print the fingerprint of a table; and, if asked, whether and where it differs from another's."""
    path = _path(opening, target)
    found = once.fingerprint(path, version=version, **options)
    shown.say(f"{found.text}  {found.rows:,} rows")
    shown.say(f"  {found.schema}")
    if found.excluded:
        shown.say(f"  without {', '.join(found.excluded)}")
    document = {"target": target, **found.document()}
    other_path = None if against is None else _path(opening, against)
    other = None if other_path is None else once.fingerprint(other_path, **options)
    if other is not None:
        document |= {"against": against, "same": found == other, "differing": found.differing(other)}
        shown.say(f"{other.text}  {against}: {'the same' if found == other else 'another'}")
    if other is None or found == other:
        shown.document(document)
        return 0
    assert other_path is not None
    differences = once.differences(path, other_path, exclude=options["exclude"]).document()
    _show_differences(document["differing"], differences, shown)
    shown.document({**document, "differences": differences})
    return 3


def _path(opening: Opening, target: str) -> str:
    """The path of a table: it is one, or a table of the project, whose session is then used."""
    if "/" in target:
        return target
    project = opening()
    project.session()
    return project.address.table(target)


def _show_differences(differing: Sequence[str], differences: Mapping[str, Any], shown: Output) -> None:
    for part in differing[:10]:
        shown.say(f"  differs: {part}")
    if differences["columns"]:
        shown.say(f"  other columns: {', '.join(differences['columns'])}")
        return
    shown.say(f"  rows only here: {differences['only_left']:,}, only there: {differences['only_right']:,}")
    _show_examples(differences["examples"], shown)


def _show_examples(examples: Sequence[Mapping[str, Any]], shown: Output) -> None:
    for example in examples[:5]:
        row = json.dumps(example["row"], ensure_ascii=False, default=str)
        shown.say(f"  {example['left']} × instead of {example['right']} ×: {row}")
