"""Fingerprint of a table against a plain scan in the same session: strict and quick, whole and by partition."""

import statistics
import tempfile
import time
from pathlib import Path

from bench.clock import figure
from oncelake.delta.fingerprint import fingerprint, fingerprint_table
from oncelake.spark.session import open_session

ROWS = 5_000_000
FLAT = (
    "id",
    "CAST(id % 1000 AS INT) AS customer",
    "id * 0.37D AS amount",
    "CAST(id % 100000 / 7 AS DECIMAL(12, 2)) AS price",
    "concat('order ', id, ' of a customer') AS note",
    "if(id % 10 = 0, NULL, concat('s', id % 7)) AS status",
    "timestamp_micros(1700000000000000 + id * 12345678) AS at",
    "date_add(DATE'2024-01-01', CAST(id % 30 AS INT)) AS day",
)
NESTED = (*FLAT, "array(id, NULL, id + 1) AS items", "map('a', id, 'b', 2) AS counts")


def measure():
    spark = open_session({"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as folder:
        flat, nested, partitioned = (str(Path(folder) / name) for name in ("flat", "nested", "partitioned"))
        spark.range(ROWS).selectExpr(*FLAT).write.format("delta").save(flat)
        spark.range(ROWS // 5).selectExpr(*NESTED).write.format("delta").save(nested)
        spark.range(ROWS).selectExpr(*FLAT).repartition("day").write.format("delta").partitionBy("day").save(
            partitioned
        )
        whole = _whole(f"{ROWS:,} rows", spark.read.format("delta").load(flat))
        lists = _whole(
            f"{ROWS // 5:,} rows with an array and a map", spark.read.format("delta").load(nested), goals=False
        )
        return [*whole, *lists, *_by_partition(spark, partitioned)]


def _whole(what, frame, goals=True):
    times = _medians(
        9 if goals else 5,
        scan=lambda: frame.write.format("noop").mode("overwrite").save(),
        strict=lambda: fingerprint(frame),
        quick=lambda: fingerprint(frame, quick=True),
    )
    return _figures(what, times, goals)


def _by_partition(spark, path):
    frame = spark.read.format("delta").load(path)
    times = _medians(
        5,
        scan=lambda: frame.write.format("noop").mode("overwrite").save(),
        strict=lambda: fingerprint_table(spark, path),
        quick=lambda: fingerprint_table(spark, path, quick=True),
    )
    return _figures(f"{ROWS:,} rows, a part for each of 30 partitions", times, goals=False)


def _figures(what, times, goals):
    ratios = {mode: round(times[mode] / times["scan"], 2) for mode in ("strict", "quick")}
    return [
        figure(f"strict, {what}: fingerprint / scan", ratios["strict"], "×", "≤ 6" if goals else "", **times),
        figure(f"quick, {what}: fingerprint / scan", ratios["quick"], "×", "≤ 1.3" if goals else "", **times),
    ]


def _medians(rounds, **jobs):
    """Return the median time of each job. The jobs alternate, after two rounds that warm up the JIT compiler."""
    times = {name: [] for name in jobs}
    for number in range(rounds + 2):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            times[name] += [time.perf_counter() - started] if number >= 2 else []
    return {name: statistics.median(found) for name, found in times.items()}
