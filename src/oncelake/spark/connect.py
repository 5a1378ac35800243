"""Spark Connect: the session is on a server, the plain client has no JVM, and the server outlives a client that is killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = "spark.remote"
_MODE = "SPARK_CONNECT_MODE_ENABLED"
# A server that does not answer for about 25 seconds is gone. pyspark's client would go on for ten minutes.
_MAX_RETRIES, _MAX_BACKOFF = 8, 5000
_writing: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_guard = threading.Lock()


def is_remote(settings: Mapping[str, str], session: SparkSession | None = None) -> bool:
    """Return whether a project runs on a Spark Connect server: by its session, or what says so before there is one."""
    if session is not None:
        return is_connect(session)
    return REMOTE in settings or "SPARK_REMOTE" in os.environ or _MODE in os.environ


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect. By its class: a classic session raises for what only Connect has."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def describe_session(session: SparkSession) -> str | None:
    """Return the address of a Connect session, with which another client can reach it; None for a classic session."""
    if not is_connect(session):
        return None
    client: Any = session.client
    builder = client._builder  # noqa: SLF001  the client shows its host, but not its port
    return (
        f"sc://{getattr(builder, 'endpoint', client.host)}/;session_id={client._session_id};user_id={client._user_id}"  # noqa: SLF001
    )


def connect(address: str) -> SparkSession:
    """Return a new session on a server. One that does not answer is given up after half a minute."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session = SparkSession.builder.remote(address).getOrCreate()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_MAX_RETRIES, max_backoff=_MAX_BACKOFF)])
    return session


def clone(session: SparkSession) -> SparkSession:
    """Return a clone of a Connect session that waits for its server as long as that one does."""
    cloned: SparkSession = session.cloneSession()  # type: ignore[attr-defined]  # the stub is of classic sessions
    cloned.client.set_retry_policies(session.client.get_retry_policies())
    return cloned


def forget(session: SparkSession) -> None:
    """Forget a session whose server is gone, so that the next one connects again."""
    kind: Any = type(session)
    with suppress(Exception):
        session.client.close()
    if kind._default_session is session:  # noqa: SLF001  `stop` does the same, after it has asked the server
        kind._default_session = None  # noqa: SLF001
    if getattr(kind._active_session, "session", None) is session:  # noqa: SLF001
        kind._active_session.session = None  # noqa: SLF001


def close(session: SparkSession) -> None:
    """Release a Connect session that was cloned, with the rows that it keeps. Left open, it hangs the process at its exit."""
    client: Any = session.client
    with suppress(Exception):  # the server may be gone
        client.release_session()
    with suppress(Exception):
        client.close()


@contextmanager
def activated(session: SparkSession) -> Iterator[None]:
    """Make a Connect session the active one of this thread: pyspark takes what `localCheckpoint` returns for one of that."""
    active = type(session)._active_session  # type: ignore[attr-defined]  # noqa: SLF001  pyspark has no public way
    before = getattr(active, "session", None)
    active.session = session
    try:
        yield
    finally:
        active.session = before


def stop_session(address: str) -> bool:
    """Interrupt whatever a killed client's session still runs, and release it; return whether the server did so."""
    try:
        from pyspark.sql.connect.client import SparkConnectClient
        from pyspark.sql.connect.client.retries import DefaultPolicy

        client = SparkConnectClient(address)
        client.set_retry_policies([DefaultPolicy(max_retries=3)])
        try:
            client.interrupt_all()
            client.release_session()
        finally:
            client.close()
    except Exception:  # noqa: BLE001  no client library here, no server there
        return False
    return True


@contextmanager
def one_write_at_a_time(session: SparkSession) -> Iterator[None]:
    """Serialise our writes in a Connect session: while one merges, its marker is among the settings of the session."""
    if not is_connect(session):
        yield
        return
    with _guard:
        lock = _writing.setdefault(session, threading.RLock())
    with lock:
        yield
