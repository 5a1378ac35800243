"""The same job in plain `foreachBatch`, as most are written. It is correct as long as it is never killed."""

import sys
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SERVERS, TOPIC, BATCH = sys.argv[1:]
SCHEMA = (
    "payment string, sequence int, status string, merchant string, cents bigint, created_at timestamp, at timestamp"
)
LAKE = Path("plain-lake").resolve()
BRONZE, SILVER, GOLD = (f"{LAKE}/{name}" for name in ("bronze/payments", "silver/payments", "gold/minutes"))

spark = SparkSession.builder.getOrCreate()


def process(messages: DataFrame, number: int) -> None:
    value = F.from_json(F.col("value").cast("string"), SCHEMA)
    rows = messages.select("partition", "offset", value.alias("value")).select("partition", "offset", "value.*")
    rows = rows.where("payment IS NOT NULL AND cents IS NOT NULL").persist()
    rows.write.format("delta").mode("append").save(BRONZE)

    last = Window.partitionBy("payment").orderBy(F.desc("sequence"))
    latest = rows.withColumn("n", F.row_number().over(last)).where("n = 1").drop("n", "partition", "offset")
    silver = open_table(SILVER, latest)
    new = latest.join(silver.toDF(), "payment", "left_anti")
    minute = F.date_trunc("minute", "created_at").alias("minute")
    totals = new.groupBy(minute).agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
    gold = open_table(GOLD, totals).alias("t").merge(totals.alias("s"), "t.minute = s.minute")
    added = {name: F.expr(f"t.{name} + s.{name}") for name in ("payments", "cents")}
    gold.whenMatchedUpdate(set=added).whenNotMatchedInsertAll().execute()

    merge = silver.alias("t").merge(latest.alias("s"), "t.payment = s.payment")
    merge.whenMatchedUpdateAll("s.sequence > t.sequence").whenNotMatchedInsertAll().execute()
    rows.unpersist()


def open_table(path: str, frame: DataFrame) -> DeltaTable:
    return DeltaTable.createIfNotExists(spark).location(path).addColumns(frame.schema).execute()


options = {"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC, "maxOffsetsPerTrigger": BATCH}
stream = spark.readStream.format("kafka").options(**options).option("startingOffsets", "earliest").load()
query = stream.writeStream.foreachBatch(process).trigger(availableNow=True)
query.option("checkpointLocation", f"{LAKE}/checkpoint").start().awaitTermination()
