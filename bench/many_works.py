"""Work 10,000 of one table against work 1: planning it, and planning and committing it."""

import tempfile
import time
from datetime import timedelta
from pathlib import Path

import oncelake as once
from bench.clock import figure
from bench.logs import START, write_log
from oncelake.spark.session import open_session

PIPELINES = """
import oncelake as once

@once.pipeline(
    every="day", start="1990-01-01",
    reads=once.files("landing/day.json", schema="n int"),
    writes=once.replace_interval("silver.t", time="day", partition_by="day"),
)
def orders(files, interval):
    from pyspark.sql import functions as F
    return files.select("n", F.lit(interval.start.date()).alias("day"))
"""


def measure():
    spark = open_session({})
    with tempfile.TemporaryDirectory() as folder:
        # The first works of a session include its warm-up.
        _times(_project(Path(folder) / "warm", 5), 5, spark)
        first = _times(_project(Path(folder) / "first", 1), 1, spark)
        last = _times(_project(Path(folder) / "last", 9_990), 9_990, spark)
    ratios = {name: round(last[name] / first[name], 2) for name in first}
    return [
        figure(
            "plan and commit of work 10,000 / of work 1",
            ratios["ours"],
            "×",
            "≤ 1.1",
            first=first["ours"],
            last=last["ours"],
        ),
        figure("the same by bare Delta with a marker", ratios["bare"], "×", "", first=first["bare"], last=last["bare"]),
        figure(
            "plan of work 10,000, of the time to commit it",
            round(last["plan"] / last["ours"], 3),
            "×",
            "",
            plan=last["plan"],
        ),
    ]


def _project(root, works):
    (root / "landing").mkdir(parents=True)
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PIPELINES)
    (root / "landing" / "day.json").write_text('{"n": 1}\n')
    write_log(root / "lake" / "silver" / "t", "orders", "silver.t", max(works, 1))
    return root


def _times(root, works, spark):
    """Return the best of five works after a first one, when Spark has read the log as in a run over many days."""
    project = once.open(root, spark=spark)
    days = [str((START + timedelta(days=works + more)).date()) for more in range(12)]
    found = {"ours": [], "bare": [], "plan": []}
    for number, (ours, bare) in enumerate(zip(days[::2], days[1::2], strict=True)):
        seconds = {
            "plan": _seconds(lambda day=ours: project.plan("orders", date=day)),
            "ours": _seconds(lambda day=ours: _check_committed(project.run("orders", date=day))),
            "bare": _seconds(lambda day=bare: _bare(spark, root / "lake" / "silver" / "t", day)),
        }
        for name, elapsed in seconds.items() if number else ():
            found[name].append(elapsed)
    return {name: min(times) for name, times in found.items()}


def _check_committed(report):
    assert report.works[0].outcome == "committed"


def _bare(spark, table, day):
    frame = spark.sql(f"SELECT 1 AS n, DATE'{day}' AS day")
    writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", f"day = DATE'{day}'")
    writer.option("txnAppId", f"bare/{day}").option("txnVersion", 1).save(str(table))


def _seconds(job):
    started = time.perf_counter()
    job()
    return time.perf_counter() - started
