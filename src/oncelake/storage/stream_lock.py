"""The lock of a stream: its checkpoint is used by one query, or changed by one command, at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncelake.errors import TableBusy
from oncelake.storage.lock import Busy, Holder, held_by_a_living_process, table_lock


@contextmanager
def hold_stream(lake: str, pipeline: str, lock_timeout: float, again: str) -> Iterator[None]:
    """Hold the lock of a pipeline's stream. A living holder is not waited for; a killed one is, as long as its JVM lives.

    Who starts a session does so before: the lock notes the JVMs there are. `again` is what to type if the stream is busy.
    """
    name = f"stream {pipeline}"
    try:
        with table_lock(lake, name, lock_timeout, lambda: held_by_a_living_process(lake, name), Holder(name)):
            yield
    except Busy as busy:
        raise TableBusy(target=f"the stream {pipeline}", holder=busy.holder, again=again) from busy
