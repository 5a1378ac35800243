"""The prover's handle of a worker: a process group that it sends requests to, records, kills and cleans up."""

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
from oncelake.storage.lock import process_start


class WorkerDied(Exception):
    """The worker process has ended: it was killed, as intended."""


@dataclass(frozen=True)
class WorkerSetting:
    """The options with which a worker is started."""

    sandbox: Path
    level: str
    views: Sequence[View] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def wait_at_gate(gate: Path) -> None:
    """Say that the gate is reached, with a file of that name and another suffix, and wait until the gate is there."""
    gate.with_suffix(".stalled").touch()
    while not gate.exists():
        time.sleep(0.02)


class WorkerHandle:
    """One started worker that waits for requests."""

    def __init__(self, setting: WorkerSetting) -> None:
        """Start the process without waiting for it."""
        setting.sandbox.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="worker-", dir=setting.sandbox))
        self.controls = Controls(self._folder / "controls") if setting.level == "calls" else None
        recorder = self.controls.environment if self.controls else {}
        views = json.dumps([asdict(view) for view in setting.views])
        inner, self._requests = os.pipe()
        self._answers, outer = os.pipe()
        command = [sys.executable, "-m", "oncelake.proving.worker", views, str(inner), str(outer)]
        self._log = (self._folder / "output").open("wb")
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **setting.environment, **recorder},
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
        """Set the job; the worker loads it with the next request."""
        if self.controls:
            self.controls.watch(folders)
        self._opened = job
        return self

    def request(self, do: str, **more: Any) -> dict[str, Any]:
        """Send a request and return the answer; raise WorkerDied if the process ended instead."""
        self.begin(do, **more)
        return self.answer()

    def begin(self, do: str, **more: Any) -> None:
        """Send a request without waiting for the answer."""
        if self._opened is not None:
            job, self._opened = self._opened, None
            self.request("open", job=job)
        with suppress(BrokenPipeError):
            os.write(self._requests, json.dumps({"do": do, **more}).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest request."""
        while b"\n" not in self._unread:
            part = os.read(self._answers, 65536)
            if not part:
                raise WorkerDied(self.output)
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProverUnavailable(problem=answer["error"], next=f"see {self._log.name}")
        return answer

    @contextmanager
    def watching(self, act: Act) -> Iterator[Path]:
        """Record the calls of requests inside the block, and take the action at one. Yield the journal."""
        assert self.controls is not None
        journal = self._folder / f"journal-{len(list(self._folder.glob('journal-*')))}"
        with self.controls.watching(journal, act):
            yield journal

    def wait_until_acted(self, seconds: float) -> bool:
        """Wait until the action was taken, or until an answer shows that it never will be."""
        assert self.controls is not None
        deadline = time.monotonic() + seconds
        while not self.controls.acted and time.monotonic() < deadline:
            if self._unread or select.select([self._answers], [], [], 0.02)[0]:
                break
        return self.controls.acted

    def wait_for(self, file: Path, seconds: float) -> bool:
        """Wait until a file is there, or until an answer shows that it never will be."""
        deadline = time.monotonic() + seconds
        while not file.exists() and time.monotonic() < deadline:
            if self._unread or select.select([self._answers], [], [], 0.02)[0]:
                break
        return file.exists()

    @property
    def output(self) -> str:
        """Return the end of the process's output."""
        return Path(self._log.name).read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Kill the Python driver only."""
        self.process.kill()
        self.process.wait()

    def resume(self) -> None:
        """Resume stopped processes (SIGCONT)."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)

    def wait_until_gone(self, seconds: float) -> None:
        """Wait until the JVMs have exited, because a JVM that outlives its driver may still commit."""
        deadline = time.monotonic() + seconds
        jvms = self.controls.jvms if self.controls else []
        while any(process_start(jvm) is not None for jvm in jvms) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        """Kill the process group and wait until it is gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.wait_until_gone(10)
        for file in (self._requests, self._answers):
            os.close(file)
        self._log.close()
        if self.controls:
            self.controls.close()
