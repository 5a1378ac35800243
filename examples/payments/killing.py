"""A job as a process of its own, killed with its JVM at a chosen moment."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def run(command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]) -> int:
    """Run a command to its end, and return its exit code."""
    return run_and_kill(command, folder, log, environment, None)


def run_and_kill(
    command: Sequence[str],
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    happened: Callable[[], bool] | None,
    delay: float = 0,
) -> int:
    """Run a command, and kill it with its JVM a moment after `happened()`; -9 says that it was killed."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while happened is not None and process.poll() is None:
            if happened():
                time.sleep(delay)
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.01)
        return process.wait()
    finally:
        # Nothing outlives it, whatever interrupts this.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
