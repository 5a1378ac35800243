"""The stream that was killed: payments from Kafka by plain `foreachBatch` and by oncelake, both killed again and again.

A real broker, real Spark, real kills. Every number on the terminal is read from the tables or from the ledger of what was sent.
"""

import argparse
import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import ledger
import picture
from killing import run, run_and_kill
from ledger import Totals
from load import Load
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oncelake.spark.jars import delta_jars, kafka_jars
from oncelake.spark.kafka_broker import KafkaBroker

HERE = Path(__file__).resolve().parent
ONCELAKE = str(Path(sys.executable).with_name("oncelake"))
TOPIC, PARTITIONS, BATCH = "payments", 2, 500
# Messages that come while the jobs run for another time.
ROUND = 2 * BATCH
BEGUN, BRONZE, SILVER, GOLD = "batch begun", "bronze written", "silver written", "gold written"
TABLES = {BRONZE: "bronze/payments", SILVER: "silver/payments", GOLD: "gold/minutes"}

# A pipe has no width; the table needs this many columns.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


@dataclass(frozen=True)
class Job:
    """A way of running the stream: a command, and where its tables and its checkpoint lie."""

    name: str
    command: list[str]
    environment: dict[str, str]
    lake: Path
    checkpoint: Path
    # Where its first kill comes: for plain foreachBatch after gold and before silver, for us between the two targets of a batch.
    first: str

    def happened(self, moment: str, times: int) -> Callable[[], bool]:
        """Return what says whether something has happened so many times more than until now."""
        count = self._batches if moment == BEGUN else lambda: data_commits(self.lake / TABLES[moment])
        before = count()
        return lambda: count() >= before + times

    def _batches(self) -> int:
        numbers = [int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*")]
        return max(numbers, default=-1)


def main() -> None:
    """Start broker and load, kill the jobs again and again, let them end, and compare what they stored with what was sent."""
    given = arguments()
    started = time.monotonic()
    console.rule("[bold]The stream that was killed", align="left")
    folder = set_up(given.folder)
    broker = KafkaBroker(folder / "broker")
    try:
        broker.start()
        create_topic(broker.address)
        load = Load(broker.address, TOPIC, folder / "ledger.jsonl", given.seed, given.rate)
        jobs = [job for job in make_jobs(folder, broker.address) if job.name == "oncelake" or not given.no_plain]
        load.start()
        try:
            kill_often(jobs, folder, load, given.kills, given.seed)
        finally:
            load.stop()
        let_end(jobs, folder)
    finally:
        broker.stop()
    compare(folder, {job.name: ledger.stored(job.lake) for job in jobs}, given.kills)
    say(f"\n{time.monotonic() - started:.0f} s in total.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=HERE.parents[1] / "demo-lake")
    parser.add_argument("--kills", type=int, default=6, help="kills of each job")
    parser.add_argument("--rate", type=float, default=200, help="messages per second")
    parser.add_argument("--seed", type=int, default=1, help="of the messages and of the kills")
    parser.add_argument("--no-plain", action="store_true", help="run only the job of oncelake")
    return parser.parse_args()


def set_up(folder: Path) -> Path:
    """Create the project in an empty folder."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("project", "logs", "scratch"):
        (folder / name).mkdir(parents=True)
    for name in ("oncelake.yaml", "pipelines.py", "plain.py"):
        shutil.copy(HERE / name, folder / "project")
    return folder


def create_topic(servers: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        answer.result(60)


def make_jobs(folder: Path, servers: str) -> list[Job]:
    """Return both jobs; their processes live for seconds, so the optimizing compiler of the JVM would only cost time."""
    light = {
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    names = {"PAYMENTS_SERVERS": servers, "PAYMENTS_TOPIC": TOPIC, "PAYMENTS_BATCH": str(BATCH)}
    lakes = {name: folder / "project" / name for name in ("plain-lake", "lake")}
    plain = [sys.executable, "plain.py", servers, TOPIC, str(BATCH)]
    return [
        Job("plain", plain, light | with_jars(), lakes["plain-lake"], lakes["plain-lake"] / "checkpoint", GOLD),
        Job(
            "oncelake",
            [ONCELAKE, "run"],
            light | names,
            lakes["lake"],
            lakes["lake"] / "_oncelake/streams/payments/1/checkpoint",
            BRONZE,
        ),
    ]


def with_jars() -> dict[str, str]:
    """Return the settings that `spark-submit` would pass: the jars of Delta and Kafka, and values for a small machine."""
    settings = {
        "spark.jars": ",".join([*delta_jars(), *kafka_jars()]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {"PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"]), **python}


def kill_often(jobs: list[Job], folder: Path, load: Load, kills: int, seed: int) -> None:
    """Run the jobs in turn while messages keep coming, and kill each so many times, at moments drawn by the seed."""
    say(f"Messages keep coming. Each job is started again and again, and killed with its JVM {picture.times(kills)}.")
    drawn = {job.name: random.Random(f"{seed} {job.name}") for job in jobs}
    done = dict.fromkeys(drawn, 0)
    for number in range(1, 3 * kills + 3):
        load.ask(ROUND)
        for job in (job for job in jobs if done[job.name] < kills):
            done[job.name] += run_once(job, folder, number, done[job.name] == 0, drawn[job.name])
        if min(done.values()) == kills:
            return
    fail(f"the jobs find too little to do between the kills: {done}")


def run_once(job: Job, folder: Path, number: int, first: bool, drawn: random.Random) -> bool:
    """Run a job, and return whether it was killed before it had taken in all there was."""
    moment, times, delay = drawn.choice((BEGUN, *TABLES)), drawn.randint(1, 2), drawn.choice((0, drawn.uniform(0, 0.5)))
    if first:
        moment, times, delay = job.first, 1, 0
    log = folder / "logs" / f"{job.name}-{number}.log"
    code = run_and_kill(job.command, folder / "project", log, job.environment, job.happened(moment, times), delay)
    expect(code in (-9, 0), f"{job.name} ended with exit code {code}: {log}")
    what = f"killed {1000 * delay:.0f} ms after: {moment} ({times})" if code else "took in all there was"
    say(f"  {job.name:8} attempt {number:3}: {what}")
    return code != 0


def let_end(jobs: list[Job], folder: Path) -> None:
    """Run each job once more, to its end. A last run of ours finds nothing to do."""
    say("No more messages come. Each job runs to its end.")
    for job in jobs:
        log = folder / "logs" / f"{job.name}-last.log"
        code = run(job.command, folder / "project", log, job.environment)
        expect(code == 0, f"{job.name} ended with exit code {code}: {log}")
    log = folder / "logs" / "oncelake-again.log"
    code = run(
        jobs[-1].command, folder / "project", log, {**jobs[-1].environment, "JAVA_HOME": str(folder / "scratch")}
    )
    expect(code == 0, f"a run with nothing to do ended with exit code {code}: {log}")


def compare(folder: Path, stored: dict[str, Totals], kills: int) -> None:
    """Print what was sent beside what is stored, draw it, and end with an error if ours is not exact."""
    sent = ledger.sent(folder / "ledger.jsonl")
    columns = [*stored.values(), sent]
    table = Table("", *stored, "sent", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_row("bronze: messages", *(f"{each.bronze.total():,}" for each in columns))
    table.add_row("  doubled, lost", *(differences(each, sent) for each in stored.values()))
    table.add_row("silver: payments", *(f"{len(each.silver):,}" for each in columns))
    table.add_row("gold: payments", *(f"{sum(count for count, _ in each.gold.values()):,}" for each in columns))
    table.add_row("gold: total", *(with_error(each.cents, sent.cents) for each in columns))
    table.add_row("quarantine: messages", *(f"{each.quarantine.total():,}" for each in columns))
    console.print(table)
    picture.draw(
        folder / "totals.svg", {name: by_minute(each) for name, each in stored.items()}, by_minute(sent), kills
    )
    say(f"The totals per minute as a picture: {os.path.relpath(folder / 'totals.svg')}")
    ours = stored["oncelake"]
    for name in ("bronze", "silver", "gold", "quarantine"):
        expect(getattr(ours, name) == getattr(sent, name), f"{name} of oncelake should be what was sent")
    if plain := stored.get("plain"):
        doubled = (plain.bronze - sent.bronze).total()
        expect(doubled > 0, "plain foreachBatch should write messages twice")
        say(f"Plain foreachBatch: {doubled:,} messages are in bronze twice.", "bold red")
    say(
        f"oncelake: killed {picture.times(kills)}, no message lost, none doubled; bronze, silver and gold are exact.",
        "bold green",
    )


def data_commits(table: Path) -> int:
    """Return how many commits of a table wrote rows: creating it is a commit too."""
    return sum('{"add":' in path.read_text() for path in (table / "_delta_log").glob("[0-9]*.json"))


def differences(found: Totals, sent: Totals) -> str:
    return f"{(found.bronze - sent.bronze).total():,}, {(sent.bronze - found.bronze).total():,}"


def by_minute(totals: Totals) -> dict[str, int]:
    return {f"{minute:%H:%M}": cents for minute, (_, cents) in sorted(totals.gold.items())}


def with_error(value: int, true: int) -> str:
    return f"{value / 100:,.2f} ({'exact' if value == true else format((value - true) / true, '+.1%')})"


def say(text: str, style: str = "") -> None:
    console.print(Text(text, style))


def expect(true: bool, what: str) -> None:
    if not true:
        fail(what)


def fail(what: str) -> NoReturn:
    sys.exit(f"the demo failed: {what}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
