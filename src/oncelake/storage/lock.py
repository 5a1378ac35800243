"""A lock per table on local disk: one writer at a time, because Delta's local log store lets two processes win one commit.

It is a kernel lock (flock), so it is released when its holder dies. The kernel does not know one thing: a killed Python
process leaves its JVM running for a moment, and that JVM may still commit. So the holder writes its JVMs to the lock file,
and the next runner waits until those have ended too. A Spark Connect server goes on: the next runner interrupts the session
that the lock file names, and no write relies on the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

from oncelake.errors import LockUnavailable
from oncelake.storage.lease import acquire, lease_files, leases, renewing
from oncelake.storage.object_store import store_problem
from oncelake.storage.paths import INTERNAL, is_local, local_path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


class Holder(NamedTuple):
    """What the holder of a lock does, the Connect session that commits for it, and how to stop that of a dead holder."""

    doing: str = ""
    session: str | None = None
    stop_session: Callable[[str], bool] = lambda _: False


class Busy(Exception):
    """The lock was not acquired in time."""

    def __init__(self, holder: str) -> None:
        """Store a description of the holder."""
        super().__init__(holder)
        self.holder = holder


@contextmanager
def table_lock(
    lake: str, table: str, lock_timeout: float, give_up: Callable[[], bool], holder: Holder | None = None
) -> Iterator[Callable[[], bool]]:
    """Hold a table's lock; raise Busy after the timeout, or when `give_up` says that waiting is pointless.

    On an object store it is a lease, which expires by itself. Yield a function that returns False once another runner has a
    newer lease. Without a lease there is nothing to lose, and it returns True.
    """
    if not is_local(lake):
        with _hold_lease(lake, table, lock_timeout, give_up, _this_process(holder or Holder())) as is_ours:
            yield is_ours
        return
    with _open_lock_file(lake, table) as file:
        _acquire(file, lock_timeout, give_up)
        _stop_former_session(file, holder or Holder(), table)
        _write_holder(file, _this_process(holder or Holder()), table)
        yield lambda: True
        # Not after an error, an interrupt or a kill: then our JVM may still be committing.
        file.seek(0)
        file.truncate()


def _open_lock_file(lake: str, table: str) -> IO[str]:
    folder = local_path(lake) / INTERNAL / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"{quote(table, safe='')}.lock").open("a+")
    except OSError as error:
        raise LockUnavailable(target=table, problem=str(error), folder=str(folder)) from error


@contextmanager
def _hold_lease(
    lake: str, table: str, lock_timeout: float, give_up: Callable[[], bool], holder: dict[str, Any]
) -> Iterator[Callable[[], bool]]:
    number: int | None = 0
    other: dict[str, Any] = {}
    files = None
    try:
        files = lease_files(lake, table)
        if files is not None:
            number, other = acquire(files, holder, lock_timeout, give_up)
    except Exception as error:  # noqa: BLE001  any error of the store: a lease only saves work
        problem = f"{lake}: could not acquire a lease on {table} ({store_problem(error)})"
        warnings.warn(f"{problem}; another runner may repeat this work, the result stays correct", stacklevel=2)
    if number is None:
        raise Busy(_describe(other))
    with renewing(files, number, holder) if files and number else nullcontext(lambda: True) as is_ours:
        yield is_ours


def holders(lake: str) -> dict[str, str]:
    """Return a description of the current writer of each locked table: the process, since when, and its work."""
    if not is_local(lake):
        with suppress(Exception):  # if the store does not answer, reading its tables reports that
            return {table: _describe(holder) for table, holder in leases(lake).items()}
        return {}
    writers = {}
    for path in sorted((local_path(lake) / INTERNAL / "locks").glob("*.lock")):
        with path.open("r+") as file:
            holder = _read_holder(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                writers[unquote(path.stem)] = _describe(holder)
            else:
                # A holder that died released the lock, but its JVM may still be committing.
                if orphans := _orphans(holder):
                    writers[unquote(path.stem)] = f"{_describe(holder)}; it died, its JVM {orphans[0]} is still running"
    return writers


def held_by_a_living_process(lake: str, table: str) -> bool:
    """Return whether the holder of a local lock is alive: one that died is waited for, as long as its JVM lives.

    Of a lease nobody can tell: it is waited for until it expires.
    """
    if not is_local(lake):
        return False
    with _open_lock_file(lake, table) as file:
        holder = _read_holder(file)
    return (
        "pid" in holder
        and holder.get("host") == socket.gethostname()
        and process_start(holder["pid"]) == holder["started"]
    )


def _acquire(file: Any, lock_timeout: float, give_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + lock_timeout
    pause = _FIRST_PAUSE
    while True:
        holder = _read_holder(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        else:
            free = not _orphans(_read_holder(file))
        if free:
            return
        if time.monotonic() >= deadline or give_up():
            raise Busy(_describe(holder))
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _write_holder(file: IO[str], holder: dict[str, Any], table: str) -> None:
    try:
        # Unbuffered: a buffered write that fails would be retried, and fail again, when the file is closed.
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), json.dumps(holder).encode(), 0)
    except OSError as error:
        raise LockUnavailable(target=table, problem=str(error), folder=str(Path(file.name).parent)) from error


def _stop_former_session(file: IO[str], holder: Holder, table: str) -> None:
    """Interrupt the Connect session of a holder that was killed: its server may still be committing."""
    session = _read_holder(file).get("session")
    if session and not holder.stop_session(session):
        address = session.partition("/;")[0]
        problem = f"a killed client of {address} was writing {table}, and the server does not say whether it still is"
        warnings.warn(f"{problem}; its work is written once all the same", stacklevel=4)


def _this_process(holder: Holder) -> dict[str, Any]:
    pid, jvms = os.getpid(), _jvms()
    if not jvms and not holder.session and _SUBMITTED in os.environ:
        problem = "the lock does not see the JVM of this session: if this process is killed, its JVM may still commit"
        warnings.warn(f"{problem}; end it before the next run", stacklevel=4)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    process = {"pid": pid, "started": process_start(pid), "host": socket.gethostname(), "since": since, "jvms": jvms}
    return {**process, "doing": holder.doing, **({"session": holder.session} if holder.session else {})}


def _read_holder(file: Any) -> dict[str, Any]:
    """Return the holder in a lock file; empty if there is none, or it is not completely written."""
    file.seek(0)
    try:
        holder = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    if "pid" not in holder:
        return "unknown process"
    doing = f", running {holder['doing']}" if holder.get("doing") else ""
    return f"process {holder['pid']} on {holder['host']} since {holder['since']}{doing}"


def _jvms() -> list[list[int]]:
    """Return the JVMs that may commit for this process, each with its start time, because process ids are reused.

    Those that it started, or the one that started it: spark-submit's JVM is the parent of its Python program.
    """
    pids = [os.getppid()]
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, children.read_text().split())
    return [[pid, start] for pid in pids if (start := process_start(pid, "java")) is not None]


def _orphans(holder: dict[str, Any]) -> list[int]:
    """Return the JVMs of a dead holder that are still running."""
    if holder.get("host") != socket.gethostname() or process_start(holder["pid"]) == holder["started"]:
        return []
    return [pid for pid, start in holder.get("jvms", []) if process_start(pid, "java") == start]


def process_start(pid: int, command: str | None = None) -> int | None:
    """Return the start time of a running process (of that command) in clock ticks; None if there is no such process."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return int(fields[19]) if command in (None, name) and fields[0] != "Z" else None
