"""A lease per table on object stores, where there is no file lock: a numbered object that one runner creates and that expires.

A lease keeps a second runner from repeating work. Correctness does not depend on it: nothing keeps a runner that was suspended
past the end of its lease from going on. So it looks whether another runner has a newer lease before it writes; and what is
committed between that look and its own commit is found by the marker, by Delta's conflict checks, and by the version that the
commit names as the one it was compared with (`delta/overtaken`). Ranges are fenced by the log store (`java/`).
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, unquote

from oncelake.storage.conditional import has_conditional_puts
from oncelake.storage.object_store import in_parallel
from oncelake.storage.options import object_store
from oncelake.storage.paths import INTERNAL, is_local

# A holder renews its lease three times before it expires; after a kill the other runners wait for the rest of it.
LENGTH = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# Without conditional puts: how long after its request a lease is taken to be seen by all.
_SETTLED = 1.0


@dataclass(frozen=True)
class LeaseFiles:
    """The leases of a table: numbered files, of which the newest names the holder and the time of expiry.

    The greatest number never decreases: a file is deleted only if a newer one exists. So no number is used twice: who creates
    a file whose number had been deleted finds a newer one, and has no lease.
    """

    store: Any
    folder: str
    # Whether the store creates an object only if there is none.
    conditional: bool = True

    def newest(self) -> tuple[int, dict[str, Any]]:
        """Return the number and the content of the newest lease; 0 and nothing if there was none."""
        from obstore.exceptions import NotFoundError

        numbers = self._numbers()
        with suppress(NotFoundError, ValueError):  # deleted since it was listed, or not completely written
            if numbers:
                return numbers[-1], json.loads(bytes(self.store.get(self._path(numbers[-1])).bytes()))
        return (numbers[-1] if numbers else 0), {}

    def take(self, number: int, holder: dict[str, Any]) -> bool:
        """Create the lease of a number. Return False if another runner created it, or a newer one."""
        if not self._create(number, holder):
            return False
        numbers = self._numbers()
        if numbers[-1] != number:
            # Our number had been taken and deleted before, while this runner was suspended. The newer lease counts.
            return False
        for old in numbers[:-1]:
            with suppress(FileNotFoundError):
                self.store.delete(self._path(old))
        return True

    def is_newest(self, number: int) -> bool:
        """Return whether nobody has taken a newer lease."""
        return self._numbers()[-1:] == [number]

    def renew(self, number: int, holder: dict[str, Any], seconds: float) -> None:
        """Extend our lease."""
        self.store.put(self._path(number), _until(seconds, holder))

    def end(self, number: int) -> None:
        """End our lease. It becomes an empty object, so that a listing alone tells that nobody has the table."""
        self.store.put(self._path(number), b"")

    def _create(self, number: int, holder: dict[str, Any]) -> bool:
        """Create the file of a number, and return whether it is ours."""
        from obstore.exceptions import AlreadyExistsError

        token = uuid.uuid4().hex
        body = _until(LENGTH, {**holder, "token": token})
        if self.conditional:
            try:
                self.store.put(self._path(number), body, mode="create")
            except AlreadyExistsError:
                # By another runner; or by this one, and the answer was lost.
                return self._token(number) == token
            return True
        if number in self._numbers():
            return False
        # Runners that saw no lease at the same time replace each other's now. After a pause all of them see the last one.
        self.store.put(self._path(number), body)
        time.sleep(_SETTLED)
        return self._token(number) == token

    def _token(self, number: int) -> str | None:
        from obstore.exceptions import NotFoundError

        with suppress(NotFoundError, ValueError):
            found: dict[str, Any] = json.loads(bytes(self.store.get(self._path(number)).bytes()))
            return found.get("token")
        return None

    def _numbers(self) -> list[int]:
        paths = (found["path"].rpartition("/")[2] for batch in self.store.list(self.folder) for found in batch)
        return sorted(int(name[:-5]) for name in paths if name.endswith(".json") and name[:-5].isdigit())

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:08}.json"


def lease_files(lake: str, table: str) -> LeaseFiles | None:
    """Return the leases of a table; None if the library for object stores is not installed."""
    store = _store(lake)
    if store is None:
        return None
    return LeaseFiles(store, f"{INTERNAL}/leases/{quote(table, safe='')}", has_conditional_puts(lake))


def lease_problem(lake: str) -> str | None:
    """Return why a lake on an object store has no leases, or None. A run warns of it once."""
    if is_local(lake) or find_spec("obstore") is not None:
        return None
    missing = 'no leases without obstore (pip install "oncelake[object-store]")'
    return f"{lake}: {missing}; another runner may repeat this work, the result stays correct"


def acquire(
    files: LeaseFiles, holder: dict[str, Any], lock_timeout: float, give_up: Callable[[], bool]
) -> tuple[int | None, dict[str, Any]]:
    """Return the number of our lease; or None and its holder, after the timeout or when waiting is pointless."""
    deadline, pause = time.monotonic() + lock_timeout, _FIRST_PAUSE
    while True:
        number, found = files.newest()
        if found.get("until", 0) <= time.time():
            if files.take(number + 1, holder):
                return number + 1, holder
            continue
        if time.monotonic() >= deadline or give_up():
            return None, found
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@contextmanager
def renewing(
    files: LeaseFiles, number: int, holder: dict[str, Any], length: float = LENGTH
) -> Iterator[Callable[[], bool]]:
    """Renew a lease while it is used, and end it afterwards. Yield a function that says whether it is still ours."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(length / 3):
            with suppress(Exception):  # a store that does not answer now may answer the next time
                if files.is_newest(number):
                    files.renew(number, holder, length)

    def is_ours() -> bool:
        try:
            return files.is_newest(number)
        except Exception:  # noqa: BLE001  a store that does not answer takes no commit either
            return True

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield is_ours
    finally:
        over.set()
        thread.join()
        with suppress(Exception):  # then it expires by itself
            if files.is_newest(number):
                files.end(number)


def leases(lake: str) -> dict[str, dict[str, Any]]:
    """Return the current holder of each leased table of a lake: by one listing, and a request for each lease that was not ended."""
    from obstore.exceptions import NotFoundError

    store = _store(lake)
    if store is None:
        return {}
    newest: dict[str, str] = {}
    sizes = {found["path"]: found["size"] for batch in store.list(f"{INTERNAL}/leases") for found in batch}
    # Numbers of more digits are greater.
    for path in sorted(sizes, key=lambda path: (len(path), path)):
        if path.rpartition("/")[2].removesuffix(".json").isdigit():
            newest[unquote(path.split("/")[-2])] = path
    newest = {table: path for table, path in newest.items() if sizes[path]}

    def holder(path: str) -> dict[str, Any]:
        with suppress(NotFoundError, ValueError):  # deleted since it was listed, or not completely written
            found: dict[str, Any] = json.loads(bytes(store.get(path).bytes()))
            return found
        return {}

    holders = zip(newest, in_parallel(holder, newest.values()), strict=True)
    return {table: found for table, found in holders if found.get("until", 0) > time.time()}


def _until(seconds: float, holder: dict[str, Any]) -> bytes:
    return json.dumps({**holder, "until": time.time() + seconds}).encode()


def _store(lake: str) -> Any:
    return object_store(lake, retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)})
