"""Bugs, seeded into small jobs and into the product: each breaks a promise, and the prover must say which case shows it."""

from dataclasses import dataclass

import pytest

from support.variants import sample

PROJECT = """
import itertools
import time
import uuid
from pathlib import Path

import oncelake as once
import sabotage
from oncelake.model.markers import Marker
from pyspark.sql import functions as F

sabotage.mend()
broken = sabotage.broken
{broken}

@once.pipeline(
    every="day", start="2024-03-14",
    reads={reads},
    writes={writes},
)
def orders(files):
    at = F.to_timestamp("at")
    frame = files.select("id", "amount", "region", at.alias("ordered_at"), F.to_date(at).alias("day"))
    {returns}
"""
FILES = 'once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at string, region string")'
TABLE = 'once.table("bronze.orders", time="at")'
APPEND = 'once.append("silver.orders")'
REPLACE = 'once.replace_interval("silver.orders", time="ordered_at")'
FORGETFUL = """
broken("oncelake.delta.prepared", "PreparedRows.prepare", lambda real, self, rows: None)
"""


@dataclass(frozen=True)
class Mutant:
    """A bug in a pipeline or in the product beneath it, and the scenarios that may show it."""

    found_by: tuple[str, ...]
    writes: str = APPEND
    returns: str = "return frame"
    broken: str = ""
    reads: str = FILES

    @property
    def pipelines(self):
        return PROJECT.format(broken=self.broken, reads=self.reads, writes=self.writes, returns=self.returns)


@dataclass(frozen=True)
class Script:
    """A bug in a script without a line of oncelake."""

    found_by: tuple[str, ...]
    code: str
    filled: bool = False
    folders: tuple[str, ...] = ()


def marked(replacement):
    """Another marker in every pattern."""
    return f'broken("oncelake.model.pattern", "marker", {replacement})'


PIPELINES = {
    "a random key": Mutant(("clean",), returns='return frame.withColumn("key", F.expr("uuid()"))'),
    "a clock in a column": Mutant(("clean",), returns='return frame.withColumn("loaded_at", F.current_timestamp())'),
    "a clock of Python in a key": Mutant(("clean",), returns='return frame.withColumn("key", F.lit(time.time_ns()))'),
    "an attempt counted in a row": Mutant(
        ("clean",),
        broken="attempts = itertools.count()",
        returns='return frame.withColumn("attempt", F.lit(next(attempts)))',
    ),
    "a key made of the number of the task": Mutant(
        ("layout",), returns='return frame.withColumn("key", F.monotonically_increasing_id())'
    ),
    "dedup without a total order": Mutant(("layout",), returns='return frame.dropDuplicates(["region"])'),
    "the first row of a group without an order": Mutant(
        ("layout",),
        writes='once.append("silver.orders")',
        returns='return frame.groupBy("region").agg(F.first("id").alias("id"), F.min("day").alias("day"))',
    ),
    "a sum of floats in whatever order": Mutant(
        ("layout",), returns='return frame.groupBy("day").agg(F.sum("amount").alias("amount"))'
    ),
    "a setting leaked into the session": Mutant(
        ("clean",),
        returns="""spark = frame.sparkSession
    mode = spark.conf.get("spark.nightly.mode", "first")
    spark.conf.set("spark.nightly.mode", "again")
    return frame.withColumn("mode", F.lit(mode))""",
    ),
    "no marker": Mutant(
        ("twice",),
        broken="""
from oncelake.running.commit_state import CommitState
def unmarked(real, frame, stamp):
    return frame.write.format("delta")
def believed(real, work, table, attempt=None, problem=""):
    return CommitState(done=attempt is not None, ours=True)
broken("oncelake.delta.writes", "_writer", unmarked)
broken("oncelake.running.attempt", "commit_state", believed)
broken("oncelake.running.commit", "commit_state", believed)
""",
    ),
    "a marker after the write": Mutant(
        ("crash",),
        broken="""
def in_two(real, frame, path, stamp, *_):
    frame.write.format("delta").mode("append").save(path)
    real(frame.limit(0), path, stamp)
broken("oncelake.delta.writes", "append", in_two)
""",
    ),
    "a marker before the write": Mutant(
        ("crash",),
        broken="""
def in_two(real, frame, path, stamp, *_):
    real(frame.limit(0), path, stamp)
    frame.write.format("delta").mode("append").save(path)
broken("oncelake.delta.writes", "append", in_two)
""",
    ),
    "a date as version": Mutant(
        ("order",),
        broken="""
def dated(real, pipeline, target, slice_, generation):
    return Marker("once/orders/silver.orders/whole", int(f"{slice_.start:%Y%m%d}"))
"""
        + marked("dated"),
    ),
    "a version used again": Mutant(
        ("order",),
        broken="""
def again(real, pipeline, target, slice_, generation):
    return Marker("once/orders/silver.orders/whole", 1)
"""
        + marked("again"),
    ),
    "a random identity": Mutant(
        ("twice",),
        broken="""
def random(real, *args):
    return Marker(f"once/orders/silver.orders/={uuid.uuid4()}", 1)
"""
        + marked("random"),
    ),
    "a ledger written first and believed": Mutant(
        ("crash",),
        broken="""
from oncelake.running.commit_state import CommitState
def noted(path, work):
    return Path(path).parent / "_done" / work.marker.app_id.replace("/", "-")
def written(real, frame, pattern, writing):
    note = noted(writing.path, writing.work)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    return real(frame, pattern, writing)
def believed(real, work, table, attempt=None, problem=""):
    found = real(work, table, attempt, problem)
    return found if found.done else CommitState(done=noted(table.path, work).exists())
broken("oncelake.running.attempt", "write_once", written)
broken("oncelake.running.attempt", "commit_state", believed)
""",
    ),
    "a replace in two commits": Mutant(
        ("reader",),
        writes=REPLACE,
        broken="""
def in_two(real, frame, path, predicate, stamp, *_):
    from delta.tables import DeltaTable
    DeltaTable.forPath(frame.sparkSession, path).delete(predicate)
    real(frame, path, predicate, stamp)
broken("oncelake.delta.writes", "replace", in_two)
""",
    ),
    "delete, then append": Mutant(
        ("reader",),
        writes=REPLACE,
        broken="""
from oncelake.delta import writes
def in_two(real, frame, path, predicate, stamp, *_):
    from delta.tables import DeltaTable
    DeltaTable.forPath(frame.sparkSession, path).delete(predicate)
    writes.append(frame, path, stamp)
broken("oncelake.delta.writes", "replace", in_two)
""",
    ),
    "truncate, then load": Mutant(
        ("reader",),
        writes='once.overwrite("silver.orders")',
        broken="""
from oncelake.delta import writes
def in_two(real, frame, path, stamp, *_):
    from delta.tables import DeltaTable
    DeltaTable.forPath(frame.sparkSession, path).delete()
    writes.append(frame, path, stamp)
broken("oncelake.delta.writes", "overwrite", in_two)
""",
    ),
    "an older reload in the place of a newer": Mutant(
        ("order",),
        writes='once.overwrite("silver.orders")',
        broken="""
from oncelake.model.markers import marker
broken("oncelake.patterns.overwrite", "reload_marker", lambda real, *args: marker(*args))
def done(real, self, log, pipeline, start, grid):
    return log.coverage(pipeline, self.target)
broken("oncelake.patterns.overwrite", "Overwrite.done", done)
""",
    ),
    "an interval with its end": Mutant(
        ("order",),
        writes=REPLACE,
        broken="""
def wide(real, column, kind, interval):
    return real(column, kind, interval).replace("` < ", "` <= ")
broken("oncelake.patterns.replace_interval", "inside", wide)
""",
    ),
    "a predicate from an f-string": Mutant(
        ("order",),
        writes='once.replace_interval("silver.orders", time="ordered_at", within={"shop": "EU\') OR (\'1\'=\'1"})',
        returns="""return frame.withColumn("shop", F.lit("EU') OR ('1'='1"))""",
        broken="""
broken("oncelake.spark.sql", "text_literal", lambda real, text: f"'{text}'")
""",
    ),
    "a dynamic overwrite that leaves stale rows": Mutant(
        ("late",),
        writes='once.replace_partitions("silver.orders", by=["day", "region"])',
        broken="""
from oncelake.delta import writes
def dynamic(real, frame, writing, predicate, shown):
    writer = writes._writer(frame, writing.stamp).mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").save(writing.path)
broken("oncelake.patterns.replace_partitions", "replace", dynamic)
""",
    ),
    "a write that is tried again unasked": Mutant(
        ("lost",),
        broken="""
def again(real, frame, path, stamp, *_):
    try:
        frame.write.format("delta").option("userMetadata", "first").mode("append").save(path)
    except Exception:
        frame.write.format("delta").option("userMetadata", "again").mode("append").save(path)
    real(frame.limit(0), path, stamp)
broken("oncelake.delta.writes", "append", again)
""",
    ),
    "a merge without an order": Mutant(("order",), writes='once.merge("silver.orders", keys="region", any_order=True)'),
    "deletes that are forgotten": Mutant(
        ("order",),
        writes='once.merge("silver.orders", keys="region", latest_by="ordered_at", delete_when="id = 118")',
        broken=FORGETFUL,
    ),
    "deletes that a history forgets": Mutant(
        ("order",),
        writes='once.scd2("silver.orders", keys="region", latest_by="ordered_at", delete_when="id = 119")',
        broken=FORGETFUL,
    ),
    "rows of one order settled by chance": Mutant(
        ("layout",),
        writes='once.merge("silver.orders", keys="region", latest_by="day")',
        broken="""
broken("oncelake.keyed.reduce", "content_hash", lambda real, *args: F.lit(""))
""",
    ),
}

HEAD = """
import sys, time
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
orders = spark.range(10).selectExpr("id", "id * 2 AS amount")
path = sys.argv[1]
"""
SCRIPTS = {
    "a merge that adds": Script(
        ("twice",),
        """
from delta.tables import DeltaTable
table = DeltaTable.forPath(spark, path).alias("t")
found = table.merge(orders.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"amount": "t.amount + s.amount"})
found.whenNotMatchedInsertAll().execute()
""",
        filled=True,
    ),
    "a merge on a key that may be null": Script(
        ("twice",),
        """
from delta.tables import DeltaTable
source = orders.withColumn("id", F.expr("nullif(id, 3)"))
found = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
found.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
""",
        filled=True,
    ),
    "a delete, then an append": Script(
        ("reader",),
        """
from delta.tables import DeltaTable
DeltaTable.forPath(spark, path).delete("id < 10")
orders.write.format("delta").mode("append").save(path)
""",
        filled=True,
    ),
    "a check by count": Script(
        ("crash",),
        """
from delta.tables import DeltaTable
there = spark.read.format("delta").load(path).count() if DeltaTable.isDeltaTable(spark, path) else 0
if there < 10:
    for part in (orders.where("id < 5"), orders.where("id >= 5")):
        part.write.format("delta").mode("append").save(path)
""",
    ),
    "a table that is there and so is done": Script(
        ("crash",),
        """
from delta.tables import DeltaTable
if not DeltaTable.isDeltaTable(spark, path):
    orders.limit(0).write.format("delta").save(path)
    orders.write.format("delta").mode("append").save(path)
""",
    ),
    "a stream without a marker": Script(
        ("crash",),
        """
spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
def each(batch, number):
    batch.write.format("delta").mode("append").save(path)
stream = spark.readStream.schema("id long, amount long").json(sys.argv[2]).writeStream.foreachBatch(each)
stream.option("checkpointLocation", sys.argv[3]).trigger(availableNow=True).start().awaitTermination()
""",
        folders=("checkpoint",),
    ),
}


def one_per_scenario(mutants, most=None):
    """All of them as parameters of a test: one for each scenario that finds some, chosen by the commit, the rest long."""
    by_scenario = {}
    for name, mutant in mutants.items():
        by_scenario.setdefault(mutant.found_by, []).append(name)
    chosen = [min(sample(names, 1, *scenario)) for scenario, names in by_scenario.items()]
    chosen = sample(chosen, most or len(chosen), "scenarios")
    return [pytest.param(name, marks=[] if name in chosen else [pytest.mark.long], id=name) for name in mutants]
