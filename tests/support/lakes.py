"""Small projects to test with, and the rows their tables hold, read without the code under test."""

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from oncelake.storage.objects import storage
from support.places import lake_of
from support.variants import VARIANTS, Variant

DAYS = ("2024-03-14", "2024-03-15", "2024-03-16")
PIPELINE = """
import oncelake as once
from pyspark.sql import functions as F


@once.pipeline(
    every="day", start="2024-03-14",
    reads={source},
    writes={writes},
)
def orders(files):
    at = F.to_timestamp("at")
    return files.select({columns})
"""
FILES = 'once.files("landing/{{start:%Y-%m-%d}}/*.json", schema="id long, amount double, at string"{reads})'
TABLE = 'once.table("bronze.orders", time="at")'
COLUMNS = '"id", F.expr("id % 100").alias("customer"), "amount", at.alias("ordered_at"), F.to_date(at).alias("day")'
SUMS = 'F.expr("id % 100").alias("id"), F.expr("CAST(amount * 100 AS BIGINT)").alias("cents")'


def orders_of(day: str, count: int = 3) -> list[dict]:
    number = DAYS.index(day) * 100 if day in DAYS else 0
    return [{"id": number + i, "amount": i * 1.5, "at": f"{day}T{i + 6:02}:30:00Z"} for i in range(count)]


def land(root: Path, day: str, orders: list[dict]) -> None:
    folder = root / "landing" / day
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders))


def make_project(root: Path, pipelines: str, settings: str = "lake: lake\npipelines: pipelines.py\n") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "oncelake.yaml").write_text(settings)
    (root / "pipelines.py").write_text(pipelines)
    return root


def orders_project(root: Path, variant: Variant | str, **reads: Any) -> Path:
    """Make a folder with three days of orders, written to silver.orders by one of the patterns."""
    found = VARIANTS[variant] if isinstance(variant, str) else variant
    options = "".join(f", {name}={value!r}" for name, value in reads.items())
    make_project(root, _pipeline(found, FILES.format(reads=options)))
    land_days(root)
    return root


def table_project(root: Path, variant: Variant | str) -> Path:
    """Make a folder like `orders_project` whose orders are rows of a table, spread over the day."""
    found = VARIANTS[variant] if isinstance(variant, str) else variant
    make_project(root, _pipeline(found, TABLE))
    orders = [order for day in DAYS for order in orders_of(day)]
    hours = {0: 6, 1: 13, 2: 20}
    times = [f"{order['at'][:11]}{hours[order['id'] % 100]:02}:30:00+00:00" for order in orders]
    columns = {"id": [order["id"] for order in orders], "amount": [order["amount"] for order in orders]}
    write_table(root, "bronze.orders", {**columns, "at": [datetime.fromisoformat(time) for time in times]})
    return root


def _pipeline(variant: Variant, source: str) -> str:
    return PIPELINE.format(writes=variant.source, source=source, columns=SUMS if variant.adds else COLUMNS)


def land_days(root: Path) -> None:
    """Land the orders of the three days."""
    for day in DAYS:
        land(root, day, orders_of(day))


def write_table(root: Path, table: str, columns: dict[str, Any], mode: str = "append", **options: Any) -> None:
    """Write a table of the lake without Spark: for what a test only reads."""
    path = root / "lake" / Path(*table.split("."))
    path.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(path), pa.table(columns), mode=mode, **options)


def table_of(root: Path, table: str) -> DeltaTable:
    """A table of the lake, as any Delta reader opens it."""
    path = f"{lake_of(root)}/{'/'.join(table.split('.'))}"
    return DeltaTable(path.replace("s3a://", "s3://"))


def rows(root: Path, table: str = "silver.orders") -> Counter:
    """The rows of a table, as any Delta reader sees them."""
    found = table_of(root, table).to_pyarrow_table().to_pylist()
    return Counter(tuple(sorted((key, str(value)) for key, value in row.items())) for row in found)


def ids(root: Path, table: str = "silver.orders") -> list[int]:
    """The ids in a table, sorted."""
    return sorted(row["id"] for row in table_of(root, table).to_pyarrow_table(columns=["id"]).to_pylist())


def expected_ids(variant: Variant | str, days: tuple[str, ...] = DAYS) -> list[int]:
    """Return the ids that one clean run of some days leaves."""
    found = VARIANTS[variant] if isinstance(variant, str) else variant
    return sorted(found.leaves([order["id"] for day in sorted(days) for order in orders_of(day)]))


def commits(root: Path, table: str = "silver.orders") -> int:
    """How many commits of a table carry a marker of ours."""
    log = storage(f"{lake_of(root)}/{'/'.join(table.split('.'))}/_delta_log")
    return sum(b'{"txn"' in log.read(name) for name in log.names() if name.endswith(".json"))


def settings_of(spark, folder: Path) -> dict[str, str]:
    """A session's settings after a bare Delta write: Delta itself notes its last commit there, and how it reads Parquet."""
    spark.range(1).write.format("delta").mode("append").save(str(folder / "bare"))
    noted = "spark.databricks.delta.lastCommitVersionInSession"
    return {key: value for key, value in dict(spark.conf.getAll).items() if key != noted}
