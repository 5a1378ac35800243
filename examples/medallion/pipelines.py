"""Bronze, silver, gold at three grains: readings of sensors land by the hour, are cleaned by the day, and summed up by the month."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import oncelake as once

READING = "sensor string, at timestamp, celsius double, sent timestamp"


@once.pipeline(
    every="hour",
    start="2024-03-29",
    reads=once.files("landing/{start:%Y-%m-%d}/{start:%H}.json", schema=READING, missing="empty"),
    writes=once.replace_interval("bronze.readings", time="at"),
)
def bronze(landed: DataFrame) -> DataFrame:
    """What landed, as it is."""
    return landed


@once.pipeline(
    every="day",
    start="2024-03-29",
    reads=once.table("bronze.readings", time="at"),
    writes=once.replace_interval("silver.readings", time="day"),
    late="restate",
    lookback="3650 days",  # the data of this example is old; a week would do for data of today
)
def silver(readings: DataFrame) -> DataFrame:
    """One reading per sensor and time, as it was last sent. What nobody can have measured fails its day, and no other."""
    told = F.format_string("%s measured %s °C at %s", "sensor", "celsius", F.col("at").cast("string"))
    checked = F.when(F.col("celsius").between(-90, 60), F.col("celsius")).otherwise(F.raise_error(told).cast("double"))
    last = once.latest(readings.withColumn("celsius", checked), keys=["sensor", "at"], by="sent")
    return last.withColumn("day", F.to_date("at"))


@once.pipeline(
    every="month",
    start="2024-02-01",
    reads=once.table("silver.readings", time="day"),
    writes=once.replace_interval("gold.months", time="month"),
)
def gold(readings: DataFrame) -> DataFrame:
    """How many readings there were of a sensor in a month, and the coldest and the warmest of them."""
    groups = readings.groupBy(F.trunc("day", "month").alias("month"), "sensor")
    coldest, warmest = F.min("celsius").alias("coldest"), F.max("celsius").alias("warmest")
    return groups.agg(F.count("*").alias("readings"), coldest, warmest)
