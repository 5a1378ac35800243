"""Open a Spark session with Delta: the active session unchanged if there is one, otherwise a new one."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelake.errors import SparkUnavailable
from oncelake.spark.class_archive import archive_options
from oncelake.spark.connect import REMOTE, activated, clone, close, connect, forget, is_connect
from oncelake.spark.jars import cache_folder, delta_jars, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEZONE = "spark.sql.session.timeZone"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta recognises its own commit when the reply was lost; the marker would detect it anyway.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    _TIMEZONE: "UTC",
}
# Settings that put a marker (`txn`) and facts into every commit of a session.
_TXN_KEYS = tuple(
    f"spark.databricks.delta.{key}" for key in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")
)
# Settings to which the user's value is appended with this separator, instead of replacing ours.
_APPENDED = {
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}
# Where Spark's start scripts look for more jars. They come last, so that the class archive of the others stays valid.
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
# Spark's start script runs a small JVM first, which only puts the command line of the real one together.
_LAUNCHER = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# Set for a Python program that spark-submit started: its JVM, master and jars are there already.
SUBMITTED = "PYSPARK_GATEWAY_PORT"


def open_session(settings: Mapping[str, str], jars: Sequence[str] = ()) -> SparkSession:
    """Return the active session unchanged, or a new one with the project's settings, and with more jars than Delta's."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if REMOTE in settings:
        return connect(settings[REMOTE])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java()
    builder = SparkSession.builder.appName("oncelake")
    local = is_local_master(settings)
    settings = settings if local or not jars else _merge({"spark.jars": ",".join(jars)}, settings)
    for key, value in _merge(_defaults(settings), settings).items():
        builder = builder.config(key, value)
    launcher = {name: os.environ.get(name, options) for name, options in _LAUNCHER.items()}
    with (
        environment(launcher | (class_path_after(jars) if local else {})),
        _spark_log() as log,
        _keep_interrupt_handler(),
    ):
        try:
            session = builder.getOrCreate()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}; Spark's log: {log}"
            raise SparkUnavailable(problem=problem, next="oncelake run") from error
    import delta.tables  # noqa: F401  the import registers Delta's conflict classes in Python

    return session


def discard_session(session: SparkSession | None) -> None:
    """Forget a session whose JVM or server is dead, so that the next one starts a new JVM, or connects again."""
    if session is not None and is_connect(session):
        forget(session)
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # noqa: SLF001  pyspark offers no public way to drop a dead gateway
    for owner, name in (
        (SparkContext, "_active_spark_context"),
        (SparkContext, "_gateway"),
        (SparkContext, "_jvm"),
        (SparkSession, "_instantiatedSession"),
        (SparkSession, "_activeSession"),
    ):
        if hasattr(owner, name):
            setattr(owner, name, None)
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()


def log_folder() -> Path:
    """Return where the logs of Spark's JVMs are."""
    return cache_folder() / "logs"


def class_path_after(jars: Sequence[str]) -> dict[str, str]:
    """Return the environment of a JVM that has these jars at the end of its class path."""
    more = os.pathsep.join([*filter(None, [os.environ.get(_CLASS_PATH)]), *jars])
    return {_CLASS_PATH: more} if more else {}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a process that is started inside the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def session_defaults() -> dict[str, str]:
    """Return the settings of a local oncelake session, for programs that start Spark themselves."""
    return {**_DELTA, **_local_defaults()}


def cancel(session: SparkSession) -> None:
    """Cancel the session's running jobs, as far as possible."""
    with suppress(Exception):
        session.interruptAll()


@contextmanager
def attempt_session(session: SparkSession, zone: str | None) -> Iterator[SparkSession]:
    """Yield the session of one attempt: with the time zone of its grid, and under Connect always a clone, closed at the end.

    Under Connect a merge takes its marker from the settings of the session that has the rows, so no two attempts share one.
    """
    own = is_connect(session) or (zone is not None and session.conf.get(_TIMEZONE) != zone)
    if not own:
        yield session
        return
    with own_session(session) as cloned:
        if zone is not None:
            cloned.conf.set(_TIMEZONE, zone)
        yield cloned


@contextmanager
def own_session(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a clone of a session, closed at the end where that is needed."""
    cloned = clone_session(session)
    if not is_connect(cloned):
        yield cloned
        return
    try:
        with activated(cloned):
            yield cloned
    finally:
        close(cloned)


@contextmanager
def with_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session inside the block, and put back what was there, however it ends."""
    before = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, previous in before.items():
            if previous is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, previous)


def has_leaked_txn(session: SparkSession) -> bool:
    """Return whether the session's settings contain a marker (`txnAppId`) that user code left there."""
    return session.conf.get(_TXN_KEYS[0], None) is not None


def clone_session(session: SparkSession) -> SparkSession:
    """Clone a session with its settings and current database; the given one stays unchanged.

    A leaked marker in the settings is not copied: Delta would silently skip writes as already committed.
    """
    if hasattr(session, "cloneSession"):
        cloned: SparkSession = clone(session) if is_connect(session) else session.cloneSession()
        for key in _TXN_KEYS:
            cloned.conf.unset(key)
        return cloned
    from pyspark.errors import AnalysisException

    fresh = session.newSession()
    base = dict(fresh.conf.getAll)
    for key, value in dict(session.conf.getAll).items():
        if base.get(key) != value and key not in _TXN_KEYS:
            # The session of a micro-batch lists settings of the application, which no session may change.
            with suppress(AnalysisException):
                fresh.conf.set(key, value)
    fresh.catalog.setCurrentDatabase(session.catalog.currentDatabase())
    return fresh


def _defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Return our settings for the master that a session will run on."""
    if SUBMITTED in os.environ:
        return _merge(_DELTA, _submitted())
    place = _local_defaults() if is_local_master(settings) else _cluster_defaults(settings)
    return {**_DELTA, **place, "spark.master": _master(settings)}


def is_local_master(settings: Mapping[str, str]) -> bool:
    """Return whether a session with these settings runs in one process."""
    return _master(settings).startswith("local")


def _master(settings: Mapping[str, str]) -> str:
    return settings.get("spark.master", os.environ.get("MASTER", "local[*]"))


def _merge(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return both settings: theirs win, except where both count."""
    both = {key: separator for key, separator in _APPENDED.items() if key in ours and key in theirs}
    joined = {key: f"{ours[key]}{separator}{theirs[key]}" for key, separator in both.items()}
    return {**ours, **theirs, **joined}


def _submitted() -> dict[str, str]:
    """Return what the command line of spark-submit says of settings that we have values for."""
    from pyspark import SparkConf

    given = dict(SparkConf().getAll())
    return {key: given[key] for key in _DELTA if key in given}


def _cluster_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a cluster: Delta's jars travel with the application, unless the user's own bring them."""
    theirs = f"{settings.get('spark.jars', '')} {settings.get('spark.jars.packages', '')}"
    jars = {} if "delta-spark" in theirs else {"spark.jars": ",".join(delta_jars())}
    return {**jars, "spark.ui.showConsoleProgress": "false"}


def _local_defaults() -> dict[str, str]:
    """Return settings for one machine and small data; Spark's defaults, made for clusters, are slow there."""
    cores = str(os.cpu_count() or 2)
    return {
        "spark.driver.extraClassPath": os.pathsep.join(delta_jars()),
        "spark.driver.extraJavaOptions": " ".join([*_gc_options(), *archive_options()]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(cache_folder() / "warehouse"),
    }


def _gc_options() -> list[str]:
    return ["-XX:+UseSerialGC"] if (os.cpu_count() or 2) <= 4 else []


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the process's Ctrl-C handler: pyspark's would call the JVM in the middle of another call to it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def _spark_log() -> Iterator[Path]:
    """Redirect the JVM's output to a log file, because standard output is for JSON documents.

    The JVM inherits the process's streams when it starts, and pyspark offers no other way to choose them.
    """
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"spark-{os.getpid()}-", suffix=".log", dir=folder)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {stream: os.dup(stream) for stream in (1, 2)}
    for stream in saved:
        os.dup2(handle, stream)
    try:
        yield Path(name)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, original in saved.items():
            os.dup2(original, stream)
            os.close(original)
        os.close(handle)
