"""Failpoints: the named steps of the commit protocol, in order. They do nothing unless a proof or a test watches them."""

from __future__ import annotations

from collections.abc import Callable

FAILPOINTS = (
    "pinned",
    "claimed",
    "read",
    "transformed",
    "created",
    "writing",
    "prepared",
    "committing",
    "written",
    "settled",
    "recorded",
)
# Those of a restate request and of a rebuild, beside the commits that they lead to.
OF_OPERATIONS = ("requested", "replayed", "rebuilt")

# Those of a stream: its checkpoint is ready, a batch begins; of a restart: the old checkpoint is moved, the new epoch is begun,
# a target is cleared.
OF_BATCHES = ("checkpoint", "batch")
OF_STREAMS = (*OF_BATCHES, "moved", "restarted", "cleared")

# Those of arrivals, before and after the commits of a batch.
OF_ARRIVALS = ("frozen", "accounted")

_on_reach: Callable[[str], None] | None = None


def failpoint(point: str) -> None:
    """Call the watcher, if there is one, because the commit protocol has reached this point."""
    if _on_reach is not None:
        _on_reach(point)


def watch(on_reach: Callable[[str], None] | None) -> None:
    """Call a function at each failpoint that is reached (it may kill the process); None removes the watcher."""
    global _on_reach  # noqa: PLW0603  one watcher for the whole process, by design
    _on_reach = on_reach
