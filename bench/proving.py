"""Crash states proven per minute, and the cost of recording file calls against an unrecorded run."""

import tempfile
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

from bench.clock import best_of, figure
from bench.days import make_project
from oncelake.proving.calls import Act
from oncelake.proving.proof import Prover
from oncelake.proving.worker_handle import WorkerHandle, WorkerSetting

DAYS = (["2024-03-01", "2024-03-02"], ["2024-03-02", "2024-03-03"])
STATES_ONLY = {"kills": 0, "faults": 0, "recoveries": 0, "zombies": 0, "threads": ()}


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "project"
        root.mkdir()
        make_project(root, 2)
        states, seconds = _time_states(root)
        times = _time_recording(root, Path(folder).resolve())
    return [
        figure("crash states proven", round(states / seconds * 60, 1), "a minute", "≥ 20", states=states, all=seconds),
        figure("recorded / unrecorded run", round(times["recorded"] / times["unrecorded"], 2), "×", "≤ 1.5", **times),
    ]


def _time_states(root):
    """Return the number of states of a proof, and the seconds from the first to the end of the last."""
    starts = []

    def on_case(case, index, total):
        starts.append((case.scenario, time.perf_counter()))

    with Prover() as prover:
        verdict = prover.prove(root, "orders", on_case=on_case, start=DAYS[0][0], end=DAYS[1][1], **STATES_ONLY)
    assert verdict.verdict == "proven"
    first = next(at for scenario, at in starts if scenario == "crash")
    after = next(at for (before, _), (scenario, at) in pairwise(starts) if before == "crash" != scenario)
    return verdict.states, after - first


def _time_recording(root, folder):
    """Run the same two works on a new lake, alternating between a recorded and an unrecorded worker."""
    workers = {}
    for level in ("calls", "steps"):
        lake = folder / level / "lake"
        spec = {"kind": "pipeline", "root": str(root), "profile": None, "name": "orders", "lake": str(lake)}
        spec |= {"lock_timeout": 30, "now": "2025-01-01T00:00:00+00:00"}
        workers[level] = (WorkerHandle(WorkerSetting(folder / level, level)).open(spec, [str(lake)]), lake)

    def run(level):
        worker, lake = workers[level]
        lake.rename(lake.with_name(f"done-{time.monotonic_ns()}")) if lake.exists() else None
        with worker.watching(Act()) if level == "calls" else nullcontext():
            return worker.request("run", spans=DAYS)

    try:
        for level in workers:
            assert {work["outcome"] for work in run(level)["works"]} == {"committed"}
        return best_of(9, recorded=lambda: run("calls"), unrecorded=lambda: run("steps"))
    finally:
        for worker, _ in workers.values():
            worker.close()
