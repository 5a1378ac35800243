"""Measure a whole process: elapsed time, CPU time and peak memory; with `measure_tree` also of the processes that it starts."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

# On Linux a forked process inherits the peak memory of its parent, so a small process starts the measured one.
METER = """
import json, os, resource, subprocess, sys, time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code is compiled once, as after pip install
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
seconds = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stderr, [seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]]))
"""


def measure_process(*command):
    """Return the elapsed seconds, the CPU seconds and the peak megabytes of a command."""
    done = subprocess.run([sys.executable, "-c", METER, *command], check=True, capture_output=True)
    code, problem, used = json.loads(done.stdout)
    assert code == 0, problem
    return used


def best_run(rounds, *command):
    """Return the minimum of each measure over several runs."""
    return map(min, zip(*(measure_process(*command) for _ in range(rounds)), strict=True))


class TreeUsage(NamedTuple):
    """What a command and its children used: seconds, and the peak megabytes of all of them, of Python and of JVMs."""

    seconds: float
    megabytes: float
    python: float
    java: float


def measure_tree(*command, env=None):
    """Return what a command used, with its JVM and Python workers. Pages that they share are divided between them."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as problem:
        started = time.perf_counter()
        # They stay in the session of the command, whoever their parent becomes.
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=problem,
            env={**inherited, **(env or {})},
            start_new_session=True,
        )
        watcher = _Watcher(process.pid)
        watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        watcher.stop()
        problem.seek(0)
        assert code == 0, problem.read()
    return TreeUsage(seconds, *watcher.peaks)


class _Watcher(threading.Thread):
    """Looks at the memory of the processes of a session five times a second."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self._session, self._ended = session, threading.Event()
        self.peaks = (0.0, 0.0, 0.0)

    def stop(self):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.wait(0.2):
            python, java = self._look()
            self.peaks = tuple(map(max, self.peaks, (python + java, python, java)))

    def _look(self):
        used = {False: 0.0, True: 0.0}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.getsid(int(name)) == self._session:
                    is_java = Path("/proc", name, "exe").readlink().name == "java"
                    lines = Path("/proc", name, "smaps_rollup").read_text().splitlines()
                    used[is_java] += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
            except (OSError, StopIteration):  # it has ended
                continue
        return used[False], used[True]
