"""Where in the user's code something was declared."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def declared_at() -> str:
    """`file:line` of the nearest caller outside this package."""
    frame = sys._getframe(1)  # noqa: SLF001  there is no public way to the caller's line that is as cheap
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<")):
        frame = frame.f_back
    return f"{display_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def display_path(filename: str) -> str:
    """A path as a user would look for it: from where they stand, if it is below."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
