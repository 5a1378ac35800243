"""The named points of the ring, in their order. Reaching one does nothing, unless a proof put something there."""

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
    "written",
    "settled",
    "recorded",
)

_on_reach: Callable[[str], None] | None = None


def failpoint(point: str) -> None:
    """Tell whoever watches that the ring has come to this point."""
    if _on_reach is not None:
        _on_reach(point)


def watch(on_reach: Callable[[str], None] | None) -> None:
    """Let a function see every point that is reached (it may kill the process), or stop it with None."""
    global _on_reach  # noqa: PLW0603  one watcher for the whole process is the point of it
    _on_reach = on_reach
