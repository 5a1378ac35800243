"""The retry that doubled the rows: a hand-written job and the same job as an oncelake pipeline, both killed and retried.

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

# A pipe has no width; the table needs this many columns.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Play the acts in order, then compare the two tables."""
    started = time.monotonic()
    console.rule("[bold]The retry that doubled the rows", align="left")
    true = set_up()
    naive_retry = append_killed_and_retried(true)
    once_retry = once_killed_and_retried()
    once_concurrent = older_week_by_two_processes()
    once_again = everything_twice_again()
    compare(
        true,
        [
            ("killed and retried", naive_retry, once_retry),
            ("older week, two processes", "not tried", format_outcomes(once_concurrent)),
            ("everything again, twice", "not tried", format_outcomes(once_again)),
        ],
    )
    show_programs()
    show_next_commands()
    say(f"\n{time.monotonic() - started:.0f} s in total.")


def set_up() -> Counter[Row]:
    """Create the project and its landing zone, and compute the expected rows without Spark."""
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
    """Run the job that appends, kill it when the commit of its last day has landed, and retry it."""
    heading("Act 1. A job that appends, and a retry")
    say(
        "naive.py processes one day after another. The last day's commit lands; SIGKILL comes before it can report success."
    )
    say("The orchestrator sees a dead process and retries the day.")
    last_commit = NAIVE / "_delta_log" / f"{len(DAYS) - 1:020}.json"
    reported: set[str] = set()

    def task(attempt: int) -> Ended:
        # Better than most orchestrators: only days that have not reported success are retried.
        days = [str(day) for day in DAYS if str(day) not in reported]
        with start(f"append-{attempt}", [sys.executable, "naive.py", *days], with_delta()) as process:
            ended = process.kill_when(last_commit.exists) if attempt == 1 else process.wait()
        reported.update(line.split()[-1] for line in ended.output.splitlines())
        return report_end(f"attempt {attempt}, {format_days(days)}", ended, NAIVE)

    with console.status("naive.py"):
        attempts = with_one_retry(task)
    duplicates = (rows_of(NAIVE) - true).total()
    expect([attempt.code for attempt in attempts] == [-9, 0], "append should be killed once and succeed once")
    expect(duplicates > 0, "the retry should write the day again")
    say(f"  Every task is green, and {duplicates:,} flights are in the table twice.", "bold red")
    return f"{duplicates:,} rows doubled ({attempts[1].seconds:.1f} s)"


def once_killed_and_retried() -> str:
    """Run the pipeline for the newer week, kill it at the same moment, and retry it where Spark cannot start."""
    heading("Act 2. The same as an oncelake pipeline, and the same retry")
    say("pipelines.py, the newer week first, killed at the same moment: its commit landed, success was not reported.")

    def task(attempt: int) -> Ended:
        command = [sys.executable, str(HERE / "killed.py"), str(EIGHTH), str(END)]
        if attempt == 2:
            command = [ONCELAKE, "run", "--from", str(EIGHTH), "--to", str(END), "--json"]
        with start(f"once-{attempt}", command, without_java() if attempt == 2 else {}) as process:
            ended = process.wait()
        return report_end(f"attempt {attempt}, {format_days([str(EIGHTH), str(LAST)])}", ended, ONCE)

    with console.status("killed.py"):
        attempts = with_one_retry(task)
    expect([attempt.code for attempt in attempts] == [-9, 0], "the pipeline should be killed once and succeed once")
    outcomes = outcomes_of(attempts[1])
    say(
        f"  The retry said: {format_outcomes(outcomes)}. Java was hidden from it, so no Spark was started.",
        "bold green",
    )
    return f"{format_outcomes(outcomes)} ({attempts[1].seconds:.1f} s)"


def older_week_by_two_processes() -> Counter[str]:
    """Run the older week after the newer one, triggered twice at the same time."""
    heading("Act 3. The older week after the newer one, by two concurrent processes")
    say("Days out of order, and a scheduler that triggered the same range twice in the same second.")
    command = [ONCELAKE, "run", "--from", str(FIRST), "--to", str(EIGHTH), "--json"]
    with (
        console.status("oncelake run, twice"),
        start("once-concurrent-1", command) as one,
        start("once-concurrent-2", command) as other,
    ):
        ends = [one.wait(), other.wait()]
    for number, ended in enumerate(ends, 1):
        say(f"  process {number}: {format_outcomes(outcomes_of(ended))} ({ended.seconds:.1f} s)")
    total = outcomes_of(ends[0]) + outcomes_of(ends[1])
    expect(total["committed"] == DAYS.index(EIGHTH), "every day should be committed by one of the two")
    say(f"  Each day was committed by one of them; the table has {rows_of(ONCE).total():,} rows.", "bold green")
    return total


def everything_twice_again() -> Counter[str]:
    """Run all days twice more."""
    heading("Act 4. Everything again, twice")
    command = [ONCELAKE, "run", "--from", str(FIRST), "--to", str(END), "--json"]
    found: Counter[str] = Counter()
    for number in (1, 2):
        with start(f"once-again-{number}", command, without_java()) as process:
            ended = process.wait()
        found += outcomes_of(ended)
        report_end(f"run {number}, {format_days([str(FIRST), str(LAST)])}", ended, ONCE)
    say(f"  {format_outcomes(found).capitalize()}, again without Java.", "bold green")
    return found


def compare(true: Counter[Row], acts: list[tuple[str, str, str]]) -> None:
    """Print both tables beside the truth and draw a picture; end the demo with an error if ours is wrong."""
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
    expect(once == true, "the pipeline's table should equal the truth, row by row")


def show_programs() -> None:
    """Print the lines in which the two programs differ."""
    heading("What differs between the two programs")
    programs = [(HERE / name).read_text().splitlines() for name in ("naive.py", "pipelines.py")]
    lines = list(difflib.unified_diff(*programs, "naive.py", "pipelines.py", n=0, lineterm=""))
    colours = {"-": "red", "+": "green"}
    for line in lines:
        if line[1:].strip() and not line.startswith("@@"):
            say(f"  {line}", colours[line[0]])


def show_next_commands() -> None:
    """Print where the picture is, and commands that inspect the lake."""
    heading("Look for yourself")
    here = Path.cwd()
    say(f"  {os.path.relpath(DEMO / 'totals.svg', here):<59} # the two tables as a picture")
    commands = (
        ("oncelake status", f"{len(DAYS)} days done, no others landed"),
        ("oncelake history silver.flights", "the commits, one per week"),
        (f"oncelake plan --from {FIRST} --to {END}", "what a run would do"),
        (f"oncelake run --from {FIRST} --to {END}", "once more"),
        (f"rm -r lake; oncelake run --from {FIRST} --to {END}", "from nothing; interrupt it"),
    )
    say(f"  source {shlex.quote(os.path.relpath(Path(sys.prefix, 'bin', 'activate'), here))}")
    say(f"  cd {shlex.quote(os.path.relpath(PROJECT, here))}")
    for command, why in commands:
        say(f"  {command:<59} # {why}")


def start(name: str, command: list[str], environment: dict[str, str] | None = None) -> Process:
    """Start a process in the project's folder, with settings that make Spark start fast."""
    light = {
        "SPARK_LOCAL_DIRS": str(SCRATCH),
        # The processes live for seconds: the optimizing compiler would cost more than it gains.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return Process(name, command, PROJECT, LOGS, {**light, **(environment or {})})


def with_delta() -> dict[str, str]:
    """Return the settings that `spark-submit` would pass: Delta's jars, and values for a small machine."""
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
    """Return an environment without Java, in which starting Spark fails."""
    return {"JAVA_HOME": str(SCRATCH)}


def outcomes_of(ended: Ended) -> Counter[str]:
    """Return the number of days per outcome from the JSON of a run; one work may cover several days."""
    expect(ended.code == 0, f"a run ended with {ended.reason}")
    found: Counter[str] = Counter()
    for work in json.loads(ended.output)["works"]:
        found[work["outcome"]] += (datetime.fromisoformat(work["end"]) - datetime.fromisoformat(work["start"])).days
    return found


def readers_saw(path: Path, true: Counter[Row]) -> str:
    """Return how many versions a table has, and how many of them contain an incomplete day."""
    versions, wrong = wrong_versions(path, true)
    return f"{versions}, {wrong or 'none'} wrong"


def miles(rows: Counter[Row]) -> int:
    """Return the total of miles flown."""
    return sum(landing.miles_by_day(rows.elements()).values())


def with_error(value: int, true: int) -> str:
    """Return a figure and its deviation from the truth."""
    return f"{value:,} ({'exact' if value == true else format((value - true) / true, '+.1%')})"


def format_outcomes(outcomes: Counter[str]) -> str:
    """Format outcomes for people."""
    return ", ".join(
        f"{count} days {outcome.replace('_', ' ')}" for outcome, count in sorted(outcomes.items(), reverse=True)
    )


def format_days(days: list[str]) -> str:
    """Format a day, or the first and the last of several."""
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def report_end(what: str, ended: Ended, table: Path) -> Ended:
    """Print how a process ended, and the size of the table."""
    say(f"  {what}: {ended.reason} after {ended.seconds:.1f} s, {rows_of(table).total():,} rows in the table")
    return ended


def heading(text: str) -> None:
    """Print the title of an act."""
    console.print(f"\n[bold]{text}[/bold]")


def say(text: str, style: str = "") -> None:
    """Print a line."""
    console.print(Text(text, style))


def expect(true: bool, what: str) -> None:
    """End the demo with an error if a condition is not met."""
    if not true:
        fail(what)


def fail(what: str) -> NoReturn:
    """End the demo with an error that names the folder of the logs."""
    sys.exit(f"the demo failed: {what}; see {LOGS}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
