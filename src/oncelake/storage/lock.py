"""One writer at a time per table on local disk, where Delta's own log store lets two processes both win a commit.

The lock is the kernel's, so it is free as soon as its holder is dead. One thing it cannot see: a killed Python leaves
its JVM alive for a moment, and that JVM may still commit. So the holder notes its JVMs in the lock file, and whoever
comes next waits until they are gone too.
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
from typing import IO, Any
from urllib.parse import quote, unquote

from oncelake.errors import LockUnavailable
from oncelake.storage.lease import acquire, lease_files, leases, renewing
from oncelake.storage.paths import INTERNAL, is_local, local_path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5


class Busy(Exception):
    """The lock was not to be had in time."""

    def __init__(self, holder: str) -> None:
        """Say who holds it."""
        super().__init__(holder)
        self.holder = holder


@contextmanager
def table_lock(
    lake: str, table: str, lock_timeout: float, given_up: Callable[[], bool], doing: str = ""
) -> Iterator[None]:
    """Hold a table's lock, waiting for it with patience; Busy when that ran out or `given_up` says it is pointless.

    Elsewhere than on local disk it is a lease, which runs out by itself.
    """
    if not is_local(lake):
        with _leased(lake, table, lock_timeout, given_up, {**_ourselves(), "doing": doing}):
            yield
        return
    with _lock_file(lake, table) as file:
        _acquire(file, lock_timeout, given_up)
        _note(file, {**_ourselves(), "doing": doing}, table)
        yield
        # Only after an orderly end: after an interrupt or a kill our JVM may still be committing.
        file.seek(0)
        file.truncate()


def _lock_file(lake: str, table: str) -> IO[str]:
    folder = local_path(lake) / INTERNAL / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"{quote(table, safe='')}.lock").open("a+")
    except OSError as error:
        raise LockUnavailable(target=table, problem=str(error), folder=str(folder)) from error


@contextmanager
def _leased(
    lake: str, table: str, lock_timeout: float, given_up: Callable[[], bool], holder: dict[str, Any]
) -> Iterator[None]:
    number: int | None = 0
    found: dict[str, Any] = {}
    turns = None
    try:
        turns = lease_files(lake, table)
        if turns is not None:
            number, found = acquire(turns, holder, lock_timeout, given_up)
    except Exception as error:  # noqa: BLE001  whatever the store says: a lease only spares work
        warnings.warn(f"{lake}: no lease on {table}, others may do the same in vain: {error}", stacklevel=2)
    if number is None:
        raise Busy(_shown(found))
    with renewing(turns, number, holder) if turns and number else nullcontext():
        yield


def holders(lake: str) -> dict[str, str]:
    """Who is writing which table of a lake at this moment, since when, and what."""
    if not is_local(lake):
        with suppress(Exception):  # a store that does not answer will be told by whoever reads its tables
            return {table: _shown(holder) for table, holder in leases(lake).items()}
        return {}
    found = {}
    for path in sorted((local_path(lake) / INTERNAL / "locks").glob("*.lock")):
        with path.open("r+") as file:
            holder = _read(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found[unquote(path.stem)] = _shown(holder)
            else:
                # Whoever died let go of the lock, but a JVM of theirs may still be committing.
                if orphans := _orphans(holder):
                    found[unquote(path.stem)] = f"{_shown(holder)}; it died, its JVM {orphans[0]} is still there"
    return found


def _acquire(file: Any, lock_timeout: float, given_up: Callable[[], bool]) -> None:
    deadline = time.monotonic() + lock_timeout
    pause = _FIRST_PAUSE
    while True:
        holder = _read(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        else:
            free = not _orphans(_read(file))
        if free:
            return
        if time.monotonic() >= deadline or given_up():
            raise Busy(_shown(holder))
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _note(file: IO[str], holder: dict[str, Any], table: str) -> None:
    try:
        # Past the buffer, which would be tried again, and fail again, when the file is closed.
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), json.dumps(holder).encode(), 0)
    except OSError as error:
        raise LockUnavailable(target=table, problem=str(error), folder=str(Path(file.name).parent)) from error


def _ourselves() -> dict[str, Any]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    us = os.getpid()
    return {"pid": us, "started": started(us), "host": socket.gethostname(), "since": since, "jvms": _jvms()}


def _read(file: Any) -> dict[str, Any]:
    file.seek(0)
    try:
        found = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(holder: dict[str, Any]) -> str:
    if "pid" not in holder:
        return "it did not say who"
    doing = f", at {holder['doing']}" if holder.get("doing") else ""
    return f"process {holder['pid']} on {holder['host']} since {holder['since']}{doing}"


def _jvms() -> list[list[int]]:
    """The JVMs this process started, each with its start time: process numbers are used again."""
    found: list[list[int]] = []
    for children in Path("/proc/self/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            continue
        found += [[int(pid), since] for pid in pids if (since := started(int(pid), "java")) is not None]
    return found


def _orphans(holder: dict[str, Any]) -> list[int]:
    """The JVMs of a former holder that are still alive though it is not."""
    if holder.get("host") != socket.gethostname() or started(holder["pid"]) == holder["started"]:
        return []
    return [pid for pid, since in holder.get("jvms", []) if started(pid, "java") == since]


def started(pid: int, command: str | None = None) -> int | None:
    """When a running process (of that command) was started, in ticks; None if there is no such process."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return int(fields[19]) if command in (None, name) and fields[0] != "Z" else None
