"""Small projects to test with, and the rows their tables hold, read without the code under test."""

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

DAYS = ("2024-03-14", "2024-03-15", "2024-03-16")
WRITES = {
    "replace_interval": 'once.replace_interval("silver.orders", time="ordered_at")',
    "replace_interval, partitioned": 'once.replace_interval("silver.orders", time="day", partition_by="day")',
    "replace_partitions": 'once.replace_partitions("silver.orders", by="day")',
    "overwrite": 'once.overwrite("silver.orders")',
    "append": 'once.append("silver.orders")',
    "merge": 'once.merge("silver.orders", keys="customer", latest_by="ordered_at", delete_when="id = 102")',
    "merge, partitioned": 'once.merge("silver.orders", keys=["id", "day"], latest_by="ordered_at", partition_by="day")',
    "scd2": 'once.scd2("silver.orders", keys="customer", latest_by="ordered_at", delete_when="id = 102")',
    "aggregate": 'once.aggregate("silver.orders", keys="id")',
    "aggregate, adding": 'once.aggregate("silver.orders", keys="id", add="cents")',
}
# Other shapes of patterns that are in the list already: `make prove` tries them.
MORE_OF_THE_SAME = ("replace_interval, partitioned", "merge, partitioned", "aggregate")


def variants():
    """The patterns as parameters of a test, further shapes of one marked as long."""
    return [pytest.param(n, marks=[pytest.mark.long] if n in MORE_OF_THE_SAME else [], id=n) for n in WRITES]


PIPELINE = """
import oncelake as once
from pyspark.sql import functions as F


@once.pipeline(
    every="day", start="2024-03-14",
    reads=once.files("landing/{{start:%Y-%m-%d}}/*.json", schema="id long, amount double, at string"{missing}),
    writes={writes},
)
def orders(files):
    at = F.to_timestamp("at")
    return files.select({columns})
"""
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


def orders_project(root: Path, writes: str, missing: str = "") -> Path:
    """Three days of orders, written to silver.orders by one of the patterns."""
    columns = SUMS if "add=" in writes else COLUMNS
    make_project(root, PIPELINE.format(writes=writes, missing=missing, columns=columns))
    for day in DAYS:
        land(root, day, orders_of(day))
    return root


def rows(root: Path, table: str = "silver.orders") -> Counter:
    """The rows of a table, as any Delta reader sees them."""
    path = root / "lake" / Path(*table.split("."))
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return Counter(tuple(sorted((key, str(value)) for key, value in row.items())) for row in found)


def ids(root: Path, table: str = "silver.orders") -> list[int]:
    """The ids in a table, sorted."""
    path = root / "lake" / Path(*table.split("."))
    return sorted(row["id"] for row in DeltaTable(str(path)).to_pyarrow_table(columns=["id"]).to_pylist())


def expected_ids(writes: str, days: tuple[str, ...] = DAYS) -> list[int]:
    """What one clean run leaves: every day's orders; of a reload the last day's, of a merge each customer's last."""
    found = [order["id"] for day in sorted(days) for order in orders_of(day)]
    if writes.startswith("once.overwrite"):
        found = found[-3:]
    if "delete_when" in writes:
        found = _without_deleted(found, history="scd2" in writes)
    if "add=" in writes:
        found = sorted({number % 100 for number in found})
    return sorted(found)


def _without_deleted(ids: list[int], history: bool) -> list[int]:
    """The orders that are left when a customer's last one stands for all, and order 102 deletes its customer."""
    if history:
        return [number for number in ids if number != 102]
    return [number for number in {number % 100: number for number in ids}.values() if number != 102]


def commits(root: Path, table: str = "silver.orders") -> int:
    """How many commits of a table carry a marker of ours."""
    log = root / "lake" / Path(*table.split(".")) / "_delta_log"
    return sum('{"txn"' in file.read_text() for file in log.glob("*.json"))


def settings_of(spark, folder: Path) -> dict[str, str]:
    """A session's settings after a bare Delta write: Delta itself notes its last commit there, and how it reads Parquet."""
    spark.range(1).write.format("delta").mode("append").save(str(folder / "bare"))
    noted = "spark.databricks.delta.lastCommitVersionInSession"
    return {key: value for key, value in dict(spark.conf.getAll).items() if key != noted}
