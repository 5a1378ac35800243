"""A Spark Connect server on this machine: warm, for development and tests, with Delta and the settings of a local session."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from oncelake.errors import SparkUnavailable
from oncelake.spark.jars import cache_folder, java, spark_home
from oncelake.spark.session import log_folder, session_defaults

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TIMEOUT = 120.0


@contextmanager
def connect_server(
    settings: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server on loopback, yield its address and its process once it answers, and stop it at the end."""
    java()
    port = port or free_port()
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="connect-", suffix=".log", dir=folder, delete=False) as log:
        process = subprocess.Popen(_command(port, settings or {}), stdout=log, stderr=log, env=_environment())
        try:
            _wait(process, port, Path(log.name))
            yield f"sc://127.0.0.1:{port}", process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(port: int, settings: Mapping[str, str]) -> list[str]:
    server = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    master = {"spark.master": "local[*]"}
    merged = {**session_defaults(), **server, **master, **settings}
    options = [part for key, value in merged.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark_home() / "bin" / "spark-submit"), "--class", _MAIN, *options, "spark-internal"]


def _environment() -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    problem = f"the Spark Connect server did not start; its log: {log}"
    raise SparkUnavailable(problem=problem, next=f"look into the log, and remove what is broken in {cache_folder()}")


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
