"""`oncelake status` over 20 tables of 1,000 commits each, whole process."""

import subprocess
import tempfile
from pathlib import Path

from bench.clock import best_of, figure
from bench.days import BIN
from bench.logs import write_log

TABLES, COMMITS = 20, 1000
PIPELINES = """
import oncelake as once

for number in range({tables}):
    @once.pipeline(
        name=f"p{{number}}", every="day", start="1990-01-01",
        reads=once.files("landing/{{start:%Y-%m-%d}}/*.json"),
        writes=once.replace_interval(f"silver.t{{number}}", time="day"),
    )
    def orders(files):
        return files
"""


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
        (root / "pipelines.py").write_text(PIPELINES.format(tables=TABLES))
        for number in range(TABLES):
            write_log(root / "lake" / "silver" / f"t{number}", f"p{number}", f"silver.t{number}", COMMITS)
        status = lambda: subprocess.run([BIN / "oncelake", "status", "-p", root], check=True, capture_output=True)  # noqa: E731
        seconds = best_of(7, status=status)["status"]
    return [figure(f"status of {TABLES} tables of {COMMITS} commits", round(seconds, 3), "s", "≤ 0.3")]
