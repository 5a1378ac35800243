"""The last of 10,000 works in one table against the first: planning it, and planning and committing it."""

import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import oncelake as once
from bench.clock import figure
from bench.logs import START, write_log
from oncelake.lake.session import open_session

PIPELINES = """
import oncelake as once

@once.pipeline(
    every="day", start="2000-01-01",
    reads=once.files("landing/day.json", schema="n int"),
    writes=once.replace_interval("silver.t", time="day", partition_by="day"),
)
def orders(files, interval):
    from pyspark.sql import functions as F
    return files.select(F.lit(interval.start.date()).alias("day"))
"""


def measure():
    spark = open_session({})
    with tempfile.TemporaryDirectory() as folder:
        roots = {works: _project(Path(folder) / str(works), works) for works in (0, 9_999)}
        # The first works of the session pay for its warming up.
        for number in range(4):
            _one(_project(Path(folder) / f"warm{number}", 5), 5, spark)
        first, last = (_best(root, works, spark) for works, root in ((1, roots[0]), (9_999, roots[9_999])))
    return [
        figure(
            "plan of work 10,000 / of work 1", round(last[0] / first[0], 2), "×", "≤ 1.1", first=first[0], last=last[0]
        ),
        figure(
            "plan and commit of work 10,000 / of work 1",
            round(last[1] / first[1], 2),
            "×",
            "≤ 1.1",
            first=first[1],
            last=last[1],
        ),
    ]


def _project(root, works):
    (root / "landing").mkdir(parents=True)
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PIPELINES)
    (root / "landing" / "day.json").write_text('{"n": 1}\n')
    write_log(root / "lake" / "silver" / "t", "orders", "silver.t", max(works, 1))
    return root


def _best(root, works, spark):
    """The best of three, each from the same log in a place of its own: Spark keeps what it knows of a path."""
    found = []
    for number in range(3):
        copy = root.with_name(f"{root.name}-{number}")
        shutil.copytree(root, copy)
        found.append(_one(copy, works, spark))
    return min(plan for plan, _ in found), min(both for _, both in found)


def _one(root, works, spark):
    day = str((START + timedelta(days=works)).date())
    project = once.open(root, spark=spark)
    # A warm table: Spark has read its log once, as in a run over many days.
    assert project.run("orders", date=day).outcome == "done"
    day = str((START + timedelta(days=works + 1)).date())
    begun = time.perf_counter()
    project.plan("orders", date=day)
    planned = time.perf_counter()
    assert project.run("orders", date=day).works[0].outcome == "committed"
    return planned - begun, time.perf_counter() - planned
