"""Where a project can run: on this machine, on a standalone cluster, on a Spark Connect server, on S3. Started here, stopped here."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from oncelake.spark.jars import spark_home
from oncelake.spark.processes import free_port

PLACE = os.environ.get("ONCELAKE_TEST_PLACE", "local")
# Small data on two cores: Spark's own numbers are for machines of another size.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


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

    def wait_for(self, workers, seconds=180):
        deadline = time.monotonic() + seconds
        while self._alive() != workers:
            assert time.monotonic() < deadline, f"{self._alive()} of {workers} workers after {seconds} s"
            time.sleep(0.2)

    def executors(self):
        """The processes of the executors: children of the workers."""
        workers = ",".join(str(process.pid) for process in self.processes[1:])
        found = subprocess.run(["pgrep", "-P", workers], capture_output=True, check=False)
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


@dataclass
class Bucket:
    """A bucket of an S3 on loopback. What is needed to reach it is in the environment, as on a machine of a cloud."""

    stack: ExitStack = field(default_factory=ExitStack)

    def start(self):
        from support.s3 import ACCESS_KEY, REGION, SECRET_KEY, new_bucket, proxy, s3_server

        server = self.stack.enter_context(s3_server())
        self.store = self.stack.enter_context(proxy(server))
        os.environ |= {
            "AWS_ENDPOINT_URL": self.store.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        os.environ["ONCELAKE_TEST_BUCKET"] = f"s3a://{new_bucket(server)}"

    def stop(self):
        self.stack.close()

    @property
    def settings(self):
        """Nothing: the lake says where it is."""
        return {}


def started(place, folder):
    """Start what a place needs."""
    made = {"cluster": lambda: Cluster(Path(folder)), "connect": Server, "s3": Bucket}[place]()
    made.start()
    return made


def lake_of(root):
    """Return the lake of a project's folder: in the folder, or in the bucket."""
    if PLACE != "s3":
        return str(Path(root) / "lake")
    return f"{os.environ['ONCELAKE_TEST_BUCKET']}{Path(root)}/lake"
