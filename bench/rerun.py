"""A finished day run again, whole process, against the hand-written job run again."""

import tempfile
from pathlib import Path

from bench.clock import best_of, figure
from bench.days import make_project, ours, theirs


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root, day = Path(folder), "2024-03-01"
        make_project(root, 1)
        ours(root, day)
        theirs(root, day)
        again = best_of(5, ours=lambda: ours(root, day))["ours"]
        peer = best_of(2, theirs=lambda: theirs(root, day))["theirs"]
    return [
        figure("rerun of a finished day", round(again, 3), "s", "≤ 0.5"),
        figure("rerun / hand-written rerun", round(again / peer, 3), "×", "≤ 0.05", ours=again, peer=peer),
    ]
