"""Measure a whole process: elapsed time, CPU time and peak memory."""

import json
import subprocess
import sys

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
