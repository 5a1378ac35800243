"""`once.write` against the bare Delta write of the same frame in the same session: many rows, and one row."""

import itertools
import tempfile
from pathlib import Path

import oncelake as once
from bench.clock import best_of, figure
from oncelake.spark.session import open_session

ROWS = 5_000_000
SPAN = ("2024-03-15", "2024-03-16")
PREDICATE = "day >= DATE'2024-03-15' AND day < DATE'2024-03-16'"


def measure():
    spark = open_session({"spark.driver.memory": "4g"})
    columns = (
        "id",
        "id % 1000 AS customer",
        "id * 0.5 AS amount",
        "CAST(id AS STRING) AS note",
        "DATE'2024-03-15' AS day",
    )
    many, one = (spark.range(rows).selectExpr(*columns) for rows in (ROWS, 1))
    with tempfile.TemporaryDirectory() as folder:
        figures = []
        for name in ("append", "replace_interval", "overwrite"):
            figures += _pattern(name, many, one, Path(folder) / name)
    return figures


def _pattern(name, many, one, folder):
    lake, numbers = str(folder / "lake"), itertools.count()
    pattern = {
        "append": once.append("t"),
        "replace_interval": once.replace_interval("t", time="day"),
        "overwrite": once.overwrite("t"),
    }[name]

    def ours(frame):
        span = SPAN if name == "replace_interval" else None
        work = f"bench/{next(numbers)}" if span is None else f"bench{next(numbers)}"
        assert once.write(frame, pattern, work=work, lake=lake, interval=span).outcome == "committed"

    def bare(frame, with_marker=False):
        writer = frame.write.format("delta").mode("append" if name == "append" else "overwrite")
        if with_marker:
            writer = writer.option("txnAppId", f"bench{next(numbers)}").option("txnVersion", 1)
        if name == "replace_interval":
            writer = writer.option("replaceWhere", PREDICATE)
        writer.save(str(folder / ("marked" if with_marker else "bare")))

    jobs = {"ours": ours, "bare": bare, "marked": lambda frame: bare(frame, with_marker=True)}
    for job in jobs.values():
        # Create the table, and let the JIT compile the code path of many rows.
        job(one)
        job(many)
    big = best_of(5, **{key: (lambda job=job: job(many)) for key, job in jobs.items()})
    for job in jobs.values():
        job(one)
    small = best_of(9, **{key: (lambda job=job: job(one)) for key, job in jobs.items()})
    over_bare, over_marked = small["ours"] - small["bare"], small["ours"] - small["marked"]
    return [
        figure(f"{name}, {ROWS:,} rows: ours / bare", round(big["ours"] / big["bare"], 3), "×", "≤ 1.05", **big),
        figure(f"{name}, one row: ours − bare", round(over_bare * 1000), "ms", "≤ 100", **small),
        figure(f"{name}, one row: ours − bare with a marker", round(over_marked * 1000), "ms", "", **small),
    ]
