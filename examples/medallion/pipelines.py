"""Bronze, silver and gold at three grains: sensor readings land hourly, are cleaned daily, and aggregated monthly."""

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
    """Return the landed readings unchanged."""
    return landed


@once.pipeline(
    every="day",
    start="2024-03-29",
    reads=once.table("bronze.readings", time="at"),
    writes=once.replace_interval("silver.readings", time="day"),
    late="restate",
    lookback="3650 days",  # the data of this example is old; for current data a week is enough
)
def silver(readings: DataFrame) -> DataFrame:
    """Deduplicate to the last sent reading per sensor and time. An impossible value fails its day, and no other day."""
    problem = F.format_string("%s measured %s °C at %s", "sensor", "celsius", F.col("at").cast("string"))
    checked = F.when(F.col("celsius").between(-90, 60), F.col("celsius")).otherwise(
        F.raise_error(problem).cast("double")
    )
    last = once.latest(readings.withColumn("celsius", checked), keys=["sensor", "at"], by="sent")
    return last.withColumn("day", F.to_date("at"))


@once.pipeline(
    every="month",
    start="2024-02-01",
    reads=once.table("silver.readings", time="day"),
    writes=once.replace_interval("gold.months", time="month"),
)
def gold(readings: DataFrame) -> DataFrame:
    """Return the number of readings per sensor and month, and the coldest and the warmest."""
    groups = readings.groupBy(F.trunc("day", "month").alias("month"), "sensor")
    coldest, warmest = F.min("celsius").alias("coldest"), F.max("celsius").alias("warmest")
    return groups.agg(F.count("*").alias("readings"), coldest, warmest)
