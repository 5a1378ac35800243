"""The account of a batch: rows read = rows written + rows quarantined + rows filtered, for every file and for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from oncelake.errors import RowsUnaccounted
from oncelake.model.contracts import Pins, Reading
from oncelake.sources.arrivals.manifests import encode_files
from oncelake.sources.arrivals.parsing.packs import (
    BAD_ROW,
    COUNT,
    DRIFT,
    INDEX,
    KIND,
    LINE_OF,
    NUMBER,
    RAW,
    REASON,
    RESCUED_AS,
    ROW,
)
from oncelake.sources.arrivals.schema_inference import Drift

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTED = ("read", "rows", "bad", "bad_files", "rescued")
_COLUMN, _TYPE = "column", "type"


class RecordCounts(NamedTuple):
    """What the records of a batch came to: a row of counts for each file, and the values that do not fit the schema."""

    files: pa.Table
    drift: list[Drift]


def count_records(records: DataFrame) -> RecordCounts:
    """Count the records of a batch, in one job: it also computes them, if they are not computed yet."""
    is_row, is_bad, is_drift = (F.col(KIND) == kind for kind in (ROW, BAD_ROW, DRIFT))
    # Drift is of no file. The counts of files have no column and no type.
    keys = (F.when(is_drift, F.col(REASON)).alias(_COLUMN), F.when(is_drift, F.col(RAW).cast("string")).alias(_TYPE))
    counts = records.groupBy(INDEX, *keys).agg(
        F.sum(F.when((F.col(KIND) == COUNT) | is_drift, F.col(NUMBER))).alias("read"),
        F.count_if(is_row).alias("rows"),
        F.count_if(is_bad).alias("bad"),
        F.count_if(is_bad & F.col(LINE_OF).isNull() & F.col(NUMBER).isNull()).alias("bad_files"),
        F.count_if(is_row & F.col(RESCUED_AS).isNotNull()).alias("rescued"),
    )
    found = counts.toArrow()
    of_files = pc.is_valid(found[INDEX])
    drift = found.filter(pc.invert(of_files)).select([_COLUMN, _TYPE, "read"]).to_pylist()
    return RecordCounts(found.filter(of_files), [Drift(*each.values()) for each in drift])


@dataclass(frozen=True)
class Account:
    """The counts of each file of a batch, in the order of its manifest, and what was left out of it."""

    files: pa.Table
    counts: pa.Table
    pins: Pins
    schema: int

    @classmethod
    def of(cls, counts: pa.Table, kept: DataFrame | None, files: pa.Table, pins: Pins, schema: int) -> Account:
        """Return the account of the counted files; `kept` are the rows that a declared condition keeps, None for all."""
        columns = {name: _in_order(counts, name, files) for name in _COUNTED}
        columns["kept"] = columns["rows"]
        if kept is not None:
            columns["kept"] = _in_order(kept.groupBy(INDEX).agg(F.count("*").alias("kept")).toArrow(), "kept", files)
        return cls(files, pa.table(columns), pins, schema)

    @property
    def quarantined(self) -> int:
        """The rows, and the files as a whole, that could not be read."""
        return self._total("bad")

    def check(self, reading: Reading) -> None:
        """Raise RowsUnaccounted if the rows of a file do not add up; nothing is committed then."""
        lost = pc.not_equal(self.counts["read"], pc.add(self.counts["rows"], self.counts["bad"]))
        if pc.any(lost).as_py():
            path = self.files.filter(lost)["path"][0].as_py()
            read, rows, bad = (self.counts.filter(lost)[name][0].as_py() for name in ("read", "rows", "bad"))
            facts = {"pipeline": reading.pipeline, "slice": str(reading.slice), "path": path}
            raise RowsUnaccounted(read=read, written=rows, quarantined=bad, **facts)

    def facts(self) -> dict[str, Any]:
        """Return what the commit records."""
        rows, kept = self._total("rows"), self._total("kept")
        return {
            "files": self.files.num_rows,
            "rows_read": self._total("read"),
            "quarantined": self.quarantined,
            "filtered": rows - kept,
            "rescued": self._total("rescued"),
            "schema": self.schema,
            "accounts": encode_files(self.outcomes()),
        }

    def outcomes(self) -> pa.Table:
        """Return what became of every file of the batch."""
        counts = self.counts
        done = pa.array(["done"] * self.files.num_rows, pa.string())
        states = pc.if_else(pc.greater(counts["bad_files"], 0), pa.scalar("quarantined"), done)
        table = pa.table(
            {
                "path": self.files["path"],
                "size": self.files["size"],
                "modified": self.files["modified"],
                "state": states,
                "rows_read": counts["read"],
                "rows_written": counts["kept"],
                "rows_quarantined": counts["bad"],
                "rows_filtered": pc.subtract(counts["rows"], counts["kept"]),
            }
        )
        left = [(path, state) for state in ("changed", "gone") for path in self.pins.get(state, ())]
        return pa.concat_tables([table, _left_out(left, table.schema)]) if left else table

    def _total(self, name: str) -> int:
        return int(pc.sum(self.counts[name]).as_py() or 0)


def _in_order(counts: pa.Table, name: str, files: pa.Table) -> pa.ChunkedArray:
    """Return a count for each file of the manifest; 0 for one that has none."""
    position = pc.index_in(pa.array(range(files.num_rows), pa.int64()), value_set=counts[INDEX])
    return pc.fill_null(counts[name].take(position), 0)


def _left_out(left: list[tuple[str, str]], schema: pa.Schema) -> pa.Table:
    """Return the files of a manifest that were not read: they changed after they were listed, or are gone."""
    zeros = {name: 0 for name in schema.names if name not in ("path", "state")}
    return pa.Table.from_pylist([{**zeros, "path": path, "state": state} for path, state in left], schema=schema)
