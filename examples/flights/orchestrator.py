"""A stand-in for an orchestrator: it starts tasks as processes, sees them end, and starts a dead one once more."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

Task = Callable[[int], "Ended"]


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it had said on standard output by then."""

    code: int
    seconds: float
    said: str

    @property
    def shown(self) -> str:
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


@dataclass
class Process:
    """A process in a group of its own, together with the JVM it starts. What it says goes to files."""

    name: str
    command: Sequence[str]
    folder: Path
    logs: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._said = self.logs / f"{self.name}.out"
        self._begun = time.monotonic()
        with self._said.open("w") as said, (self.logs / f"{self.name}.log").open("w") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdout=said,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of it outlives the block, whatever ended the block."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for its end."""
        code = self._process.wait()
        return Ended(code, time.monotonic() - self._begun, self._said.read_text())

    def kill_when(self, happened: Callable[[], bool]) -> Ended:
        """Kill it with its JVM as soon as something has happened; what it had not said before that is lost."""
        said = ""
        while True:
            heard = self._said.read_text()
            if happened() or self._process.poll() is not None:
                break
            said = heard
            time.sleep(0.002)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return Ended(self._process.wait(), time.monotonic() - self._begun, said)


def with_one_retry(task: Task) -> list[Ended]:
    """Run a task, and once more if its process died; the task is told which attempt it is."""
    attempts = [task(1)]
    if attempts[0].code != 0:
        attempts.append(task(2))
    return attempts
