"""A Kafka broker on this machine, for development and tests: one process, which is its own controller (KRaft)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oncelake.errors import KafkaNotStarted, SparkUnavailable
from oncelake.spark.jars import broker_jars, cache_folder, java
from oncelake.spark.kafka_coordinates import BROKER
from oncelake.spark.processes import (
    die_with_parent,
    free_port,
    is_free,
    lasting_port,
    new_log,
    stop_process,
    wait_until_listening,
)

HOST = "127.0.0.1"
_TIMEOUT = 60.0
_CLUSTER = "b25jZWxha2UtZGV2LWthZg"  # any 16 bytes in URL-safe base64
_JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# One broker has no replicas. After a kill, a broker waits until the session of its former self is over: 12 s by default.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.network.threads=2
num.io.threads=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=250
"""


class KafkaBroker:
    """A broker that can be killed and started again, with the same data and on the same port."""

    def __init__(self, folder: str | Path, port: int = 0) -> None:
        self.folder = Path(folder).resolve()
        self.port = port or lasting_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The `bootstrap.servers` of a client."""
        return f"{HOST}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        assert self._process is not None, "the broker was not started"
        return self._process

    def start(self, *jvm_options: str) -> None:
        """Start the broker and wait until it answers; raise KafkaNotStarted. Start it from a thread that lives as long as it."""
        if not is_free(self.port):
            raise KafkaNotStarted(problem=f"port {self.port} is taken", next="oncelake dev kafka")
        try:
            command = [java(), *_JVM, *(jvm_options or _archive_options()), "-cp", _class_path()]
            command += ["kafka.Kafka", str(self._write_properties())]
        except SparkUnavailable as error:
            raise KafkaNotStarted(problem=error.facts["problem"], next=error.next) from error
        except OSError as error:
            raise KafkaNotStarted(problem=str(error), next="choose a folder that can be written") from error
        log = new_log("kafka")
        with log.open("wb") as output:
            before_exec = die_with_parent()
            self._process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=before_exec)  # noqa: PLW1509  one system call
        try:
            listens = wait_until_listening(self._process, self.port, _TIMEOUT)
        except BaseException:
            self.kill()
            raise
        if not listens:
            self.kill()
            problem = f"the broker did not start on port {self.port}; its log: {log}"
            raise KafkaNotStarted(problem=problem, next="look into the log, or choose another folder")

    def kill(self) -> None:
        """End the broker as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Shut the broker down."""
        if self._process is not None:
            stop_process(self._process)

    def _write_properties(self) -> Path:
        data = _format_data(self.folder / "data")
        properties = self.folder / "server.properties"
        properties.write_text(_PROPERTIES.format(host=HOST, port=self.port, controller=free_port(), data=data))
        return properties


@contextmanager
def kafka_broker(folder: str | Path | None = None, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a broker on loopback, yield its address and its process once it answers, and stop it at the end.

    Its data stay in the folder, if one is given.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as scratch:
            with kafka_broker(scratch, port) as started:
                yield started
            return
    broker = KafkaBroker(folder, port)
    try:
        broker.start()
        yield broker.address, broker.process
    finally:
        broker.stop()


def create_broker_archive() -> Path:
    """Create the class archive of the broker by starting and stopping one; keep an existing archive."""
    archive = _archive_path()
    if archive.is_file():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        created = Path(scratch) / archive.name
        broker = KafkaBroker(scratch)
        try:
            broker.start(f"-XX:ArchiveClassesAtExit={created}", "-Xlog:disable")
        finally:
            broker.stop()
        created.replace(archive)
    return archive


def _archive_options() -> list[str]:
    archive = _archive_path()
    return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def _archive_path() -> Path:
    program = Path(java()).resolve()
    parts = [str(program), str(program.stat().st_mtime_ns), _class_path()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder() / f"kafka-classes-{key}.jsa"


def _class_path() -> str:
    return os.pathsep.join(broker_jars())


def _format_data(data: Path) -> Path:
    """Give a broker its data folder: as it is, if it is formatted, else as a copy of one that was formatted once."""
    if not (data / "meta.properties").is_file():
        data.mkdir(parents=True, exist_ok=True)
        template = cache_folder() / f"kafka-broker-{BROKER}-formatted"
        if not (template / "meta.properties").is_file():
            _create_template(template)
        shutil.copytree(template, data, dirs_exist_ok=True)
    return data


def _create_template(template: Path) -> None:
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as scratch:
        properties, data = Path(scratch) / "server.properties", Path(scratch) / "data"
        properties.write_text(_PROPERTIES.format(host=HOST, port=1, controller=2, data=data))
        command = [java(), *_JVM, "-cp", _class_path(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER]
        done = subprocess.run([*command, "-c", str(properties)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            problem = f"could not format a data folder: {(done.stdout + done.stderr).strip()[-1000:]}"
            raise SparkUnavailable(problem=problem, next="oncelake dev kafka")
        with suppress(OSError):  # another process was quicker
            data.rename(template)
