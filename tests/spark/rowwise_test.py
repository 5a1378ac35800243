"""A range is computed in one pass only where that is the same as interval by interval."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import oncelake as once
from oncelake.running.rowwise import rowwise
from support.lakes import commits, rows, write_table

DAY = timedelta(days=1)


def fixed(rows):
    return rows.sparkSession.range(5).withColumn("name", F.lit("x"))


BY_ROW = {
    "as it is": lambda rows: rows,
    "a filter and columns": lambda rows: rows.where("id > 1").select("id", F.to_date("at").alias("day")),
    "the time overwritten": lambda rows: rows.withColumn("at", F.col("at") + F.expr("INTERVAL 1 DAY")),
    "exploded": lambda rows: rows.select(F.explode(F.array("id", "id")).alias("id")),
    "sorted": lambda rows: rows.repartition(2).sort("id").select("id"),
    "joined with something fixed": lambda rows: rows.join(fixed(rows), "id", "left").drop("at"),
    "only those that are fixed": lambda rows: rows.join(fixed(rows), "id", "left_semi"),
    "a hash of all columns": lambda rows: rows.select(F.sha2(F.to_json(F.struct("*")), 256).alias("digest")),
}
MIXING = {
    "counted": lambda rows: rows.groupBy("id").count(),
    "the latest": lambda rows: once.latest(rows, keys="id", by="at"),
    "without duplicates": lambda rows: rows.dropDuplicates(["id"]),
    "a window": lambda rows: rows.withColumn("n", F.row_number().over(Window.partitionBy("id").orderBy("at"))),
    "a few": lambda rows: rows.limit(3),
    "a sample": lambda rows: rows.sample(0.5, seed=1),
    "joined with itself": lambda rows: rows.join(rows.select("id"), "id"),
    "twice": lambda rows: rows.unionByName(rows),
    "what fixed ones are joined with": lambda rows: fixed(rows).join(rows, "id", "left"),
    "compared with a number it asked for": lambda rows: rows.where(F.col("id") <= rows.agg(F.max("id")).first()[0]),
    "compared with a subquery": lambda rows: rows.where(
        F.col("id") < rows.select(F.max("id").alias("most")).select("most").scalar()
    ),
    "a function over batches": lambda rows: rows.mapInPandas(lambda frames: frames, rows.schema),
    "something else": fixed,
}


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("source") / "t")
    times = spark.range(40).selectExpr("id % 5 AS id", "timestamp_micros(1704067200000000 + id * 6 * 3600000000) AS at")
    times.write.format("delta").save(path)
    return (
        spark.read.format("delta")
        .load(path)
        .where("at >= TIMESTAMP'2024-01-02T00:00:00Z' AND at < TIMESTAMP'2024-01-08T00:00:00Z'")
    )


@pytest.mark.parametrize("name", BY_ROW)
def test_rows_one_by_one_are_recognised(spark, source, name):
    results, came_from = rowwise(spark, source, "at", lambda rows: {"t": BY_ROW[name](rows)})
    assert results["t"].where(came_from < "2024-01-02T00:00:00Z").count() == 0


@pytest.mark.parametrize("name", MIXING)
def test_whatever_may_mix_intervals_is_not(spark, source, name):
    assert rowwise(spark, source, "at", lambda rows: {"t": MIXING[name](rows)}) is None


def test_the_job_group_of_the_caller_is_left_as_it_was(spark, source):
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "mine")
    rowwise(spark, source, "at", lambda rows: {"t": rows})
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def backfilled(root, spark, every, zone, time, column):
    @once.pipeline(
        every=every,
        start="2024-03-25",
        timezone=zone,
        reads=once.table("raw", time="at"),
        writes=once.replace_interval("t", time=time),
    )
    def orders(rows):
        return rows.selectExpr("id", column)

    hours = [datetime(2024, 3, 25, tzinfo=UTC) + timedelta(hours=number) for number in range(24 * 14)]
    write_table(root, "raw", {"id": range(len(hours)), "at": pa.array(hours, pa.timestamp("us", "UTC"))})
    project = once.Project.of(orders, lake=root / "lake", root=root, spark=spark)
    return project.run("orders", start="2024-03-25", end="2024-04-07")


@pytest.mark.parametrize(
    ("every", "time", "column"), [("day", "at", "at"), ("day", "day", "to_date(at) AS day"), ("hour", "at", "at")]
)
def test_a_range_in_one_pass_over_a_change_of_the_clocks(tmp_path, spark, every, time, column):
    report = backfilled(tmp_path, spark, every, "Europe/Berlin", time, column)
    assert report.outcome == "done"
    assert commits(tmp_path, "t") == len(report.works) == 1
    assert len(rows(tmp_path, "t")) == 13 * 24 - 1 - 1  # the lake begins at 01:00 of the first day


def test_rows_that_move_to_another_day_are_refused_as_they_would_be_alone(tmp_path, spark):
    moved = "CASE WHEN id = 100 THEN at + INTERVAL 1 DAY ELSE at END AS at"
    report = backfilled(tmp_path, spark, "day", "UTC", "at", moved)
    (failed,) = [work for work in report.works if work.outcome != "committed"]
    assert (failed.slice, failed.code) == ("[2024-03-29, 2024-03-30)", "rows_outside_slice")
    days = {dict(row)["at"][:10] for row in rows(tmp_path, "t")}
    assert days == {str(date(2024, 3, 25) + number * DAY) for number in range(13)} - {"2024-03-29"}
