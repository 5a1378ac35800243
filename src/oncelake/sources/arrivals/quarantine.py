"""The quarantine of a pipeline: a Delta table of what could not be read, beside the targets.

The rows of a batch are replaced as a whole before its commit, so a retry leaves them once. They count when the targets
have the batch: until then the batch is not done, and will be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from oncelake.delta import writes
from oncelake.delta.log import find_log
from oncelake.model.contracts import Reading
from oncelake.model.failpoints import failpoint
from oncelake.sources.arrivals.parsing.packs import INDEX, LINE_OF, NUMBER, RAW, REASON
from oncelake.sources.arrivals.quarantine_table import QUARANTINED, quarantine_path
from oncelake.spark.session import has_leaked_txn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_quarantine(bad: DataFrame, files: pa.Table, reading: Reading, batch: int, count: int) -> None:
    """Replace the quarantined rows of a batch by those of this attempt."""
    path = quarantine_path(reading)
    log = find_log("quarantine", path)
    if not count and (log is None or str(batch) not in log.files.partition("batch").to_pylist()):
        return
    session = bad.sparkSession
    names = session.createDataFrame(
        pa.table({INDEX: pa.array(range(files.num_rows), pa.int64()), "file": files["path"]})
    )
    rows = bad.join(F.broadcast(names), INDEX).select(
        F.lit(batch).cast("long").alias("batch"),
        "file",
        F.col(LINE_OF).alias("line"),
        F.col(NUMBER).alias("offset"),
        F.col(RAW).alias("raw"),
        F.col(REASON).alias("reason"),
        F.current_timestamp().alias("at"),
        F.lit(QUARANTINED).alias("state"),
        F.lit(None).cast("long").alias("retried_in"),
    )
    if log is None:
        writes.create(rows, path, writes.Layout(partition_by=("batch",)))
    # A marker that a user left in the session's settings would make the write vanish; one of its own keeps it.
    own = {"txnAppId": f"quarantine {batch} {reading.where}", "txnVersion": "1"} if has_leaked_txn(session) else {}
    writer = rows.write.format("delta").mode("overwrite").options(**own)
    writer.option("replaceWhere", f"batch = {batch}").save(path)
    failpoint("prepared")
