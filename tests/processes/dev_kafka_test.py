"""`oncelake dev kafka`: a broker that is there when its address is printed, and gone when the command is."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelake.errors import KafkaNotStarted
from oncelake.spark.kafka_broker import KafkaBroker
from oncelake.spark.processes import is_free, lasting_port
from support.kafka import Kafka
from support.processes import ONCELAKE


@contextmanager
def command(*options):
    """Start the command; yield its process, and the line that it prints when the broker is ready."""
    with subprocess.Popen([ONCELAKE, "dev", "kafka", *options], stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started, started.stdout.readline().removesuffix("\n")
        finally:
            started.kill()


def brokers_in(folder):
    """Return the processes whose command line names a folder, the command itself left out."""
    lines = {path.parent.name: _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [int(pid) for pid, line in lines.items() if b"kafka.Kafka" in line and os.fsencode(folder) in line]


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def values(kafka, topic):
    return [message.value() for message in kafka.messages(topic)]


def test_the_command_prints_the_address_of_a_broker_that_ends_with_it(tmp_path):
    port = str(lasting_port())
    with command("--folder", str(tmp_path), "--port", port) as (started, address):
        assert address == f"127.0.0.1:{port}"
        kafka = Kafka(address)
        topic = kafka.new_topic()
        kafka.produce(topic, "one", "two")
        assert len(brokers_in(tmp_path)) == 1
        taken = subprocess.run([ONCELAKE, "dev", "kafka", "--port", port, "--json"], capture_output=True, check=False)
        assert (taken.returncode, json.loads(taken.stdout)["error"]["code"]) == (1, "kafka_not_started")
        started.send_signal(signal.SIGTERM)
        assert (started.wait(60), started.stdout.read()) == (0, "")
    assert brokers_in(tmp_path) == []
    with command("--folder", str(tmp_path), "--json") as (started, line):
        assert values(Kafka(json.loads(line)["address"]), topic) == [b"one", b"two"]
        started.kill()
        started.wait()
        end = time.monotonic() + 60
        while brokers_in(tmp_path):
            assert time.monotonic() < end, "the broker outlives a command that was killed"
            time.sleep(0.05)


def test_a_broker_that_was_killed_comes_back_with_what_it_acknowledged(tmp_path):
    broker = KafkaBroker(tmp_path)
    broker.start()
    try:
        kafka, address = Kafka(broker.address), broker.address
        topic = kafka.new_topic()
        kafka.produce(topic, *map(str, range(1000)))
        broker.kill()
        assert is_free(broker.port)
        broker.start()
        assert broker.address == address
        kafka.produce_committed(topic, "after")
        assert values(kafka, topic) == [*(str(number).encode() for number in range(1000)), b"after"]
    finally:
        broker.stop()


def test_a_broker_that_does_not_start_names_its_log(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=7\n")
    with pytest.raises(KafkaNotStarted) as raised:
        KafkaBroker(tmp_path).start()
    log = Path(raised.value.facts["problem"].rpartition(" ")[2])
    assert "Stored node id 7" in log.read_text()
