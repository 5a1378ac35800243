"""Record every system call that changes a file, in Python and JVM: build and control the library `calls.c`."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncelake.errors import ProverUnavailable
from oncelake.spark.jars import cache_folder

_SOURCE = Path(__file__).with_name("calls.c")
_PATH, _FOLDERS, _JVMS = 4096, 16, 16
NOTHING, KILL, FAIL, LOSE, STOP = range(5)
PYTHON, JVM = 1, 2
KINDS = ("", "create", "write", "truncate", "mkdir", "rename", "link", "unlink", "rmdir", "symlink")
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EACCES")}
_RECORD = struct.Struct("<QQQIIIIII")


class _Page(ctypes.Structure):
    """The beginning of `struct control` in calls.c; the rest belongs to the library."""

    _fields_ = (
        ("on", ctypes.c_uint32),
        ("action", ctypes.c_uint32),
        ("count", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("error", ctypes.c_uint32),
        ("onwards", ctypes.c_uint32),
        ("who", ctypes.c_uint32),
        ("driver", ctypes.c_uint32),
        ("acted", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("jvms", ctypes.c_uint32 * _JVMS),
        ("folders", ctypes.c_uint32),
        ("journal", ctypes.c_char * _PATH),
        ("folder", ctypes.c_char * _PATH * _FOLDERS),
    )


@dataclass(frozen=True)
class Call:
    """One call that changed a file: its number, its paths, and the position of its bytes in the journal."""

    number: int
    kind: str
    path: str
    to: str = ""
    offset: int = 0
    length: int = 0
    position: int = 0
    jvm: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Act:
    """The action at the n-th call: kill processes, fail the call, lose its reply, or stop the process."""

    at: int = 0
    action: int = NOTHING
    who: int = 0
    error: int = 0
    onwards: bool = False


def compiler() -> str | None:
    """Return a C compiler if the library works on this machine; None otherwise."""
    if sys.platform != "linux":
        return None
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def library() -> Path:
    """Return the library, from the cache or newly built; raise ProverUnavailable if it cannot be built."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + platform.machine().encode()).hexdigest()[:12]
    built = cache_folder() / f"calls-{digest}.so"
    if built.is_file():
        return built
    found = compiler()
    if found is None:
        raise ProverUnavailable(
            problem="the level calls needs Linux and a C compiler", next="oncelake prove --level steps"
        )
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        output = Path(scratch) / built.name
        command = [found, "-O2", "-shared", "-fPIC", "-o", str(output), str(_SOURCE), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            first_line = done.stderr.strip().splitlines()[:1]
            problem = f"could not build the call recorder: {''.join(first_line)}"
            raise ProverUnavailable(problem=problem, next="oncelake prove --level steps")
        output.replace(built)
    return built


class Controls:
    """The control page of one process tree: which folders are recorded, and the action at which call."""

    def __init__(self, file: Path) -> None:
        """Create the page. Processes started with `environment` share it."""
        self.file = file
        file.write_bytes(bytes(ctypes.sizeof(_Page) + 4096))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 0)
        self._page = _Page.from_buffer(self._memory)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a recorded process tree."""
        return {"LD_PRELOAD": str(library()), "ONCELAKE_CALLS": str(self.file)}

    @property
    def acted(self) -> bool:
        """Return whether the action was taken."""
        return bool(self._page.acted)

    @property
    def jvms(self) -> list[int]:
        """Return the JVMs of the tree, including those that have exited."""
        return [pid for pid in self._page.jvms if pid]

    def drive(self, pid: int) -> None:
        """Set the pid of the Python driver."""
        self._page.driver = pid

    def watch(self, folders: Sequence[str]) -> None:
        """Set the folders below which calls are recorded."""
        self._page.folders = len(folders)
        for index, folder in enumerate(folders):
            self._page.folder[index].value = os.fsencode(folder)

    @contextmanager
    def watching(self, journal: Path, act: Act | None = None) -> Iterator[None]:
        """Number every call inside the block, write it to the journal, and take the action."""
        act, page = act or Act(), self._page
        journal.touch()
        page.journal = os.fsencode(journal)
        page.epoch += 1
        page.count, page.at, page.action, page.who = 0, act.at, act.action, act.who
        page.error, page.onwards, page.acted = act.error, act.onwards, 0
        page.on = 1
        try:
            yield
        finally:
            page.on = 0

    def close(self) -> None:
        """Close the page."""
        del self._page
        self._memory.close()


def read_journal(journal: Path) -> list[Call]:
    """Return the calls of a journal in order. A last record that a kill truncated is skipped."""
    data = journal.read_bytes()
    calls: list[Call] = []
    at = 0
    while at + _RECORD.size <= len(data):
        number, offset, length, kind, failed, jvm, first, second, _ = _RECORD.unpack_from(data, at)
        names = at + _RECORD.size
        position = names + first + second
        if position + length > len(data):
            break
        path, to = os.fsdecode(data[names : names + first]), os.fsdecode(data[names + first : position])
        calls.append(Call(number, KINDS[kind], path, to, offset, length, position, bool(jvm), bool(failed)))
        at = position + length
    return calls
