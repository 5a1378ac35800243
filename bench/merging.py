"""Upserts into 5 million rows against Delta's MERGE, plain and hand-tuned; and the repair of duplicates."""

import itertools
import shutil
import tempfile
import time
from pathlib import Path

import oncelake as once
from bench.clock import figure
from oncelake.spark.session import open_session

ROWS, SHARE, DAYS, MERGES, MANY = 5_000_000, 100, 30, 50, 1_000_000
COLUMNS = (
    "id",
    "CAST(id % 1000 AS INT) AS customer",
    "id * 0.37D AS amount",
    "concat('order ', id, ' of a customer') AS note",
    "timestamp_micros(1700000000000000 + id * 1000000) AS at",
    f"date_add(DATE'2024-01-01', CAST(id % {DAYS} AS INT)) AS day",
)
NEWER = (
    "id",
    "customer",
    "amount + {n} AS amount",
    "note",
    "timestamp_micros(unix_micros(at) + {n} * 10000000000000) AS at",
    "day",
)


def measure():
    spark = open_session({"spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(spark, Path(folder))
        for part in (_random, _replay, _partition, _repair, _many):
            yield from part(stage)


class Stage:
    """The initial tables, and copies of them to merge into: every round starts with the same files."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.numbers = spark, folder, itertools.count()
        rows = spark.range(ROWS).selectExpr(*COLUMNS)
        rows.repartition(16).write.format("delta").save(self.path("flat"))
        partitioned = rows.repartition(DAYS, "day").write.format("delta").partitionBy("day")
        partitioned.save(self.path("partitioned"))
        shutil.copytree(self.path("flat"), self.path("vectors"))
        spark.sql(f"ALTER TABLE delta.`{self.path('vectors')}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")

    def path(self, name):
        return str(self.folder / name)

    def batch(self, where, number=1):
        """Write newer versions of some rows to a new table, and return it."""
        path = self.path(f"batch{next(self.numbers)}")
        rows = self.spark.read.format("delta").load(self.path("flat")).where(where)
        rows.selectExpr(*(text.format(n=number) for text in NEWER)).write.format("delta").save(path)
        return self.spark.read.format("delta").load(path)

    def copy(self, name):
        """Create a lake with a copy of a table as `t`."""
        lake = self.folder / f"lake{next(self.numbers)}"
        shutil.copytree(self.path(name), lake / "t")
        return lake

    def best_times(self, rounds=3, **jobs):
        """Return the best time of each job. Jobs alternate, after one warm-up round, each on a copy of its table."""
        times = {name: [] for name in jobs}
        for number in range(rounds + 1):
            for name, (table, job) in jobs.items():
                lake = self.copy(table)
                started = time.perf_counter()
                job(lake)
                times[name] += [time.perf_counter() - started] if number else []
                shutil.rmtree(lake)
        return {name: min(found) for name, found in times.items()}


def ours(frame, pattern):
    return lambda lake: once.write(frame, pattern, work="bench/1", lake=str(lake))


def plain(frame, on="t.id = s.id"):
    from delta.tables import DeltaTable

    def merge(lake):
        table = DeltaTable.forPath(frame.sparkSession, str(lake / "t")).alias("t")
        table.merge(frame.alias("s"), on).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return merge


def tuned(frame):
    """Merge as an expert would: deduplicated to one row per key, newer rows only, deletion vectors."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def merge(lake):
        last = Window.partitionBy("id").orderBy(F.desc("at"))
        rows = frame.withColumn("n", F.row_number().over(last)).where("n = 1").drop("n")
        builder = (
            DeltaTable.forPath(frame.sparkSession, str(lake / "t")).alias("t").merge(rows.alias("s"), "t.id = s.id")
        )
        builder.whenMatchedUpdateAll("s.at > t.at").whenNotMatchedInsertAll().execute()

    return merge


def _random(stage):
    batch = stage.batch(f"pmod(hash(id), {SHARE}) = 0")
    pattern = once.merge("t", keys="id", latest_by="at", deletion_vectors=True, compact=False)
    ours_job = ("vectors", ours(batch, pattern))
    found = stage.best_times(plain=("flat", plain(batch)), tuned=("vectors", tuned(batch)), ours=ours_job)
    what = f"merge of 1 % random keys, {ROWS:,} rows"
    return [
        figure(f"{what}: ours / plain MERGE", round(found["ours"] / found["plain"], 3), "×", "≤ 0.6", **found),
        figure(f"{what}: ours / hand-tuned MERGE", round(found["ours"] / found["tuned"], 3), "×", "≤ 1.05", **found),
    ]


def _replay(stage):
    batch = stage.batch(f"pmod(hash(id), {SHARE}) = 0", number=0)
    pattern = once.merge("t", keys="id", latest_by="at", compact=False)
    files = {}

    def replay(lake):
        ours(batch, pattern)(lake)
        entry = max((lake / "t" / "_delta_log").glob("*.json"))
        files["written"] = entry.read_text().count('{"add"')

    found = stage.best_times(plain=("flat", plain(batch)), ours=("flat", replay))
    ratio = round(found["ours"] / found["plain"], 3)
    return [
        figure(f"replay of identical rows, {ROWS:,} rows: ours / plain MERGE", ratio, "×", "≤ 0.3", **found),
        figure("replay of identical rows: files written", files["written"], "files", "0"),
    ]


def _partition(stage):
    batch = stage.batch(f"day = DATE'2024-01-15' AND pmod(hash(id), {SHARE}) < {DAYS}")
    pattern = once.merge("t", keys=["id", "day"], latest_by="at", compact=False)
    on = "t.id = s.id AND t.day = s.day"
    found = stage.best_times(plain=("partitioned", plain(batch, on)), ours=("partitioned", ours(batch, pattern)))
    ratio = round(found["ours"] / found["plain"], 3)
    return [
        figure(
            f"merge of 1 % of the rows, all in one of {DAYS} partitions: ours / plain MERGE",
            ratio,
            "×",
            "≤ 0.6",
            **found,
        )
    ]


def _repair(stage):
    table = stage.path("partitioned")
    day = "day = DATE'2024-01-15'"
    stage.spark.read.format("delta").load(table).where(day).limit(ROWS // 100).coalesce(1).write.format("delta").mode(
        "append"
    ).save(table)
    lakes = {}

    def repair(lake):
        copied = "{copied: {reads: {table: t}, writes: {overwrite: copy}}}"
        (lake / "oncelake.yaml").write_text(f"lake: .\npipelines: {copied}\n")
        found = once.open(lake, spark=stage.spark).repair("t", keys=["id", "day"])
        lakes["removed"] = found.document()["removed"]

    def rewrite(lake):
        path = str(lake / "t")
        rows = stage.spark.read.format("delta").load(path).dropDuplicates(["id", "day"])
        rows.write.format("delta").mode("overwrite").partitionBy("day").save(path)

    found = stage.best_times(rewrite=("partitioned", rewrite), ours=("partitioned", repair))
    what = f"repair of {lakes['removed']:,} duplicates in one of {DAYS} partitions: ours / rewriting by dropDuplicates"
    return [figure(what, round(found["ours"] / found["rewrite"], 3), "×", "≤ 0.25", **found)]


def _many(stage):
    """Compare the median of the last five of 50 merges with that of the first five, without those that compacted."""
    lake = stage.folder / "many"
    pattern = once.merge("t", keys="id", latest_by="at", deletion_vectors=True)
    rows = stage.spark.read.format("delta").load(stage.path("flat")).where(f"id < {MANY}")
    once.write(rows, pattern, work="bench/0", lake=str(lake))
    merging, compacting = [], []
    for number in range(1, MERGES + 1):
        batch = stage.batch(f"id < {MANY} AND pmod(hash(id, {number}), {SHARE}) = 0", number)
        started = time.perf_counter()
        outcome = once.write(batch, pattern, work=f"bench/{number}", lake=str(lake))
        seconds = time.perf_counter() - started
        newest = int(max((lake / "t" / "_delta_log").glob("*.json")).stem)
        merging.append(seconds if newest == outcome.version else None)
        compacting += [seconds] if newest != outcome.version else []
    timed = [seconds for seconds in merging if seconds is not None]
    first, last = (sorted(part)[2] for part in (timed[:5], timed[-5:]))
    found = {
        "first": first,
        "last": last,
        "all_with_a_compaction": sum(compacting),
        "all": sum(timed) + sum(compacting),
    }
    what = f"merge {MERGES} of 1 % of {MANY:,} rows / merge 1 ({len(compacting)} compactions)"
    return [figure(what, round(last / first, 3), "×", "≤ 1.3", **found)]
