"""Put the rows of a batch that could not be read into the quarantine of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from oncelake.delta.quarantine import replace_quarantined
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.parsing.packs import INDEX, LINE_OF, NUMBER, RAW, REASON
from oncelake.sources.arrivals.quarantine_table import quarantine_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_quarantine(bad: DataFrame, files: pa.Table, reading: Reading, batch: int, count: int) -> None:
    """Replace the quarantined rows of a batch by those of this attempt."""
    names = bad.sparkSession.createDataFrame(
        pa.table({INDEX: pa.array(range(files.num_rows), pa.int64()), "file": files["path"]})
    )
    rows = bad.join(F.broadcast(names), INDEX).select(
        "file",
        F.col(LINE_OF).alias("line"),
        F.col(NUMBER).alias("offset"),
        F.col(RAW).alias("raw"),
        F.col(REASON).alias("reason"),
    )
    replace_quarantined(rows, quarantine_path(reading), batch, count, reading.where)
