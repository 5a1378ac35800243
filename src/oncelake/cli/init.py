"""The project that `oncelake init` creates: small, with sample data, ready to run."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oncelake.errors import NotEmpty

_SETTINGS = """\
# An oncelake project. Relative paths start in this folder.
id: "{id}"   # recorded in every commit: keep it
lake: lake                # table silver.orders is stored in lake/silver/orders
pipelines: pipelines.py   # files or folders, Python or YAML
"""

_PIPELINES = """\
import oncelake as once
from pyspark.sql import DataFrame, functions as F


@once.pipeline(
    every="day", start="{start}",
    reads=once.files("landing/orders/{{start:%Y-%m-%d}}/*.json"),
    writes=once.replace_interval("bronze.orders", time="ordered_at"),
)
def bronze(files: DataFrame) -> DataFrame:
    return files.withColumn("ordered_at", F.to_timestamp("ordered_at"))


@once.pipeline(
    every="day", start="{start}",
    reads=once.table("bronze.orders", time="ordered_at"),
    writes=once.replace_interval("silver.orders", time="order_date"),
)
def orders(bronze: DataFrame) -> DataFrame:
    return bronze.where("amount > 0").withColumn("order_date", F.to_date("ordered_at"))
"""

_GITIGNORE = "lake/\n__pycache__/\n"


def create_project(folder: str) -> list[str]:
    """Create the project, with orders of the last three days, in a new or empty folder. Return the files written."""
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise NotEmpty(path=folder)
    today = datetime.now(UTC).date()
    days = [str(today - timedelta(days=back)) for back in (3, 2, 1)]
    files = {
        "oncelake.yaml": _SETTINGS.format(id=uuid.uuid4().hex),
        "pipelines.py": _PIPELINES.format(start=days[0]),
        ".gitignore": _GITIGNORE,
    }
    files |= {f"landing/orders/{day}/orders.json": _orders(number, day) for number, day in enumerate(days)}
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return list(files)


def _orders(number: int, day: str) -> str:
    """Return ten orders of a day; one is a refund, which the second pipeline filters out."""
    orders = (
        {
            "id": number * 10 + i,
            "customer": f"customer-{(number * 10 + i) % 7}",
            "amount": -5.0 if i == 4 else 10.0 + i,
            "ordered_at": f"{day}T{8 + i:02}:30:00Z",
        }
        for i in range(10)
    )
    return "".join(json.dumps(order) + "\n" for order in orders)
