"""Payments from Kafka: every message once in bronze, the latest state of a payment in silver, totals per minute in gold."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import oncelake as once

SCHEMA = (
    "payment string, sequence int, status string, merchant string, cents bigint, created_at timestamp, at timestamp"
)


@once.pipeline(
    reads=once.kafka(
        os.environ.get("PAYMENTS_TOPIC", "payments"),
        servers=os.environ.get("PAYMENTS_SERVERS", "localhost:9092"),
        value="json",
        schema=SCHEMA,
        max_messages=int(os.environ.get("PAYMENTS_BATCH", "500")),
    ),
    writes=[
        once.append("bronze.payments"),
        once.merge("silver.payments", keys="payment", latest_by=["sequence", "at"]),
    ],
)
def payments(messages: DataFrame) -> dict[str, DataFrame]:
    bronze = messages.select("partition", "offset", "value.*")
    return {"bronze.payments": bronze, "silver.payments": bronze.drop("partition", "offset")}


@once.pipeline(reads=once.changes("silver.payments"), writes=once.aggregate("gold.minutes", keys="minute"))
def minutes(changes: DataFrame) -> DataFrame:
    # A payment is inserted into silver once, however often its messages were sent: no duplicates are left to remove.
    new = changes.where("_change_type = 'insert'").withWatermark("created_at", "10 minutes")
    totals = new.groupBy(F.window("created_at", "1 minute").start.alias("minute"))
    return totals.agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
