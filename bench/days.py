"""A small project of daily orders, and two ways to run a day of it as a process."""

import json
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
FIRST = date(2024, 3, 1)
ORDERS = 100
PIPELINES = """
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline(
    every="day", start="2024-03-01",
    reads=once.files("landing/{start:%Y-%m-%d}/*.json"),
    writes=once.replace_interval("bronze.orders", time="ordered_at"),
)
def orders(files):
    return files.withColumn("ordered_at", F.to_timestamp("ordered_at"))
"""


def make_project(root, days):
    """Create a project with some days of orders."""
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PIPELINES)
    for number in range(days):
        day = FIRST + timedelta(days=number)
        folder = root / "landing" / str(day)
        folder.mkdir(parents=True)
        orders = ({"id": i, "amount": i / 3, "ordered_at": f"{day}T{i % 24:02}:30:00Z"} for i in range(ORDERS))
        (folder / "orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders))


def run_ours(root, day):
    """Run `oncelake run` for one day as a process."""
    subprocess.run([BIN / "oncelake", "run", "--date", day, "-p", root], check=True, capture_output=True)


def run_by_hand(root, day):
    """Run the hand-written job for one day as a process."""
    command = [sys.executable, HERE / "hand_written.py", root / "landing", root / "hand_written", day]
    subprocess.run(command, check=True, capture_output=True)
