"""Streams from Kafka to Delta: the guard of a micro-batch, rows per second, gold, and the restart after a kill.

`BENCH_SCALE=0.02 python -m bench streams` tries it with a fiftieth of the messages, and stores no results.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import oncelake as once
from bench.clock import figure
from bench.days import BIN, HERE
from oncelake.delta.lake_session import open_lake_session
from oncelake.spark.kafka_broker import KafkaBroker
from oncelake.streaming.queries import SETTINGS

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
# Messages of a batch, and batches, for the guard and for rows per second.
SMALL, SMALL_BATCHES = int(100_000 * SCALE), 12
LARGE, LARGE_BATCHES = int(500_000 * SCALE), 6
GROUPS, CHANGED = int(1_000_000 * SCALE), 100
ROUNDS, GOLD_BATCHES, RESTARTS = 3, 8, 3
RESTART_BATCH, RESTART_BATCHES = 1000, 12
PARTITIONS = 2
# The first batches of a query compile its code.
WARM_UP = 2
PIPELINES = """
import oncelake as once

@once.pipeline(
    reads=once.kafka("{topic}", servers="{servers}", max_messages={limit}),
    writes=once.append("t"),
)
def stream(messages):
    return messages.select("value")
"""


def measure():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        broker = KafkaBroker(Path(folder) / "broker")
        try:
            broker.start("-Xmx1g")
            stage = Stage(Path(folder), broker.address)
            for part in (_restart, _guard, _rows, _gold):
                yield from part(stage)
        finally:
            broker.stop()


class Stage:
    """The broker, topics in it, and new folders for tables. The session comes after the processes that are killed."""

    def __init__(self, folder, servers):
        self.folder, self.servers, self._numbers = folder, servers, count()
        self._spark = None

    @property
    def spark(self):
        self._spark = self._spark or open_lake_session(str(self.folder), {"spark.driver.memory": "4g"}, kafka=True)
        return self._spark

    def empty(self):
        """Return the path of a new table or lake."""
        return self.folder / str(next(self._numbers))

    def topic(self, messages):
        """Create a topic with so many messages of about 100 bytes, and return its name."""
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"topic{next(self._numbers)}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        settings = {"queue.buffering.max.messages": 2_000_000, "linger.ms": 50, "log_level": 0}
        producer = Producer({"bootstrap.servers": self.servers, **settings})
        for number in range(messages):
            producer.produce(
                name, f'{{"id": {number}, "note": "{"a payment of a customer " * 3}"}}', partition=number % 2
            )
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()
        return name

    def options(self, topic, limit):
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}
        return options | {"maxOffsetsPerTrigger": str(limit), "kafka.isolation.level": "read_committed"}

    def messages(self, topic, limit):
        """Return a stream of a topic as one writes it by hand."""
        rows = self.spark.readStream.format("kafka").options(**self.options(topic, limit)).load()
        return rows.selectExpr("CAST(value AS STRING) AS value")

    def alternate(self, rounds, **jobs):
        """Return the median seconds of a batch of each job, over all rounds. The jobs alternate."""
        times = {name: [] for name in jobs}
        for number in range(rounds):
            for name in list(jobs) if number % 2 == 0 else reversed(list(jobs)):
                times[name] += batch_seconds(jobs[name](self.empty()))
        return {name: statistics.median(found) for name, found in times.items()}


def batch_seconds(checkpoint):
    """Return the seconds from the end of each batch to the end of the next, by the files of a checkpoint."""
    ends = [ended(checkpoint, number) for number in range(len(list((checkpoint / "commits").glob("[0-9]*"))))]
    return [after - before for before, after in zip(ends[WARM_UP - 1 :], ends[WARM_UP:], strict=False)]


def ended(checkpoint, number):
    return (checkpoint / "commits" / str(number)).stat().st_mtime_ns / 1e9


def run_query(rows, checkpoint, path=None, **writer):
    """Run a query until nothing is left, and return its checkpoint."""
    query = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    query = query.foreachBatch(writer["each"]) if "each" in writer else query.format("delta")
    query.outputMode(writer.get("mode", "append")).start(path and str(path)).awaitTermination()
    return checkpoint


def declared(stage, topic, limit):
    """Return a job that runs a declared pipeline."""

    def job(lake):
        source = once.kafka(topic, servers=stage.servers, max_messages=limit)
        pipeline = once.pipeline(name="stream", reads=source, writes=once.append("t"))(
            lambda rows: rows.select("value")
        )
        assert once.Project.of(pipeline, lake=lake, spark=stage.spark).run().outcome == "done"
        return lake / "_oncelake" / "streams" / "stream" / "1" / "checkpoint"

    return job


def _guard(stage):
    """Compare a guarded batch with a bare one that writes the same rows with a marker."""
    topic = stage.topic(SMALL * SMALL_BATCHES)

    def bare(folder):
        def each(frame, number):
            writer = frame.write.format("delta").mode("append").option("txnAppId", "bench")
            writer.option("txnVersion", number).save(str(folder / "t"))

        return run_query(stage.messages(topic, SMALL), folder / "checkpoint", each=each)

    def guarded(folder):
        each = once.each_batch(
            lambda frame, batch: batch.write(frame, once.append("t")), name="bench", lake=str(folder / "lake")
        )
        return run_query(stage.messages(topic, SMALL), folder / "checkpoint", each=each)

    found = stage.alternate(ROUNDS, bare=bare, each_batch=guarded, declared=declared(stage, topic, SMALL))
    for name in ("each_batch", "declared"):
        what = f"a batch of {SMALL:,} messages, {name}: ours / bare foreachBatch with a marker"
        yield figure(what, round(found[name] / found["bare"], 3), "×", "≤ 1.05", **found)
        yield figure(f"{what}, difference", round((found[name] - found["bare"]) * 1000), "ms", "")


def _rows(stage):
    """Compare rows per second with those of Delta's own sink."""
    topic = stage.topic(LARGE * LARGE_BATCHES)

    def plain(folder):
        return run_query(stage.messages(topic, LARGE), folder / "checkpoint", folder / "t")

    found = stage.alternate(ROUNDS, plain=plain, declared=declared(stage, topic, LARGE))
    rates = {name: LARGE / seconds for name, seconds in found.items()}
    what = f'batches of {LARGE:,} messages, rows/s: ours / writeStream.format("delta")'
    yield figure(what, round(rates["declared"] / rates["plain"], 3), "×", "≥ 0.95", **rates)


def _gold(stage):
    """Compare update mode and a MERGE of the changed groups with complete mode, which rewrites all of them.

    Each query runs through all batches: the first has every group, each later one changes some of them.
    """
    lake, complete, spark = stage.empty(), stage.empty(), stage.spark
    write_payments(spark, lake / "events")
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(lake / "events"))
    times = {
        "complete": batch_seconds(run_query(totals(rows), complete / "checkpoint", complete / "t", mode="complete"))
    }
    for name in SETTINGS:
        spark.conf.unset(name)
    for name, vectors in (("update", False), ("vectors", True)):
        writes = once.aggregate(name, keys="g", deletion_vectors=vectors)
        pipeline = once.pipeline(name=name, reads=once.changes("events", feed=False, max_files=1), writes=writes)(
            totals
        )
        assert once.Project.of(pipeline, lake=lake, spark=spark).run().outcome == "done"
        times[name] = batch_seconds(lake / "_oncelake/streams" / name / "1/checkpoint")
    found = {name: statistics.median(seconds) for name, seconds in times.items()}
    what = f"{GROUPS:,} groups of which {100 / CHANGED:.0f} % change: complete mode / update and MERGE"
    yield figure(what, round(found["complete"] / found["update"], 2), "×", "≥ 5", **found)
    yield figure(f"{what} with deletion vectors", round(found["complete"] / found["vectors"], 2), "×", "", **found)


def write_payments(spark, path):
    """Write a table of one file with a payment of every group, and files with payments of some of them."""
    for number in range(GOLD_BATCHES + 1):
        groups = f"id * {CHANGED} + {number}" if number else "id"
        some = spark.range(0, GROUPS // CHANGED if number else GROUPS, 1, 1)
        some.selectExpr(f"{groups} AS g", "id AS amount").write.format("delta").mode("append").save(str(path))


def totals(rows):
    return rows.groupBy("g").agg({"amount": "sum", "*": "count"}).toDF("g", "total", "payments")


def _restart(stage):
    """Compare the time from the start of a process, after a kill, to its first new commit."""
    topic = stage.topic(RESTART_BATCH * RESTART_BATCHES)
    root, table = stage.empty(), stage.empty()
    root.mkdir()
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    text = PIPELINES.format(topic=topic, servers=stage.servers, limit=RESTART_BATCH)
    (root / "pipelines.py").write_text(text)
    hand = [sys.executable, HERE / "streams_by_hand.py", stage.servers, topic, str(RESTART_BATCH), table]
    jobs = {"ours": ([BIN / "oncelake", "run", "-p", root], root / "lake" / "t"), "plain": (hand, table)}
    times = {name: [] for name in jobs}
    # The first starts create the tables; each is killed at its first commit.
    for number in range(RESTARTS + 1):
        for name, (command, target) in jobs.items():
            seconds = seconds_to_commit(command, target)
            times[name] += [seconds] if number else []
    found = {name: min(seconds) for name, seconds in times.items()}
    what = "restart after a kill to the first new commit: ours / plain Spark"
    yield figure(what, round(found["ours"] / found["plain"], 3), "×", "≤ 1.2", **found)


def seconds_to_commit(command, table):
    """Start a process, kill it with its JVM at its first commit with rows, and return the seconds until then."""
    before, started = data_commits(table), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while data_commits(table) == before:
        assert process.poll() is None, f"{command} ended without a commit"
        time.sleep(0.005)
    seconds = time.perf_counter() - started
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return seconds


def data_commits(table):
    commits = sorted((table / "_delta_log").glob("[0-9]*.json"))
    return sum(any("add" in json.loads(line) for line in path.read_text().splitlines()) for path in commits)
