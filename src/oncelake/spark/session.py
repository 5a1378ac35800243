"""A Spark session fit for Delta: our own where there is none, the user's, untouched, where there is."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelake.errors import SparkUnavailable
from oncelake.spark.class_archive import archive_options
from oncelake.spark.jars import cache_folder, delta_jars, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A commit whose answer was lost is recognised by Delta itself; the marker would catch it anyway.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_MARKING = tuple(
    f"spark.databricks.delta.{key}" for key in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")
)
_JOINED = {"spark.driver.extraClassPath": os.pathsep, "spark.driver.extraJavaOptions": " "}


def open_session(settings: Mapping[str, str]) -> SparkSession:
    """The active session as it is, or a new one with the project's settings."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if "spark.remote" in settings:
        return SparkSession.builder.remote(settings["spark.remote"]).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = settings.get("spark.master", os.environ.get("MASTER", "local[*]"))
    java()
    local = _local() if master.startswith("local") else {}
    wanted = {**_DELTA, **local, **settings, "spark.master": master}
    for key, separator in _JOINED.items():
        # A user's own class path or JVM options come beside ours, not in their place.
        if key in local and key in settings:
            wanted[key] = f"{local[key]}{separator}{settings[key]}"
    builder = SparkSession.builder.appName("oncelake")
    for key, value in wanted.items():
        builder = builder.config(key, value)
    with _spark_log() as log, _own_interrupts():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}; Spark's own log: {log}"
            raise SparkUnavailable(problem=problem, next="oncelake run") from error
    import delta.tables  # noqa: F401  its import makes Delta's conflicts known to Python by class

    return session


def session_defaults() -> dict[str, str]:
    """The settings of a session of ours on this machine, for whoever starts Spark by other means."""
    return {**_DELTA, **_local()}


def cancel(session: SparkSession) -> None:
    """Stop what the session is doing, as far as it still can be stopped."""
    with suppress(Exception):
        session.interruptAll()


def in_zone(session: SparkSession, zone: str) -> SparkSession:
    """A session whose wall clock is the given zone's: the same one, or a private one that leaves it as it is."""
    if session.conf.get("spark.sql.session.timeZone") == zone:
        return session
    own = private(session)
    own.conf.set("spark.sql.session.timeZone", zone)
    return own


def has_leaked_txn(session: SparkSession) -> bool:
    """Whether somebody left a marker in the session's settings."""
    return session.conf.get(_MARKING[0], None) is not None


def private(session: SparkSession) -> SparkSession:
    """A session of its own, with the settings and the database of the given one, which stays as it is.

    A marker that somebody left in the settings is not taken over: it would make writes vanish.
    """
    if hasattr(session, "cloneSession"):
        cloned: SparkSession = session.cloneSession()
        for key in _MARKING:
            cloned.conf.unset(key)
        return cloned
    own = session.newSession()
    base = dict(own.conf.getAll)
    for key, value in dict(session.conf.getAll).items():
        if base.get(key) != value and key not in _MARKING:
            own.conf.set(key, value)
    own.catalog.setCurrentDatabase(session.catalog.currentDatabase())
    return own


def _local() -> dict[str, str]:
    """What Spark's defaults, made for clusters, cost on one machine with small data."""
    cores = str(os.cpu_count() or 2)
    return {
        "spark.driver.extraClassPath": os.pathsep.join(delta_jars()),
        "spark.driver.extraJavaOptions": " ".join([*_collector(), *archive_options()]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(cache_folder() / "warehouse"),
    }


def _collector() -> list[str]:
    return ["-XX:+UseSerialGC"] if (os.cpu_count() or 2) <= 4 else []


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the process's own way with Ctrl-C: pyspark's would call the JVM in the middle of another call to it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def _spark_log() -> Iterator[Path]:
    """Give the JVM a file for what it says while it starts and runs; standard output is for documents.

    The JVM inherits the process's streams at its start, and pyspark offers no other way to choose them.
    """
    folder = cache_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"spark-{os.getpid()}-", suffix=".log", dir=folder)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    for stream in kept:
        os.dup2(handle, stream)
    try:
        yield Path(name)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, terminal in kept.items():
            os.dup2(terminal, stream)
            os.close(terminal)
        os.close(handle)
