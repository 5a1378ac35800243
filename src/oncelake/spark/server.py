"""A Spark Connect server on this machine: warm, for development and tests, with Delta and the settings of a local session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from oncelake.errors import SparkUnavailable
from oncelake.spark.jars import cache_folder, cached_kafka_jars, java, spark_home
from oncelake.spark.processes import free_port, is_free, new_log, stop_process, wait_until_listening
from oncelake.spark.session import class_path_after, session_defaults

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TIMEOUT = 120.0


@contextmanager
def connect_server(
    settings: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server on loopback, yield its address and its process once it answers, and stop it at the end."""
    java()
    port = port or free_port()
    if not is_free(port):
        raise SparkUnavailable(problem=f"port {port} is taken", next="oncelake dev connect")
    log = new_log("connect")
    with log.open("wb") as output:
        process = subprocess.Popen(_command(port, settings or {}), stdout=output, stderr=output, env=_environment())
    try:
        if not wait_until_listening(process, port, _TIMEOUT):
            problem = f"the Spark Connect server did not start; its log: {log}"
            hint = f"look into the log, and remove what is broken in {cache_folder()}"
            raise SparkUnavailable(problem=problem, next=hint)
        yield f"sc://127.0.0.1:{port}", process
    finally:
        stop_process(process)


def _command(port: int, settings: Mapping[str, str]) -> list[str]:
    server = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    master = {"spark.master": "local[*]"}
    merged = {**session_defaults(), **server, **master, **settings}
    options = [part for key, value in merged.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark_home() / "bin" / "spark-submit"), "--class", _MAIN, *options, "spark-internal"]


def _environment() -> dict[str, str]:
    own = {"SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    return {**os.environ, **own, **class_path_after(cached_kafka_jars())}
