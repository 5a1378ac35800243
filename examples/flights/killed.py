"""Run the pipeline for a range of days, and die at the commit of the last one, with the JVM and all."""

import os
import signal
import sys

import oncelake as once
from oncelake.model import failpoints


def main() -> None:
    start, end = sys.argv[1:]
    project = once.open()
    left = len(project.plan(start=start, end=end).to_do)

    def die_at_the_last(point: str) -> None:
        nonlocal left
        left -= point == "written"
        if left == 0:
            # The whole group: a JVM that outlived Python would not be what a lost machine looks like.
            os.killpg(0, signal.SIGKILL)

    failpoints.watch(die_at_the_last)
    project.run(start=start, end=end)


main()
