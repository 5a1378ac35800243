"""Flights flown from New York, day by day."""

import sys

from pyspark.sql import DataFrame, SparkSession


def flights(landed: DataFrame) -> DataFrame:
    flown = landed.where("air_time <> 'NA'")
    return flown.selectExpr(
        "make_date(year, month, day) AS day", "carrier", "flight", "origin", "dest", "int(distance) AS miles"
    )


spark = SparkSession.builder.getOrCreate()
for day in sys.argv[1:]:
    landed = spark.read.csv(f"landing/flights/{day}/*.csv", header=True)
    flights(landed).write.format("delta").mode("append").save("naive-lake/silver/flights")
    print("done", day, flush=True)
