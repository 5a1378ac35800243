"""A minimal orchestrator: it starts tasks as processes, waits for them, and retries a dead one once."""

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
    """How a process ended, and its standard output until then."""

    code: int
    seconds: float
    output: str

    @property
    def reason(self) -> str:
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


@dataclass
class Process:
    """A process in its own process group, together with the JVM it starts. Its output goes to files."""

    name: str
    command: Sequence[str]
    folder: Path
    logs: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._output = self.logs / f"{self.name}.out"
        self._started = time.monotonic()
        with self._output.open("w") as output, (self.logs / f"{self.name}.log").open("w") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process group, so that nothing outlives the block."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait until it ends."""
        code = self._process.wait()
        return Ended(code, time.monotonic() - self._started, self._output.read_text())

    def kill_when(self, happened: Callable[[], bool]) -> Ended:
        """Kill it with its JVM as soon as `happened()` is true; output that was not written before is lost."""
        output = ""
        while True:
            latest = self._output.read_text()
            if happened() or self._process.poll() is not None:
                break
            output = latest
            time.sleep(0.002)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return Ended(self._process.wait(), time.monotonic() - self._started, output)


def with_one_retry(task: Task) -> list[Ended]:
    """Run a task, and retry it once if its process died; the task receives the number of the attempt."""
    attempts = [task(1)]
    if attempts[0].code != 0:
        attempts.append(task(2))
    return attempts
