"""Paths: which are folders of this machine, and where oncelake keeps its own files."""

from __future__ import annotations

from pathlib import Path

INTERNAL = "_oncelake"


def is_local(path: str) -> bool:
    """Whether a path is a folder of this machine."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """The path of this machine that a local path or `file://` URI names."""
    return Path(path.removeprefix("file://"))
