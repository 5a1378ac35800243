"""What a whole process takes: seconds, and memory at its peak."""

import json
import subprocess
import sys

# A process that Linux makes out of a large one counts the memory of that one as its own: this small one stands between.
METER = """
import json, os, resource, subprocess, sys, time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as pip leaves what it installs
begun = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
seconds = time.perf_counter() - begun
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stderr, [seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]]))
"""


def metered(*command):
    """The seconds a command takes, those of the processor among them, and the megabytes."""
    told = subprocess.run([sys.executable, "-c", METER, *command], check=True, capture_output=True)
    code, problem, used = json.loads(told.stdout)
    assert code == 0, problem
    return used


def best_run(rounds, *command):
    """The least of each, of several runs."""
    return map(min, zip(*(metered(*command) for _ in range(rounds)), strict=True))
