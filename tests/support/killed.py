"""A process that runs one day of a project and is killed on the way: `killed.py ROOT DAY MODE POINT`.

MODE is python, jvm or both; POINT is one of oncelake.model.failpoints, or `during`: a moment after the write has begun.
"""

import os
import signal
import sys
import threading

import oncelake as once
from oncelake.model import failpoints
from oncelake.storage.lock import _jvms

root, day, mode, wanted = sys.argv[1:]


def kill():
    if mode in ("jvm", "both"):
        for pid, _ in _jvms():
            os.kill(pid, signal.SIGKILL)
    if mode in ("python", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


def on_reach(point):
    if wanted == "during" and point == "writing":
        threading.Timer(0.6, kill).start()
    elif point == wanted:
        kill()


failpoints.watch(on_reach)
print(once.open(root).run("orders", date=day).works[0].outcome)
