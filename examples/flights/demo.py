"""The retry that doubled the rows: a job written by hand and the same as an oncelake pipeline, both killed and retried.

Real flights, real Spark, real kills. Every number on the terminal is read from the tables, the reports or the landed files.
"""

import difflib
import json
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import landing
import picture
from landing import DAYS, Row
from orchestrator import Ended, Process, with_one_retry
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tables import rows_of, wrong_versions

from oncelake.spark.jars import delta_jars

HERE = Path(__file__).resolve().parent
DEMO = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "demo-lake"
PROJECT, LOGS, SCRATCH = DEMO / "project", DEMO / "logs", DEMO / "scratch"
LANDING = PROJECT / "landing" / "flights"
NAIVE = PROJECT / "naive-lake" / "silver" / "flights"
ONCE = PROJECT / "lake" / "silver" / "flights"
FIRST, EIGHTH, LAST, END = DAYS[0], DAYS[7], DAYS[-1], DAYS[-1] + timedelta(days=1)
ONCELAKE = str(Path(sys.executable).with_name("oncelake"))

# A pipe has no width of its own; the table needs this much.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Play the acts in order, then show what became of the two tables."""
    begun = time.monotonic()
    console.rule("[bold]The retry that doubled the rows", align="left")
    true = set_up()
    naive_retry = append_killed_and_retried(true)
    once_retry = once_killed_and_retried()
    once_at_once = older_week_by_two_at_once()
    once_again = everything_twice_again()
    compare(
        true,
        [
            ("killed and retried", naive_retry, once_retry),
            ("older week, by two at once", "not tried", shown(once_at_once)),
            ("everything again, twice", "not tried", shown(once_again)),
        ],
    )
    show_programs()
    show_what_is_left()
    say(f"\n{time.monotonic() - begun:.0f} s from beginning to end.")


def set_up() -> Counter[Row]:
    """Make the project and its landing zone, and work out the truth before Spark has seen anything."""
    shutil.rmtree(DEMO, ignore_errors=True)
    published = landing.land(LANDING)
    LOGS.mkdir()
    SCRATCH.mkdir()
    for name in ("naive.py", "pipelines.py", "oncelake.yaml"):
        shutil.copy(HERE / name, PROJECT)
    true = landing.true_rows(LANDING)
    heading("The landing zone")
    say(f"{published:,} flights left New York in 2013. The first {len(DAYS)} days of January land here, a file a day.")
    say(f"The truth, counted without Spark: {true.total():,} flights were flown, {miles(true):,} miles.")
    return true


def append_killed_and_retried(true: Counter[Row]) -> str:
    """The job that appends, killed when the commit of its last day has landed, and retried."""
    heading("Act 1. A job that appends, and a retry")
    say("naive.py does day after day. The last day's commit lands; before the job can say so, SIGKILL.")
    say("The orchestrator sees a dead process and tries the day again.")
    last_commit = NAIVE / "_delta_log" / f"{len(DAYS) - 1:020}.json"
    reported: set[str] = set()

    def task(attempt: int) -> Ended:
        # Kinder than most: only days that have not reported success are tried again.
        days = [str(day) for day in DAYS if str(day) not in reported]
        with start(f"append-{attempt}", [sys.executable, "naive.py", *days], with_delta()) as process:
            ended = process.kill_when(last_commit.exists) if attempt == 1 else process.wait()
        reported.update(line.split()[-1] for line in ended.said.splitlines())
        return say_ended(f"attempt {attempt}, {days_shown(days)}", ended, NAIVE)

    with console.status("naive.py"):
        attempts = with_one_retry(task)
    again = (rows_of(NAIVE) - true).total()
    expect([attempt.code for attempt in attempts] == [-9, 0], "append was to be killed once and to succeed once")
    expect(again > 0, "the retry was to write the day again")
    say(f"  Every task is green, and {again:,} flights are in the table twice.", "bold red")
    return f"{again:,} rows doubled ({attempts[1].seconds:.1f} s)"


def once_killed_and_retried() -> str:
    """The pipeline, the newer week first, killed at the same moment, and retried where no Spark can start."""
    heading("Act 2. The same as an oncelake pipeline, and the same retry")
    say("pipelines.py, the newer week first, killed at the same moment: its commit landed, nobody told.")

    def task(attempt: int) -> Ended:
        command = [sys.executable, str(HERE / "killed.py"), str(EIGHTH), str(END)]
        if attempt == 2:
            command = [ONCELAKE, "run", "--from", str(EIGHTH), "--to", str(END), "--json"]
        with start(f"once-{attempt}", command, without_java() if attempt == 2 else {}) as process:
            ended = process.wait()
        return say_ended(f"attempt {attempt}, {days_shown([str(EIGHTH), str(LAST)])}", ended, ONCE)

    with console.status("killed.py"):
        attempts = with_one_retry(task)
    expect([attempt.code for attempt in attempts] == [-9, 0], "the pipeline was to be killed once and to succeed once")
    outcomes = outcomes_of(attempts[1])
    say(f"  The retry said: {shown(outcomes)}. Java was hidden from it, so no Spark was started.", "bold green")
    return f"{shown(outcomes)} ({attempts[1].seconds:.1f} s)"


def older_week_by_two_at_once() -> Counter[str]:
    """The older week after the newer one, triggered twice at the same time."""
    heading("Act 3. The older week after the newer one, by two processes at once")
    say("Days out of order, and a scheduler that triggered the same range twice in the same second.")
    command = [ONCELAKE, "run", "--from", str(FIRST), "--to", str(EIGHTH), "--json"]
    with (
        console.status("oncelake run, twice"),
        start("once-at-once-1", command) as one,
        start("once-at-once-2", command) as other,
    ):
        ends = [one.wait(), other.wait()]
    for number, ended in enumerate(ends, 1):
        say(f"  process {number}: {shown(outcomes_of(ended))} ({ended.seconds:.1f} s)")
    combine_intervals = outcomes_of(ends[0]) + outcomes_of(ends[1])
    expect(combine_intervals["committed"] == DAYS.index(EIGHTH), "every day was to be committed by one of the two")
    say(f"  Each day was committed by one of them; the table has {rows_of(ONCE).total():,} rows.", "bold green")
    return combine_intervals


def everything_twice_again() -> Counter[str]:
    """All days once more, and then once more."""
    heading("Act 4. Everything again, twice")
    command = [ONCELAKE, "run", "--from", str(FIRST), "--to", str(END), "--json"]
    found: Counter[str] = Counter()
    for number in (1, 2):
        with start(f"once-again-{number}", command, without_java()) as process:
            ended = process.wait()
        found += outcomes_of(ended)
        say_ended(f"run {number}, {days_shown([str(FIRST), str(LAST)])}", ended, ONCE)
    say(f"  {shown(found).capitalize()}, again without Java.", "bold green")
    return found


def compare(true: Counter[Row], acts: list[tuple[str, str, str]]) -> None:
    """The two tables side by side with the truth, in figures and as a picture; a wrong one of ours ends the demo."""
    heading("Side by side, read by delta-rs, not by Spark")
    naive, once = rows_of(NAIVE), rows_of(ONCE)
    table = Table("", "append", "oncelake", "truth", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_row("rows", f"{naive.total():,}", f"{once.total():,}", f"{true.total():,}")
    table.add_row("  too many, missing", *(f"{(t - true).total():,}, {(true - t).total():,}" for t in (naive, once)))
    table.add_row("miles flown", *(with_error(miles(t), miles(true)) for t in (naive, once)), f"{miles(true):,}")
    by_day = [landing.miles_by_day(rows.elements()) for rows in (naive, once, true)]
    of_last = [day[LAST] for day in by_day]
    table.add_row(f"  on {LAST}", *(with_error(of, of_last[2]) for of in of_last[:2]), f"{of_last[2]:,}")
    table.add_row("versions a reader could see", *(readers_saw(path, true) for path in (NAIVE, ONCE)))
    table.add_section()
    for act in acts:
        table.add_row(*act)
    console.print(table)
    picture.draw(DEMO / "totals.svg", *by_day)
    expect(once == true, "the pipeline's table was to be the truth, row by row")


def show_programs() -> None:
    """The lines in which the two programs differ."""
    heading("What differs between the two programs")
    programs = [(HERE / name).read_text().splitlines() for name in ("naive.py", "pipelines.py")]
    lines = list(difflib.unified_diff(*programs, "naive.py", "pipelines.py", n=0, lineterm=""))
    colours = {"-": "red", "+": "green"}
    for line in lines:
        if line[1:].strip() and not line.startswith("@@"):
            say(f"  {line}", colours[line[0]])


def show_what_is_left() -> None:
    """Where the picture is, and how to look into the lake."""
    heading("Look for yourself")
    here = Path.cwd()
    say(f"  {os.path.relpath(DEMO / 'totals.svg', here):<59} # the two tables as a picture")
    commands = (
        ("oncelake status", f"{len(DAYS)} days done, no more landed"),
        ("oncelake history silver.flights", "who wrote what, a commit a week"),
        (f"oncelake plan --from {FIRST} --to {END}", "what a run would do"),
        (f"oncelake run --from {FIRST} --to {END}", "once more"),
        (f"rm -r lake; oncelake run --from {FIRST} --to {END}", "from nothing; interrupt it"),
    )
    say(f"  source {shlex.quote(os.path.relpath(Path(sys.prefix, 'bin', 'activate'), here))}")
    say(f"  cd {shlex.quote(os.path.relpath(PROJECT, here))}")
    for command, why in commands:
        say(f"  {command:<59} # {why}")


def start(name: str, command: list[str], environment: dict[str, str] | None = None) -> Process:
    """Start a process in the project's folder, with what makes Spark light enough for a demo."""
    light = {
        "SPARK_LOCAL_DIRS": str(SCRATCH),
        # Processes that live for seconds: the second compiler would cost more than it gains.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return Process(name, command, PROJECT, LOGS, {**light, **(environment or {})})


def with_delta() -> dict[str, str]:
    """What `spark-submit` would be told: where Delta is, and that this is one small machine."""
    settings = {
        "spark.jars": ",".join(delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
    }
    arguments = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def without_java() -> dict[str, str]:
    """A place without Java: whoever wants Spark fails there."""
    return {"JAVA_HOME": str(SCRATCH)}


def outcomes_of(ended: Ended) -> Counter[str]:
    """How many days of a run came to what, from the document it printed; neighbours are written in one commit."""
    expect(ended.code == 0, f"a run ended with {ended.shown}")
    found: Counter[str] = Counter()
    for work in json.loads(ended.said)["works"]:
        found[work["outcome"]] += (datetime.fromisoformat(work["end"]) - datetime.fromisoformat(work["start"])).days
    return found


def readers_saw(path: Path, true: Counter[Row]) -> str:
    """How many versions of a table had a day that was neither whole nor absent."""
    versions, wrong = wrong_versions(path, true)
    return f"{versions}, {wrong or 'none'} wrong"


def miles(rows: Counter[Row]) -> int:
    """All miles flown."""
    return sum(landing.miles_by_day(rows.elements()).values())


def with_error(said: int, true: int) -> str:
    """A figure and how far it is from the truth."""
    return f"{said:,} ({'exact' if said == true else format((said - true) / true, '+.1%')})"


def shown(outcomes: Counter[str]) -> str:
    """Outcomes as people read them."""
    return ", ".join(
        f"{count} days {outcome.replace('_', ' ')}" for outcome, count in sorted(outcomes.items(), reverse=True)
    )


def days_shown(days: list[str]) -> str:
    """A day, or the first and the last of several."""
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def say_ended(what: str, ended: Ended, table: Path) -> Ended:
    """A line about a process that ended and the table it left."""
    say(f"  {what}: {ended.shown} after {ended.seconds:.1f} s, {rows_of(table).total():,} rows in the table")
    return ended


def heading(text: str) -> None:
    """The title of an act."""
    console.print(f"\n[bold]{text}[/bold]")


def say(text: str, style: str = "") -> None:
    """A line for whoever watches."""
    console.print(Text(text, style))


def expect(true: bool, what: str) -> None:
    """End the demo if the story did not go as it is told."""
    if not true:
        fail(what)


def fail(what: str) -> NoReturn:
    """End the demo and say where the processes' own words are."""
    sys.exit(f"the demo did not go as it should: {what}; see {LOGS}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
