"""Server processes on this machine: a free port, the wait until one listens, its end, and that it ends with its parent."""

from __future__ import annotations

import ctypes
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oncelake.spark.session import log_folder

_PR_SET_PDEATHSIG = 1
# Below the ports that the system gives to clients: one of those could take the port of a server while it restarts.
_FIRST_PORT, _LAST_PORT = 15000, 32000
_PAUSE = 0.05


def new_log(name: str) -> Path:
    """Create an empty log file for a process."""
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".log", dir=folder, delete=False) as log:
        return Path(log.name)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def lasting_port() -> int:
    """Return a free port that stays free while its server restarts: the system gives it to no client."""
    for _ in range(100):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if is_free(port):
            return port
    return free_port()


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port."""
    with socket.socket() as tried:
        # As servers do: connections of one that has ended do not keep the next one from its port.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until_listening(process: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    """Wait until a process accepts connections; return False if it ends before, or takes too long."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(_PAUSE)
        else:
            return True
    return False


def stop_process(process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    """Ask a process to end, kill it if it does not, and wait for its end."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def die_with_parent() -> Callable[[], None] | None:
    """Return a `preexec_fn` by which a child is killed when the thread that started it ends; None where there is no such call."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork

    def ask_for_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_for_signal
