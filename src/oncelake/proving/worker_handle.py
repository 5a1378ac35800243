"""A subject as the prover holds it: a process group that is asked, watched, killed and cleaned up after."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from oncelake.errors import ProverUnavailable
from oncelake.proving.calls import Act, Controls
from oncelake.proving.views import View
from oncelake.storage.lock import started


class Died(Exception):
    """The subject is gone: it was killed, which is what it is for."""


@dataclass(frozen=True)
class Setting:
    """What a subject is started with."""

    sandbox: Path
    level: str
    views: Sequence[View] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class WorkerHandle:
    """One subject, started and waiting to be asked."""

    def __init__(self, setting: Setting) -> None:
        """Start the process; it gets ready while the prover goes on."""
        setting.sandbox.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="subject-", dir=setting.sandbox))
        self.controls = Controls(self._folder / "controls") if setting.level == "calls" else None
        watched = self.controls.environment if self.controls else {}
        views = json.dumps([asdict(view) for view in setting.views])
        inner, self._asks = os.pipe()
        self._answers, outer = os.pipe()
        command = [sys.executable, "-m", "oncelake.proving.worker", views, str(inner), str(outer)]
        self._log = (self._folder / "output").open("wb")
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **setting.environment, **watched},
            pass_fds=(inner, outer),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(inner)
        os.close(outer)
        if self.controls:
            self.controls.drive(self.process.pid)
        self._unread = b""
        self._opened: Mapping[str, Any] | None = None

    def open(self, job: Mapping[str, Any], folders: Sequence[str]) -> WorkerHandle:
        """Give it a job; it loads it while the prover goes on."""
        if self.controls:
            self.controls.watch(folders)
        self._opened = job
        return self

    def request(self, do: str, **more: Any) -> dict[str, Any]:
        """Ask, and wait for the answer. Died if the process ended instead."""
        self.begin(do, **more)
        return self.answer()

    def begin(self, do: str, **more: Any) -> None:
        """Ask without waiting."""
        if self._opened is not None:
            job, self._opened = self._opened, None
            self.request("open", job=job)
        with suppress(BrokenPipeError):
            os.write(self._asks, json.dumps({"do": do, **more}).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest question."""
        while b"\n" not in self._unread:
            part = os.read(self._answers, 65536)
            if not part:
                raise Died(self.said)
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProverUnavailable(problem=answer["error"], next=f"look into {self._log.name}")
        return answer

    @contextmanager
    def watching(self, act: Act) -> Iterator[Path]:
        """Number the calls of what is asked inside the block; something may happen at one. Gives their journal."""
        assert self.controls is not None
        journal = self._folder / f"journal-{len(list(self._folder.glob('journal-*')))}"
        with self.controls.watching(journal, act):
            yield journal

    def wait_until_acted(self, seconds: float) -> bool:
        """Wait until the number was reached, or until there is an answer because it never will be."""
        assert self.controls is not None
        deadline = time.monotonic() + seconds
        while not self.controls.acted and time.monotonic() < deadline:
            if self._unread or select.select([self._answers], [], [], 0.02)[0]:
                break
        return self.controls.acted

    @property
    def said(self) -> str:
        """The end of what the process printed."""
        return Path(self._log.name).read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Kill the Python that drives, and nobody else."""
        self.process.kill()
        self.process.wait()

    def wake(self) -> None:
        """Let whoever stopped go on."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)

    def wait_until_gone(self, seconds: float) -> None:
        """Wait until the JVMs have ended, for one that outlives its Python may still commit."""
        deadline = time.monotonic() + seconds
        jvms = self.controls.jvms if self.controls else []
        while any(started(jvm) is not None for jvm in jvms) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        """End the process and all it started, and wait until they are gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.wait_until_gone(10)
        for file in (self._asks, self._answers):
            os.close(file)
        self._log.close()
        if self.controls:
            self.controls.close()
