"""Streams in real processes with a real broker: really killed, stopped, started twice, idle; no message is lost or doubled."""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

import oncelake as once
from oncelake.spark.kafka_broker import KafkaBroker
from oncelake.storage.lock import process_start
from support.kafka import Kafka, Message
from support.processes import ONCELAKE
from support.variants import number_of

# `make prove` kills a hundred times.
KILLS = int(os.environ.get("ONCELAKE_STREAM_KILLS", "10"))
KEYS = 5
# Of a batch.
MOST = 20
# For a process under test to do what it must; it is never waited for longer than it takes.
SECONDS = 300
PIPELINES = """
import oncelake as once

@once.pipeline(
    reads=once.kafka({topic!r}, servers={servers!r}, value="json", schema="id bigint, customer bigint, seq bigint", max_messages={most}),
    writes=[once.append("bronze"), once.merge("silver", keys="customer", latest_by=["seq"])],
)
def payments(messages):
    rows = messages.select("value.*")
    return {{"bronze": rows, "silver": rows}}
"""


class Payments:
    """A project with a stream, its processes, and what was sent to its topic."""

    def __init__(self, root, kafka, most=MOST):
        self.root, self.kafka, self.topic = root, kafka, kafka.new_topic(partitions=2)
        root.mkdir(exist_ok=True)
        (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
        (root / "pipelines.py").write_text(PIPELINES.format(topic=self.topic, servers=kafka.servers, most=most))
        self.sent, self.last = 0, {}

    def send(self, count):
        """Send so many payments; those of a customer are in one partition, in their order."""
        messages = []
        for number in range(self.sent, self.sent + count):
            row = {"id": number, "customer": number % KEYS, "seq": number}
            messages.append(Message(json.dumps(row), key=str(row["customer"])))
            self.last[row["customer"]] = number
        self.kafka.produce(self.topic, *messages)
        self.sent += count

    @contextlib.contextmanager
    def watching(self):
        """Start `oncelake run --watch`, and end its processes."""
        command = [ONCELAKE, "run", "--watch", "0.2", "--json", "-p", str(self.root)]
        output = (self.root / f"output-{time.monotonic_ns()}").open("w+")
        with output, subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def run(self, *options):
        """Take in what is available now."""
        command = [ONCELAKE, "run", *options, "--json", "-p", str(self.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def rows_committed(self):
        """Return how many rows the commits of bronze say that they wrote. Needs no JVM."""
        try:
            return sum(entry.rows.written for entry in once.open(self.root).history("bronze") if entry.slice)
        except once.OncelakeError:
            return 0  # there is no table yet

    def begun(self):
        """Return how many batches were begun."""
        folder = self.root / "lake/_oncelake/streams/payments/1/checkpoint/offsets"
        return sum(path.name.isdigit() for path in folder.glob("*"))

    def written(self):
        """Return the commits of the tables and the entries of the checkpoint; checksums may follow them a moment later."""
        entries = self.root.glob("lake/_oncelake/streams/payments/1/checkpoint/*/*")
        commits = self.root.glob("lake/*/_delta_log/*.json")
        return sorted(map(str, [*commits, *(path for path in entries if path.name.isdigit())]))

    def has_every_message_once(self, spark):
        """Nothing is lost, nothing is doubled, and no version of silver has an older payment of a customer than one before."""
        bronze = spark.read.format("delta").load(str(self.root / "lake/bronze"))
        assert sorted(row["id"] for row in bronze.collect()) == list(range(self.sent))
        path, seen = str(self.root / "lake/silver"), defaultdict(lambda: -1)
        for version in range(once.open(self.root).history("silver")[0].version + 1):
            rows = spark.read.format("delta").option("versionAsOf", version).load(path).collect()
            for row in rows:
                assert row["seq"] >= seen[row["customer"]]
                seen[row["customer"]] = row["seq"]
        assert seen == self.last


def wait_for(happened, process, what):
    """Wait for something that a process must do."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert process.poll() is None, f"the process ended with {process.returncode} before {what}"
        assert time.monotonic() < deadline, f"{what}: not in {SECONDS} s"
        time.sleep(0.05)


def children(pid):
    with contextlib.suppress(OSError):
        own = [
            int(name) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for name in tasks.read_text().split()
        ]
        return own + [grandchild for child in own for grandchild in children(child)]
    return []


def kill(process, who):
    """Kill Python, its JVM, or both, and wait for the end of those."""
    jvms = [pid for pid in children(process.pid) if process_start(pid, "java") is not None]
    for pid in [*(jvms if who != "python" else []), *([process.pid] if who != "jvm" else [])]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if who != "jvm":
        process.wait()


@contextlib.contextmanager
def sending(payments):
    """Send payments all the time, a few at once, but not so many more than are read that the end takes long."""
    enough = threading.Event()

    def send():
        while not enough.wait(0.1):
            if payments.sent < MOST * (payments.begun() + 3):
                payments.send(3)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, KILLS])
def test_killed_at_random_moments_no_message_is_lost_or_doubled(tmp_path, spark, kafka, kills):
    payments = Payments(tmp_path / "project", kafka)
    chance = random.Random(number_of("stream kills", str(kills)))
    with sending(payments):
        for number in range(kills):
            with payments.watching() as process:
                before, more = payments.begun(), chance.randrange(3)
                wait_for(lambda: payments.begun() > before + more, process, f"a batch after kill {number}")  # noqa: B023
                time.sleep(chance.random())  # the moment is not to be one of the stream's own
                who = chance.choice(["python", "jvm", "both"])
                kill(process, who)
                if who == "jvm":
                    # The same process starts another JVM and goes on.
                    after = payments.begun()
                    wait_for(lambda: payments.begun() > after + 1, process, "a batch in another JVM")  # noqa: B023
    done = payments.run()
    assert done.returncode == 0, done.stdout + done.stderr
    payments.has_every_message_once(spark)


@pytest.mark.long
def test_a_stream_runs_once_is_idle_and_ends_between_two_batches(tmp_path, spark, kafka):
    payments = Payments(tmp_path / "project", kafka, most=1000)
    payments.send(10)
    with payments.watching() as process:
        wait_for(lambda: payments.rows_committed() == 10, process, "the first batch")
        wait_for(
            lambda: len(list((tmp_path / "project/lake/_oncelake/streams").rglob("commits/0"))) == 1, process, "its end"
        )
        before = payments.written()
        second = payments.run("--watch", "0.2")
        # Meanwhile the first has looked for messages many times.
        assert (second.returncode, payments.written()) == (4, before)
        payments.send(3000)
        wait_for(lambda: payments.begun() > 1, process, "the next batch")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    committed = payments.rows_committed()
    assert committed in (10, 1010, 2010, 3010)
    assert payments.run().returncode == 0
    payments.has_every_message_once(spark)


@pytest.mark.long
def test_a_run_beside_a_watched_stream_is_busy(tmp_path, spark, kafka):
    payments = Payments(tmp_path / "project", kafka)
    payments.send(10)
    with payments.watching() as process:
        wait_for(lambda: payments.rows_committed() == 10, process, "the first batch")
        payments.send(10)
        assert payments.run().returncode in (0, 4)
        assert payments.run("payments").returncode in (0, 4)
        wait_for(lambda: payments.rows_committed() == 20, process, "the second batch")
    payments.has_every_message_once(spark)


@pytest.mark.long
def test_a_broker_that_is_killed_in_a_batch_and_comes_back_loses_nothing(tmp_path, spark):
    broker = KafkaBroker(tmp_path / "kafka")
    broker.start()
    try:
        payments = Payments(tmp_path / "project", Kafka(broker.address), most=100_000)
        payments.send(10)
        with payments.watching() as process:
            wait_for(lambda: payments.rows_committed() == 10, process, "the first batch")
            payments.send(20_000)
            wait_for(lambda: payments.begun() > 1, process, "the next batch")
            broker.kill()
            broker.start()
            payments.send(10)
            wait_for(lambda: payments.rows_committed() == payments.sent, process, "all messages")
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
        payments.has_every_message_once(spark)
    finally:
        broker.stop()
