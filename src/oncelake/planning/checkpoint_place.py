"""Where checkpoints may be kept: not where something else removes, hides or duplicates them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping

from oncelake.storage.lifecycle import expiring_rule
from oncelake.storage.options import is_s3, s3_uri
from oncelake.storage.paths import is_local, local_path

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108  they are what is refused


def place_problem(folder: str, lake: str, tables: Mapping[str, str]) -> str | None:
    """Return why the checkpoint of a stream may not lie in a folder, or None. Tables are given by name, with their paths."""
    if is_local(folder) and not is_local(lake):
        return f"it is on this machine, and the lake is not ({lake}): another machine would start from the beginning"
    if _is_temporary(folder) and not _is_temporary(lake):
        return "it is in a temporary folder, which is emptied by others, and the lake is not"
    for name, path in sorted(tables.items()):
        if _is_within(folder, path):
            return (
                f"it is in the folder of the table {name} ({path}), where VACUUM removes what is no part of the table"
            )
    return None


def expiry_problem(folder: str, ask: Callable[[str], str | None] = expiring_rule) -> str | None:
    """Return that a rule of the store would remove a checkpoint after some time, as far as the store says so, or None."""
    rule = ask(folder) if is_s3(folder) else None
    return f"a lifecycle rule of the bucket removes its files ({rule})" if rule else None


def _is_temporary(path: str) -> bool:
    if not is_local(path):
        return False
    return any(_is_within(path, each) for each in {*_TEMPORARY, tempfile.gettempdir()})


def _is_within(path: str, folder: str) -> bool:
    inner, outer = _parts(path), _parts(folder)
    return inner[: len(outer)] == outer


def _parts(path: str) -> list[str]:
    if is_local(path):
        # Links are followed: a folder under another name is the same folder.
        return ["", *local_path(path).expanduser().resolve().parts]
    return [part for part in s3_uri(path).split("/") if part]
