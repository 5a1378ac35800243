"""A small job that loads the classes pipelines need, run once so that the JVM can archive them (AppCDS)."""

from __future__ import annotations

import sys
from pathlib import Path

from oncelake.delta import writes
from oncelake.model.contracts import Stamp
from oncelake.model.markers import Marker
from oncelake.spark.session import open_session


def warm_up(folder: Path) -> None:
    """Read files, run every kind of write on a table, read it back, and wait until the JVM has exited."""
    (folder / "rows.json").write_text('{"id": 1, "day": "2024-03-15", "amount": 1.5}\n')
    session = open_session({})
    rows = session.read.json(str(folder / "rows.json")).selectExpr("id", "CAST(day AS DATE) AS day", "amount")
    table = str(folder / "table")
    writes.create(rows, table, writes.Layout(partition_by=("day",)))
    for number, write in enumerate((writes.append, writes.overwrite)):
        write(rows, table, Stamp(Marker("training", number), "{}"))
    for number in (2, 3):
        writes.replace(rows, table, "day = DATE'2024-03-15'", Stamp(Marker("training", number), "{}"))
    writes.table_at(session, table, 3).where("amount > 0").count()
    gateway = session.sparkContext._gateway  # noqa: SLF001  the JVM writes the archive when it exits
    assert gateway is not None
    session.stop()
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    warm_up(Path(sys.argv[1]))
