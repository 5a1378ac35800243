"""A quarantine: a Delta table of what could not be read, beside the targets of a pipeline.

The rows of a batch are replaced as a whole before its commit, so a retry leaves them once. They count when the targets
have the batch: until then the batch is not done, and will be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oncelake.delta import writes
from oncelake.delta.log import find_log
from oncelake.model.arrivals import QuarantinedRow
from oncelake.model.failpoints import failpoint
from oncelake.spark.session import has_leaked_txn
from oncelake.storage.options import delta_rs_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

QUARANTINED, RETRIED, DROPPED = "quarantined", "retried", "dropped"
# What a row in quarantine has beside its batch and its state.
COLUMNS = ("file", "line", "offset", "raw", "reason")


def replace_quarantined(bad: DataFrame, path: str, batch: int, count: int, where: str) -> None:
    """Replace the quarantined rows of a batch by those of this attempt: `bad` has the columns above, and so many rows."""
    from pyspark.sql import functions as F

    log = find_log("quarantine", path)
    if not count and (log is None or str(batch) not in log.files.partition("batch").to_pylist()):
        return
    session = bad.sparkSession
    rows = bad.select(
        F.lit(batch).cast("long").alias("batch"),
        *COLUMNS,
        F.current_timestamp().alias("at"),
        F.lit(QUARANTINED).alias("state"),
        F.lit(None).cast("long").alias("retried_in"),
    )
    if log is None:
        writes.create(rows, path, writes.Layout(partition_by=("batch",)))
    # A marker that a user left in the session's settings would make the write vanish; one of its own keeps it.
    own = {"txnAppId": f"quarantine {batch} {where}", "txnVersion": "1"} if has_leaked_txn(session) else {}
    writer = rows.write.format("delta").mode("overwrite").options(**own)
    writer.option("replaceWhere", f"batch = {batch}").save(path)
    failpoint("prepared")


def read_quarantined(path: str, done: int | None) -> pa.Table | None:
    """Return what is in quarantine, of the batches that the targets have; None if nothing ever was. Needs no JVM."""
    import pyarrow.compute as pc

    if done is None or find_log("quarantine", path) is None:
        return None
    found = _open(path).to_pyarrow_table()
    # The rows of a batch that is not done count for nothing: it will be read again.
    return found.filter(pc.less_equal(found["batch"], done)).sort_by(
        [("batch", "ascending"), ("file", "ascending"), ("line", "ascending"), ("offset", "ascending")]
    )


def quarantined_rows(table: pa.Table | None, kind: type[QuarantinedRow] = QuarantinedRow) -> Iterator[QuarantinedRow]:
    """Yield the rows of a quarantine, each with its number, by which commands name it."""
    for number, row in enumerate(table.to_pylist() if table is not None else (), 1):
        yield kind(number, **row)


def quarantined_places(path: str, batch: int) -> dict[str, list[int]]:
    """Return the messages of a batch that are or were in quarantine: the offsets of each topic and partition."""
    found: dict[str, list[int]] = {}
    if find_log("quarantine", path) is not None:
        table = _open(path).to_pyarrow_table(columns=["file", "offset"], filters=[("batch", "=", batch)])
        for row in table.to_pylist():
            found.setdefault(row["file"], []).append(row["offset"])
    return {file: sorted(offsets) for file, offsets in found.items()}


def change_quarantined(path: str, rows: Iterable[QuarantinedRow], state: str, retried_in: int | None = None) -> None:
    """Change the state of rows in quarantine, in one commit. Needs no JVM."""
    places: dict[tuple[int, str, int | None], list[int | None]] = {}
    for row in rows:
        places.setdefault((row.batch, row.file, row.line), []).append(row.offset)
    chosen = [_predicate(*place, offsets) for place, offsets in places.items()]
    if chosen:
        updates = {"state": f"'{state}'"} | ({} if retried_in is None else {"retried_in": str(retried_in)})
        _open(path).update(updates=updates, predicate=" OR ".join(chosen))


def _open(path: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path, storage_options=delta_rs_options(path))


def _predicate(batch: int, file: str, line: int | None, offsets: list[int | None]) -> str:
    """Return the condition of the rows at one place; many messages of one partition are one list."""
    file = file.replace("'", "''")
    at_line = "line IS NULL" if line is None else f"line = {line}"
    numbers = [str(offset) for offset in offsets if offset is not None]
    known = [f'"offset" IN ({", ".join(numbers)})'] if numbers else []
    unknown = ["offset IS NULL"] if None in offsets else []
    return f"(batch = {batch} AND file = '{file}' AND {at_line} AND ({' OR '.join([*known, *unknown])}))"
