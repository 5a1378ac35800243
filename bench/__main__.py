"""Run the benchmarks, print their figures, and store them in bench/results."""

import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

BENCHES = (
    "rerun",
    "cold_run",
    "status",
    "layer_tax",
    "many_works",
    "fingerprint",
    "proving",
    "merging",
    "no_lock",
    "backfill",
    "large_log",
    "arrivals",
    "streams",
    "scale",
)
RESULTS = Path(__file__).parent / "results"


def main(names):
    RESULTS.mkdir(exist_ok=True)
    for name in names or BENCHES:
        figures = []
        for figure in importlib.import_module(f"bench.{name}").measure():
            print(f"{name}: {figure['what']}: {figure['figure']} {figure['unit']} (goal {figure['goal']})", flush=True)
            figures.append(figure)
        if "BENCH_SCALE" in os.environ:  # a trial with other sizes
            continue
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        document = {"bench": name, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}", "machine": machine, "figures": figures}
        (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")


main(sys.argv[1:])
