"""Views: a mount namespace in which a script writes its tables to the sandbox instead of to their real paths.

A script names its tables by paths that the prover cannot change. So the parent folder of each table is replaced by a
view: the table itself is a folder of the sandbox, and everything beside it is the real content, read-only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelake.errors import ProverUnavailable

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


@dataclass(frozen=True)
class View:
    """A folder, the sandbox folder mounted over it, and the path of its real content, mounted read-only."""

    folder: str
    replacement: str
    real: str


def make_views(tables: Sequence[Path], sandbox: Path) -> tuple[list[View], dict[Path, Path]]:
    """Create the views that a set of tables needs; return them and the path of each table in the sandbox."""
    views: dict[Path, View] = {}
    copies: dict[Path, Path] = {}
    for table in tables:
        parent = next(folder for folder in table.parents if folder.is_dir())
        if parent == Path(parent.anchor) or parent in (Path("/tmp"), Path("/proc"), Path("/dev")):  # noqa: S108
            problem = f"{table} is directly in {parent}, which cannot be replaced by a view"
            raise ProverUnavailable(problem=problem, next="move the table one folder deeper, and try again")
        if parent not in views:
            number = str(len(views))
            views[parent] = View(str(parent), str(sandbox / "views" / number), str(sandbox / "real" / number))
        copies[table] = Path(views[parent].replacement) / table.relative_to(parent)
    for parent, view in views.items():
        _link_siblings(parent, view, [t.relative_to(parent).parts[0] for t in tables if parent in t.parents])
    return list(views.values()), copies


def _link_siblings(parent: Path, view: View, written: Sequence[str]) -> None:
    """Link everything beside the tables into the view; the prover creates the tables' folders."""
    Path(view.replacement).mkdir(parents=True)
    Path(view.real).mkdir(parents=True)
    for entry in parent.iterdir():
        if entry.name not in written:
            (Path(view.replacement) / entry.name).symlink_to(Path(view.real) / entry.name)


def mount_views(views: Sequence[Mapping[str, Any]]) -> None:
    """Mount the views for this process and its children only."""
    if not views:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _check(libc.unshare(_NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USERS), "a mount namespace")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(libc, "none", "/", _RECURSIVE | _PRIVATE)
    for view in views:
        _mount(libc, view["folder"], view["real"], _BIND)
        _mount(libc, "none", view["real"], _BIND | _REMOUNT | _READ_ONLY)
        _mount(libc, view["replacement"], view["folder"], _BIND)


def _mount(libc: Any, what: str, where: str, flags: int) -> None:
    _check(libc.mount(os.fsencode(what), os.fsencode(where), None, flags, None), f"mounting {where}")


def _check(result: int, what: str) -> None:
    if result != 0:
        problem = f"{what} failed: {os.strerror(ctypes.get_errno())}"
        raise ProverUnavailable(problem=problem, next="run as root, or where user namespaces are allowed")
