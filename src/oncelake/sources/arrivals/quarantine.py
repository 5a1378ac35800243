"""Put the rows of a batch that could not be read into the quarantine of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from oncelake.delta.quarantine import replace_quarantined
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.parsing.packs import BAD_ROW, INDEX, KIND, LINE_OF, NUMBER, RAW, REASON, ROW
from oncelake.sources.arrivals.quarantine_table import quarantine_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The rows of the files of a retry: the line of each, then batch, file, line and offset where it came from, and a digest.
Rows = Mapping[str, list[list[Any]]]

_LINE, _OFFSET, _WRITTEN = "__once_line_there", "__once_number_there", "__once_written"


def at_origins(records: DataFrame, files: pa.Table, rows: Rows, written: Mapping[str, list[int]]) -> DataFrame:
    """Return the records of a retry with their places in the files that they came from, without rows that are written already."""
    known = {path: index for index, path in enumerate(files["path"].to_pylist())}
    places = [
        (known[path], line, place[2], place[3], line in left)
        for path, each in rows.items()
        if path in known
        for left in [set(written.get(path, ()))]
        for line, *place in each
    ]
    schema = pa.schema({**dict.fromkeys((INDEX, LINE_OF, _LINE, _OFFSET), pa.int64()), _WRITTEN: pa.bool_()})
    table = pa.Table.from_pylist([dict(zip(schema.names, place, strict=True)) for place in places], schema=schema)
    found = records.join(F.broadcast(records.sparkSession.createDataFrame(table)), [INDEX, LINE_OF], "left")
    is_row = F.col(KIND).isin(ROW, BAD_ROW) & F.col(_WRITTEN).isNotNull()
    moved = {
        LINE_OF: F.when(is_row, F.col(_LINE)).otherwise(F.col(LINE_OF)),
        NUMBER: F.when(is_row, F.col(_OFFSET)).otherwise(F.col(NUMBER)),
    }
    found = found.where(~(is_row & F.col(_WRITTEN)))
    return found.select(*(moved.get(name, F.col(name)).alias(name) for name in records.columns))


def write_quarantine(bad: DataFrame, files: pa.Table, reading: Reading, batch: int, count: int) -> None:
    """Replace the quarantined rows of a batch by those of this attempt; `files` are those that the rows are of."""
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
