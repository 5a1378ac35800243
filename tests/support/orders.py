"""The pipeline of orders as a real function, for tests that are not about loading a project's folder."""

from pathlib import Path
from typing import Any

import oncelake as once
from support.lakes import DAYS, land_days
from support.places import lake_of
from support.variants import VARIANTS, Variant

SCHEMA = "id long, amount double, at string"
FILES = "landing/{start:%Y-%m-%d}/*.json"


def orders_columns(files: Any) -> Any:
    """Return the orders of some files."""
    from pyspark.sql import functions as F

    at = F.to_timestamp("at")
    return files.select(
        "id", F.expr("id % 100").alias("customer"), "amount", at.alias("ordered_at"), F.to_date(at).alias("day")
    )


def sums_columns(files: Any) -> Any:
    """Return a number of cents for every customer."""
    from pyspark.sql import functions as F

    return files.select(F.expr("id % 100").alias("id"), F.expr("CAST(amount * 100 AS BIGINT)").alias("cents"))


def orders_pipeline(pattern: Any, columns: Any = orders_columns, missing: str = "error", **declared: Any) -> Any:
    """Declare the pipeline: days of files, written by a pattern."""

    @once.pipeline(
        every="day",
        start=DAYS[0],
        reads=once.files(FILES, schema=SCHEMA, missing=missing),
        writes=pattern,
        **declared,
    )
    def orders(files):
        return columns(files)

    return orders


def open_orders(root: Path, spark: Any, variant: Variant | str, **declared: Any) -> once.Project:
    """Land three days of orders in a folder, and return the project that writes them by one of the variants."""
    land_days(root)
    return reopen_orders(root, spark, variant, **declared)


def reopen_orders(root: Path, spark: Any, variant: Variant | str, **declared: Any) -> once.Project:
    """Return the project over the orders that are there."""
    found = VARIANTS[variant] if isinstance(variant, str) else variant
    pipeline = orders_pipeline(found.declared, sums_columns if found.adds else orders_columns, **declared)
    return once.Project.of(pipeline, lake=lake_of(root), root=root, spark=spark)
