"""Flights flown from New York, day by day."""

from pyspark.sql import DataFrame

import oncelake as once


@once.pipeline(
    every="day",
    start="2013-01-01",
    reads=once.files("landing/flights/{start:%Y-%m-%d}/*.csv"),
    writes=once.replace_interval("silver.flights", time="day"),
)
def flights(landed: DataFrame) -> DataFrame:
    flown = landed.where("air_time <> 'NA'")
    return flown.selectExpr(
        "make_date(year, month, day) AS day", "carrier", "flight", "origin", "dest", "int(distance) AS miles"
    )
