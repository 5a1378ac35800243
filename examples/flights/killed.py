"""Run the pipeline for a range of days, and kill the process and its JVM at the commit of the last one."""

import os
import signal
import sys

import oncelake as once
from oncelake.model import failpoints


def main() -> None:
    start, end = sys.argv[1:]
    project = once.open()
    commits_left = len(project.plan(start=start, end=end).to_do)

    def kill_at_last_commit(point: str) -> None:
        nonlocal commits_left
        commits_left -= point == "written"
        if commits_left == 0:
            # The whole process group, because on a machine that fails no JVM outlives Python.
            os.killpg(0, signal.SIGKILL)

    failpoints.watch(kill_at_last_commit)
    project.run(start=start, end=end)


main()
