"""Giving a script a view of its tables' folders in which only the sandbox is written: a mount namespace of its own.

A script names its tables by paths that the prover cannot change. So the folder around each table is shown to it as a
view: the table itself is a folder of the sandbox, everything beside it is the real thing, read-only.
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
    """A folder, what is shown in its place, and where its real content can be seen, read-only."""

    folder: str
    shown: str
    real: str


def make_views(tables: Sequence[Path], sandbox: Path) -> tuple[list[View], dict[Path, Path]]:
    """The views that a set of tables needs, and where in the sandbox each table is."""
    views: dict[Path, View] = {}
    places: dict[Path, Path] = {}
    for table in tables:
        around = next(folder for folder in table.parents if folder.is_dir())
        if around == Path(around.anchor) or around in (Path("/tmp"), Path("/proc"), Path("/dev")):  # noqa: S108
            problem = f"{table} lies directly in {around}, which cannot be shown as a view"
            raise ProverUnavailable(problem=problem, next="put the table one folder deeper, and try again")
        if around not in views:
            number = str(len(views))
            views[around] = View(str(around), str(sandbox / "views" / number), str(sandbox / "real" / number))
        places[table] = Path(views[around].shown) / table.relative_to(around)
    for around, view in views.items():
        _fill(around, view, [table.relative_to(around).parts[0] for table in tables if around in table.parents])
    return list(views.values()), places


def _fill(around: Path, view: View, written: Sequence[str]) -> None:
    """Links to everything beside the tables; the tables' own folders come from the prover."""
    Path(view.shown).mkdir(parents=True)
    Path(view.real).mkdir(parents=True)
    for entry in around.iterdir():
        if entry.name not in written:
            (Path(view.shown) / entry.name).symlink_to(Path(view.real) / entry.name)


def show_views(views: Sequence[Mapping[str, Any]]) -> None:
    """Show the views to this process and its children, and to nobody else."""
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
        _mount(libc, view["shown"], view["folder"], _BIND)


def _mount(libc: Any, what: str, where: str, flags: int) -> None:
    _check(libc.mount(os.fsencode(what), os.fsencode(where), None, flags, None), f"mounting {where}")


def _check(result: int, what: str) -> None:
    if result != 0:
        problem = f"{what} was refused: {os.strerror(ctypes.get_errno())}"
        raise ProverUnavailable(problem=problem, next="run it as root, or where user namespaces are allowed")
