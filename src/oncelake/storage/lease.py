"""A lease per table where no kernel keeps a lock: a file that only one can create, and that runs out.

It keeps a second runner from working in vain. What is true never depends on it: a holder that was asleep while its lease
ran out is told by the marker, and by Delta's own log store, that somebody else was faster.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

from oncelake.storage.paths import INTERNAL

# A holder renews its lease three times before it runs out; after a kill the others wait for the rest of it.
LENGTH = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True)
class LeaseFiles:
    """The turns at a table: numbered files, the newest of which says who is at it, until when."""

    store: Any
    folder: str

    def newest(self) -> tuple[int, dict[str, Any]]:
        """The number of the newest turn and what it says; 0 and nothing if there was none."""
        from obstore.exceptions import NotFoundError

        numbers = self._numbers()
        with suppress(NotFoundError, ValueError):  # taken away since, or not written yet
            if numbers:
                return numbers[-1], json.loads(bytes(self.store.get(self._path(numbers[-1])).bytes()))
        return (numbers[-1] if numbers else 0), {}

    def take(self, number: int, holder: dict[str, Any]) -> bool:
        """Take a turn, if nobody else did."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self.store.put(self._path(number), _until(LENGTH, holder), mode="create")
        except AlreadyExistsError:
            return False
        for old in self._numbers():
            if old < number:
                with suppress(FileNotFoundError):
                    self.store.delete(self._path(old))
        return True

    def renew(self, number: int, holder: dict[str, Any], seconds: float) -> None:
        """Say until when a turn of ours lasts."""
        self.store.put(self._path(number), _until(seconds, holder))

    def _numbers(self) -> list[int]:
        paths = (found["path"].rpartition("/")[2] for batch in self.store.list(self.folder) for found in batch)
        return sorted(int(name[:8]) for name in paths if name[:8].isdigit())

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:08}.json"


def lease_files(lake: str, table: str) -> LeaseFiles | None:
    """The turns at a table of a lake; None where the library for object stores is not installed."""
    store = _store(lake)
    return None if store is None else LeaseFiles(store, f"{INTERNAL}/leases/{quote(table, safe='')}")


def acquire(
    turns: LeaseFiles, holder: dict[str, Any], lock_timeout: float, given_up: Callable[[], bool]
) -> tuple[int | None, dict[str, Any]]:
    """The number of our turn; or None, and who has it, when patience ran out or waiting is pointless."""
    deadline, pause = time.monotonic() + lock_timeout, _FIRST_PAUSE
    while True:
        number, found = turns.newest()
        if found.get("until", 0) <= time.time():
            if turns.take(number + 1, holder):
                return number + 1, holder
            continue
        if time.monotonic() >= deadline or given_up():
            return None, found
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@contextmanager
def renewing(turns: LeaseFiles, number: int, holder: dict[str, Any], length: float = LENGTH) -> Iterator[None]:
    """Renew a turn while it is used, and end it afterwards."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(length / 3):
            with suppress(Exception):  # a store that does not answer now may do so the next time
                turns.renew(number, holder, length)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        with suppress(Exception):  # then it runs out by itself
            turns.renew(number, holder, 0)


def leases(lake: str) -> dict[str, dict[str, Any]]:
    """Who is at which table of a lake at this moment."""
    store = _store(lake)
    if store is None:
        return {}
    tables = [prefix.rpartition("/")[2] for prefix in store.list_with_delimiter(f"{INTERNAL}/leases")["common_prefixes"]]
    newest = {unquote(table): LeaseFiles(store, f"{INTERNAL}/leases/{table}").newest()[1] for table in tables}
    return {table: holder for table, holder in newest.items() if holder.get("until", 0) > time.time()}


def _until(seconds: float, holder: dict[str, Any]) -> bytes:
    return json.dumps({**holder, "until": time.time() + seconds}).encode()


def _store(lake: str) -> Any:
    try:
        from obstore.store import from_url
    except ImportError:
        return None
    address = lake.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)
    if address.startswith("file://"):
        return from_url(address)
    # No options for the client: what the environment says of it (AWS_ALLOW_HTTP) would not count any more.
    return from_url(address, retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)})
