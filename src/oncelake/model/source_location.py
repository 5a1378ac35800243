"""Find where in the user's code a declaration is."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def declared_at() -> str:
    """Return `file:line` of the nearest caller outside this package."""
    frame = sys._getframe(1)  # noqa: SLF001  no public API returns the caller's line as cheaply
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<")):
        frame = frame.f_back
    return f"{display_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def display_path(filename: str) -> str:
    """Return a path for messages: relative to the current folder if it is inside it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
