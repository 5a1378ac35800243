"""A hand-written job with Spark's defaults that replaces one day of orders: `hand_written.py LANDING TABLE DAY`."""

import sys

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

landing, table, day = sys.argv[1:]
builder = (
    SparkSession.builder.appName("orders")
    .master("local[*]")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
orders = spark.read.json(f"{landing}/{day}/*.json").withColumn("ordered_at", F.to_timestamp("ordered_at"))
predicate = f"ordered_at >= '{day}' AND ordered_at < timestamp'{day}' + INTERVAL 1 DAY"
orders.write.format("delta").mode("overwrite").option("replaceWhere", predicate).save(table)
