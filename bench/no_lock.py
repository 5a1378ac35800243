"""What merges cost where no lock keeps other writers out, as on an object store or under Connect."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import oncelake as once
from bench.clock import figure
from bench.merging import ROWS, SHARE, Stage, ours
from oncelake.delta.tables import DeltaTable
from oncelake.spark.session import open_session


def measure():
    spark = open_session({"spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory() as folder:
        yield from _without_lock(Stage(spark, Path(folder)))


def without_lock(job):
    """The same job on a table that no lock keeps others out of, as on an object store or under Connect."""

    def run(lake):
        with patch.object(DeltaTable, "exclusive", property(lambda _: False)):
            job(lake)

    return run


def _without_lock(stage):
    """What it costs that no clause is dropped because of an earlier read, and that the predecessor is compared."""
    frame, deletes = stage.batch(f"id % {SHARE} = 11"), stage.batch(f"id % {SHARE} = 13")
    patterns = {
        "merge": (frame, once.merge("t", keys="id", latest_by="at")),
        "merge with deletes": (deletes, once.merge("t", keys="id", latest_by="at", delete_when="id % 2 = 0")),
    }
    for name, (rows, pattern) in patterns.items():
        job = ours(rows, pattern)
        best = stage.best_times(locked=("flat", job), unlocked=("flat", without_lock(job)))
        what = f"{name} of 1 % random keys, {ROWS:,} rows: without a lock / with it"
        yield figure(what, round(best["unlocked"] / best["locked"], 3), "×", "—", **best)
