"""A training run: pipelines of every kind on a few rows, so that the JVM can archive the classes that they load (AppCDS)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import oncelake as once
from oncelake.sources import files  # once.files, as mypy finds it here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncelake.declare.pipelines import Pipeline

_SCHEMA = "id bigint, day date, amount decimal(10,2)"


def train(folder: Path) -> None:
    """Run each pipeline on two batches of rows, and wait until the JVM has exited: it writes the archive then."""
    landing = folder / "landing"
    project = once.Project.of(*_pipelines(landing), lake=folder / "lake", root=folder)
    for number in (1, 2):
        day = f"2024-03-0{number}"
        _write_rows(landing / day, day, number)
        report = project.run(date=day)
        assert report.outcome == "done", [work.error for work in report.works]
    _stop(project)


def _pipelines(landing: Path) -> list[Pipeline]:
    """Return pipelines that read files and tables, by intervals, by arrivals and as a stream, and write by every pattern."""

    @once.pipeline(reads=files(str(landing), format="json"), writes=once.append("bronze.arrived"))
    def arrived(rows: DataFrame) -> DataFrame:
        return rows

    @once.pipeline(
        every="day",
        start="2024-03-01",
        reads=files(f"{landing}/{{start:%Y-%m-%d}}/*.json", format="json", schema=_SCHEMA),
        writes=[
            once.replace_interval("bronze.daily", time="day"),
            once.merge("silver.merged", keys="id", latest_by="day"),
        ],
    )
    def daily(rows: DataFrame) -> dict[str, DataFrame]:
        return {"bronze.daily": rows, "silver.merged": rows}

    @once.pipeline(
        every="day",
        start="2024-03-01",
        reads=once.table("bronze.daily", time="day"),
        writes=[
            once.scd2("gold.history", keys="id", latest_by="day"),
            once.aggregate("gold.totals", keys="day", add="amount"),
        ],
    )
    def gold(rows: DataFrame) -> dict[str, DataFrame]:
        return {"gold.history": rows, "gold.totals": rows.groupBy("day").sum("amount").toDF("day", "amount")}

    @once.pipeline(reads=once.changes("bronze.arrived"), writes=once.aggregate("gold.counts", keys="day"))
    def counts(rows: DataFrame) -> DataFrame:
        return rows.groupBy("day").count()

    return [arrived, daily, gold, counts]


def _write_rows(folder: Path, day: str, first: int) -> None:
    folder.mkdir(parents=True)
    rows = ({"id": each, "day": day, "amount": each / 8} for each in range(first, first + 5))
    (folder / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _stop(project: once.Project) -> None:
    session = project.session()
    gateway = session.sparkContext._gateway  # noqa: SLF001  pyspark offers no way to wait for its JVM
    assert gateway is not None
    session.stop()
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
