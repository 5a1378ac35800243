"""Cold run: one day from process start to commit, against the hand-written job with Spark's defaults. Both tables exist."""

import tempfile
import time
from pathlib import Path

from bench.clock import figure
from bench.days import make_project, run_by_hand, run_ours


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_project(root, 4)
        # The first day creates the tables and warms the file cache and Ivy's cache; it is not counted.
        times = {run_ours: [], run_by_hand: []}
        for day in ("2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04"):
            for job in (run_ours, run_by_hand):
                started = time.perf_counter()
                job(root, day)
                times[job].append(time.perf_counter() - started)
        ours, peer = min(times[run_ours][1:]), min(times[run_by_hand][1:])
    return [figure("cold run of one day / hand-written job", round(ours / peer, 2), "×", "≤ 0.6", ours=ours, peer=peer)]
