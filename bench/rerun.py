"""Rerun of a finished day, whole process, against a rerun of the hand-written job."""

import tempfile
from pathlib import Path

from bench.clock import best_of, figure
from bench.days import make_project, run_by_hand, run_ours


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root, day = Path(folder), "2024-03-01"
        make_project(root, 1)
        run_ours(root, day)
        run_by_hand(root, day)
        ours = best_of(5, ours=lambda: run_ours(root, day))["ours"]
        peer = best_of(2, peer=lambda: run_by_hand(root, day))["peer"]
    return [
        figure("rerun of a finished day", round(ours, 3), "s", "≤ 0.5"),
        figure("rerun / hand-written rerun", round(ours / peer, 3), "×", "≤ 0.05", ours=ours, peer=peer),
    ]
