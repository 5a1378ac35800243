"""The lake and its tables: everybody asks the table for its log and its lock, nobody goes around it by path."""

from __future__ import annotations

import hashlib
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from oncelake.delta import writes
from oncelake.delta.conflicts import one_line
from oncelake.delta.log import TableLog, find_log, refresh_log
from oncelake.errors import BadDeclaration, LakeUnreachable, OncelakeError, TableMissing
from oncelake.model.contracts import Stamp, Table
from oncelake.model.names import table_name_problem
from oncelake.spark.connect import stop_session
from oncelake.storage.conditional import last_finding
from oncelake.storage.lock import Holder, table_lock
from oncelake.storage.object_store import PARALLEL
from oncelake.storage.options import is_s3
from oncelake.storage.paths import INTERNAL, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FormerNames = Mapping[str, tuple[str, ...]]


class DeltaTable:
    """One Delta table. Its log is replayed once, and refreshed from the last known version after that."""

    def __init__(
        self, name: str, path: str, lake: str, formerly: FormerNames | None = None, remote: bool = False
    ) -> None:
        """Nothing is read before the log is asked for."""
        self.name, self.path, self._lake, self._formerly, self._remote = name, path, lake, formerly or {}, remote
        self._log: TableLog | None = None
        self._reading = threading.Lock()
        self._holds_lock: Callable[[], bool] = lambda: True

    @property
    def exclusive(self) -> bool:
        """Whether the lock keeps every other writer out from the look at the log to the commit.

        Not on an object store, where it is a lease, and not under Connect, where the server may commit for a killed client.
        """
        return is_local(self._lake) and not self._remote

    def log(self) -> TableLog | None:
        """Return the log as it is now, or None if the table does not exist. Only new commits are read."""
        with self._reading:
            # What cannot be read now is not what was read before.
            known, self._log = self._log, None
            log = refresh_log(known) if known else find_log(self.name, self.path)
            if log is not None and log.formerly != self._formerly:
                log = replace(log, formerly=self._formerly)
            self._log = log
            return self._log

    def last_log(self) -> TableLog | None:
        """Return the log as it was last read, without looking whether it grew."""
        return self._log or self.log()

    def lock(
        self, timeout: float, give_up: Callable[[], bool], doing: str = "", session: str | None = None
    ) -> AbstractContextManager[None]:
        """Hold the table's lock; Busy if that took longer than the timeout, or `give_up` says waiting is pointless."""
        holder = Holder(doing, session, stop_session)
        return self._locked(table_lock(self._lake, self.name, timeout, give_up, holder))

    @contextmanager
    def _locked(self, lock: AbstractContextManager[Callable[[], bool]]) -> Iterator[None]:
        with lock as holds_lock:
            self._holds_lock = holds_lock
            try:
                yield
            finally:
                self._holds_lock = lambda: True

    def lost_lock(self) -> bool:
        """Return whether another runner has the table's lease, because the one that was taken here expired."""
        return not self._holds_lock()

    def mark(self, stamp: Stamp, session: SparkSession) -> None:
        """Commit a stamp without data."""
        writes.mark(session, self.path, stamp)


@dataclass(frozen=True)
class Lake:
    """A lake's folder or URI, and the project root that relative file paths start from.

    In a sandbox everything is written to a lake of its own, and tables that are not written there are read `elsewhere`.
    """

    path: str
    root: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # By table, the former names of the pipelines that write it: their works count under the present names.
    formerly: Mapping[str, FormerNames] = field(default_factory=dict)
    # Whether a Spark Connect server commits.
    remote: bool = False
    # Where the checkpoints of streams are, if they are not in the lake.
    checkpoints: str | None = None
    _tables: dict[str, DeltaTable] = field(default_factory=dict, repr=False, compare=False)

    def table(self, name: str) -> DeltaTable:
        """Return a table: `silver.orders` is `<lake>/silver/orders`. The same object each time, with the log it has read."""
        if name not in self._tables:
            if problem := table_name_problem(name):
                raise BadDeclaration(where=name, problem=problem)
            self._tables[name] = DeltaTable(name, self.path_of(name), self.path, self.formerly.get(name), self.remote)
        return self._tables[name]

    def path_of(self, name: str) -> str:
        """Return where a table lies."""
        return self.elsewhere.get(name) or posixpath.join(self.path, *name.split("."))

    def takes_ranges(self, names: Iterable[str]) -> bool:
        """Return whether several intervals of these tables may be one commit: the locks are exclusive, or ranges are fenced.

        On S3 that is as far as it is known without a session. A run asks its session, and may write interval by interval.
        """
        if all(self.table(name).exclusive for name in names):
            return True
        return is_s3(self.path) and not self.remote and last_finding(self.path).conditional is not False

    def place(self, paths: Mapping[str, str]) -> Lake:
        """Return the lake with the paths of tables that lie elsewhere."""
        return replace(self, elsewhere={**self.elsewhere, **paths}, _tables={})

    def logs(self, names: Iterable[str], others: Iterable[str] = ()) -> dict[str, TableLog | None]:
        """Return the logs of some tables as they are now, in parallel on an object store.

        Logs of `others` are read as well, for `last_log`; one that cannot be read raises when it is used.
        """
        wanted = {name: self.table(name) for name in names}
        tables = [*wanted.values(), *(self.table(name) for name in others)]
        if is_local(self.path):
            found = list(map(_try_log, tables))
        else:
            with ThreadPoolExecutor(PARALLEL) as threads:
                found = list(threads.map(_try_newest, tables))
        logs: dict[str, TableLog | None] = {}
        for name, log in zip(wanted, found, strict=False):
            if isinstance(log, OncelakeError):
                raise log
            logs[name] = log
        return logs

    def internal_path(self, *parts: str) -> str:
        """Return a path of what oncelake keeps for itself."""
        return posixpath.join(self.path, INTERNAL, *parts)

    def stream_path(self, *parts: str) -> str:
        """Return a path of what is kept for streams. Elsewhere than in the lake it has a folder for each lake."""
        if self.checkpoints is None:
            return self.internal_path("streams", *parts)
        name = posixpath.basename(self.path.rstrip("/"))
        lake = f"{name}-{hashlib.sha256(self.path.encode()).hexdigest()[:12]}"
        return posixpath.join(self.checkpoints, lake, *parts)

    def file(self, path: str) -> str:
        """Return the path of a file or folder; relative ones start at the project's root."""
        return path if "://" in path or path.startswith("/") else posixpath.join(self.root, path)


def _try_log(table: DeltaTable) -> TableLog | OncelakeError | None:
    try:
        with reaching(table.path):
            return table.log()
    except OncelakeError as error:
        return error


@contextmanager
def reaching(path: str) -> Iterator[None]:
    """Raise LakeUnreachable if what is read inside the block cannot be reached. A run retries such errors first."""
    try:
        yield
    except OncelakeError:
        raise
    except OSError as error:
        raise LakeUnreachable(path=path, problem=one_line(error)) from error


def _try_newest(table: DeltaTable) -> TableLog | OncelakeError | None:
    """Return the log of a table, with its newest commits: plans and status ask for them, and here they are read in parallel."""
    log = _try_log(table)
    if isinstance(log, TableLog):
        with suppress(OncelakeError):  # reading that commit later raises it again
            log.newest()
    return log


def delta_log(table: Table) -> TableLog | None:
    """Return the log of a table that is known to be a Delta table."""
    log = table.log()
    assert log is None or isinstance(log, TableLog)
    return log


def require_log(table: Table) -> TableLog:
    """Return the log of a Delta table; TableMissing if there is none."""
    log = delta_log(table)
    if log is None:
        raise TableMissing(table=table.name, path=table.path)
    return log
