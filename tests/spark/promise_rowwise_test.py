"""A range is computed in one pass only where that is certainly the same as interval by interval."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once
from oncelake.running.rowwise import is_rowwise, rowwise
from oncelake.spark.jobs import watch_jobs


def at(day, hour=1):
    return datetime(2024, 3, day, hour, tzinfo=UTC)


@pytest.fixture(scope="module")
def raw(spark, tmp_path_factory):
    """Two rows a day of one key, the second of them greater."""
    path = tmp_path_factory.mktemp("lake") / "raw"
    rows = [(1, at(day, hour), day * 10 + hour) for day in (14, 15, 16) for hour in (1, 2)]
    spark.createDataFrame(rows, "id long, at timestamp, v long").coalesce(1).write.format("delta").save(str(path))
    return path


def greatest_in_an_own_group(rows):
    context = rows.sparkSession.sparkContext
    context.setJobGroup("mine", "the greatest")
    try:
        return rows.where(F.col("v") == rows.agg(F.max("v")).first()[0])
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def greatest_in_a_thread(rows):
    with ThreadPoolExecutor(1) as threads:
        greatest = threads.submit(lambda: rows.agg(F.max("v")).first()[0]).result()
    return rows.where(F.col("v") == greatest)


def centered(v: pd.Series) -> pd.Series:
    return v - v.mean()


UNSAFE = {
    "a job of another group": greatest_in_an_own_group,
    "a job of another thread": greatest_in_a_thread,
    "a pandas function": lambda rows: rows.withColumn("v", F.pandas_udf(centered, "double")(F.col("v").cast("double"))),
    "a Python function": lambda rows: rows.withColumn("v", F.udf(lambda v: v, "long")("v")),
    "a Python function in a condition": lambda rows: rows.where(F.udf(lambda v: v > 1, "boolean")("v")),
    "batches": lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
    "a random number": lambda rows: rows.withColumn("r", F.rand(7)),
    "a random filter": lambda rows: rows.where(F.rand() < 2),
    "a random key": lambda rows: rows.withColumn("r", F.expr("uuid()")),
    "a running number": lambda rows: rows.withColumn("r", F.monotonically_increasing_id()),
    "the time of the query": lambda rows: rows.withColumn("r", F.current_timestamp()),
    "the date of the query": lambda rows: rows.where("to_date(at) < current_date()"),
    "the time behind many columns": lambda rows: rows.select(
        "*", *(F.lit(n).alias(f"c{n}") for n in range(60)), F.expr("now()").alias("r")
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_certainly_rowwise_is_computed_interval_by_interval(spark, raw, name):
    source = spark.read.format("delta").load(str(raw))
    assert rowwise(spark, source, "at", lambda rows: {"t": UNSAFE[name](rows)}) is None


def test_a_source_that_looks_across_rows_is_not_even_tried(spark, raw):
    latest = once.latest(spark.read.format("delta").load(str(raw)), keys="id", by="at")
    called = []
    assert rowwise(spark, latest, "at", lambda rows: {"t": called.append(rows) or rows}) is None
    assert called == []


def test_columns_and_filters_are_still_computed_in_one_pass(spark, raw):
    source = spark.read.format("delta").load(str(raw)).where("at >= TIMESTAMP'2024-03-14T00:00:00Z'")
    results, _ = rowwise(spark, source, "at", lambda rows: {"t": rows.where("v > 1").select(F.upper("id"))})
    assert results["t"].count() == 6


def test_generators_that_may_keep_a_state_are_not_rowwise():
    plan = "Generate {}, false, [a#1]\n+- Filter (x = x)\n   +- Relation [id#0] parquet"
    assert is_rowwise(plan.format("explode(array(id#0))"), "x = x")
    assert not is_rowwise(plan.format("HiveGenericUDTF#some.Counter(id#0)"), "x = x")


def test_jobs_of_any_thread_and_group_are_seen(spark):
    with watch_jobs(spark) as jobs:
        assert jobs.ran
    assert not jobs.ran
    with watch_jobs(spark) as jobs, ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: spark.range(1).collect()).result()
    assert jobs.ran


def test_where_nobody_knows_of_jobs_they_are_assumed():
    with watch_jobs(Connected()) as jobs:
        pass
    assert jobs.ran


class Connected:
    """What a session of Spark Connect answers."""

    @property
    def sparkContext(self):  # noqa: N802
        from pyspark.errors import PySparkAttributeError

        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"})


def test_a_first_run_over_several_days_gives_what_the_days_give_one_by_one(spark, raw):
    every = {"every": "day", "start": "2024-03-14"}

    @once.pipeline(
        **every,
        reads=once.table("raw", time="at", latest={"keys": "id", "by": "at"}),
        writes=once.replace_interval("latest", time="at"),
    )
    def latest(raw):
        return raw

    @once.pipeline(**every, reads=once.table("raw", time="at"), writes=once.replace_interval("greatest", time="at"))
    def greatest(raw):
        return greatest_in_an_own_group(raw)

    project = once.Project.of(latest, greatest, lake=str(raw.parent), spark=spark)
    assert project.run(now=at(17, 0)).outcome == "done"
    for table in ("latest", "greatest"):
        found = DeltaTable(str(raw.parent / table)).to_pyarrow_table().to_pylist()
        assert sorted(row["v"] for row in found) == [142, 152, 162], table
