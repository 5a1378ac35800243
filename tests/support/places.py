"""Where a project can run: on this machine, on a standalone cluster, on a Spark Connect server. Started here, stopped here."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from oncelake.spark.jars import spark_home

PLACE = os.environ.get("ONCELAKE_TEST_PLACE", "local")
# Small data on two cores: Spark's own numbers are for machines of another size.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class Cluster:
    """A standalone cluster of one master and some workers, each a process that can be killed."""

    folder: Path
    port: int = field(default_factory=free_port)
    ui: int = field(default_factory=free_port)
    processes: list[subprocess.Popen] = field(default_factory=list)

    @property
    def master(self):
        return f"spark://127.0.0.1:{self.port}"

    @property
    def settings(self):
        """What a profile says to run there."""
        return {"spark.master": self.master, "spark.executor.memory": "768m", "spark.cores.max": "2", **SMALL}

    def start(self, workers=2):
        self._run("Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.ui))
        for _ in range(workers):
            self.add_worker()
        self.wait_for(workers)

    def add_worker(self):
        folder = self.folder / f"worker-{len(self.processes)}"
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        return self._run("Worker", *options, "--work-dir", str(folder), self.master)

    def wait_for(self, workers, seconds=60):
        deadline = time.monotonic() + seconds
        while self._alive() != workers:
            assert time.monotonic() < deadline, f"{self._alive()} of {workers} workers after {seconds} s"
            time.sleep(0.2)

    def executors(self):
        """The processes of the executors, by their place under the workers."""
        found = subprocess.run(
            ["pgrep", "-f", f"CoarseGrainedExecutorBackend.*{self.folder.name}"], capture_output=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]

    def stop(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def _alive(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/json/", timeout=2) as answer:
                return json.load(answer)["aliveworkers"]
        except OSError:
            return -1

    def _run(self, kind, *options):
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        home = spark_home()
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        log = (self.folder / f"{kind}-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen([str(home / "bin" / "spark-class"), main, *options], stdout=log, stderr=log, env=env)
        self.processes.append(process)
        return process


@dataclass
class Server:
    """A Spark Connect server, which can be killed and started again."""

    stack: ExitStack = field(default_factory=ExitStack)

    def start(self):
        from oncelake.spark.server import connect_server

        self.address, self.process = self.stack.enter_context(connect_server())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.stack.close()

    @property
    def settings(self):
        """What a profile says to run there."""
        return {"spark.remote": self.address}


def started(place, folder):
    """Start what a place needs."""
    made = Cluster(Path(folder)) if place == "cluster" else Server()
    made.start()
    return made
