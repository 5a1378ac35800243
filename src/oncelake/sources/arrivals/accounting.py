"""The account of a batch: rows read = rows written + rows quarantined + rows filtered, for every file and for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from oncelake.errors import RowsUnaccounted
from oncelake.model.contracts import Pins, Reading
from oncelake.sources.arrivals.contents import Contents, find_copies, identity, to_hashes
from oncelake.sources.arrivals.manifests import LEFT, encode_files
from oncelake.sources.arrivals.parsing.packs import (
    BAD_ROW,
    COUNT,
    DRIFT,
    HASH,
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
# The counts without rows that are written already, by what they count.
REMAINING = {"rows": "remaining_rows", "bad": "remaining_bad"}


class RecordCounts(NamedTuple):
    """What the records of a batch came to: a row of counts for each file, and the values that do not fit the schema."""

    files: pa.Table
    drift: list[Drift]


def count_records(records: DataFrame) -> RecordCounts:
    """Count the records of a batch, in one job: it also computes them, if they are not computed yet."""
    is_row, is_bad, is_drift, is_hash = (F.col(KIND) == kind for kind in (ROW, BAD_ROW, DRIFT, HASH))
    # Drift is of no file. The counts of files have no column and no type.
    keys = (F.when(is_drift, F.col(REASON)).alias(_COLUMN), F.when(is_drift, F.col(RAW).cast("string")).alias(_TYPE))
    counts = records.groupBy(INDEX, *keys).agg(
        F.sum(F.when((F.col(KIND) == COUNT) | is_drift, F.col(NUMBER))).alias("read"),
        F.count_if(is_row).alias("rows"),
        F.count_if(is_bad).alias("bad"),
        F.count_if(is_bad & F.col(LINE_OF).isNull() & F.col(NUMBER).isNull()).alias("bad_files"),
        F.count_if(is_row & F.col(RESCUED_AS).isNotNull()).alias("rescued"),
        F.max(F.when(is_hash, F.col(LINE_OF))).alias("high"),
        F.max(F.when(is_hash, F.col(NUMBER))).alias("low"),
    )
    found = counts.toArrow()
    found = found.append_column("hash", to_hashes(found["high"], found["low"]))
    of_files = pc.is_valid(found[INDEX])
    drift = found.filter(pc.invert(of_files)).select([_COLUMN, _TYPE, "read"]).to_pylist()
    return RecordCounts(found.filter(of_files), [Drift(*each.values()) for each in drift])


def count_remaining(counts: pa.Table, records: DataFrame) -> pa.Table:
    """Return counts with those of the records that remain: rows of a retry that are written already count as filtered."""
    remaining = count_records(records).files
    position = pc.index_in(counts[INDEX], value_set=remaining[INDEX])
    for name, column in REMAINING.items():
        counts = counts.append_column(column, pc.fill_null(remaining[name].take(position), 0))
    return counts


class Copies(NamedTuple):
    """The hash of each file of a batch, and the files that have the content of another one; and whether those are skipped."""

    hashes: pa.ChunkedArray
    originals: Mapping[int, str]
    skipped: bool
    # Files that could not be read: another one with their content may be read some day.
    unreadable: frozenset[int]

    @classmethod
    def of(cls, counts: pa.Table, files: pa.Table, contents: Contents, number: int, skip: bool) -> Copies:
        """Compare the files of a batch with each other and with those of earlier batches. A file that cannot be read is no copy.

        A file with the content that it had before is none of another file. It counts only where rows would be there twice.
        """
        hashes = _in_order(counts, "hash", files, None)
        is_bad = pc.greater(_in_order(counts, "bad_files", files), 0).to_pylist()
        paths = files["path"].to_pylist()
        given = zip(is_bad, hashes.to_pylist(), paths, strict=True)
        texts = [None if bad or text is None else identity(text, path) for bad, text, path in given]
        found = find_copies(paths, texts, contents.find({text for text in texts if text is not None}, number))
        found = {at: original for at, original in found.items() if skip or original != paths[at]}
        return cls(hashes, found, skip and bool(found), frozenset(at for at, bad in enumerate(is_bad) if bad))

    def write(self, contents: Contents, files: pa.Table, number: int, replaces: bool) -> None:
        """Write the hashes of the files that are ingested, for later batches; or that these replace their earlier content."""
        texts, paths = self.hashes.to_pylist(), files["path"].to_pylist()
        left = {*self.unreadable, *(self.originals if self.skipped else ())}
        texts = [None if at in left else text for at, text in enumerate(texts)]
        kept = [at for at, text in enumerate(texts) if text is not None or replaces]
        contents.write(number, [paths[at] for at in kept], [texts[at] for at in kept], replaces)


def count_fitting(counts: pa.Table, fitting: Mapping[int, int]) -> pa.Table:
    """Return the counts with those of files whose rows are passed on: as many as were found in each, or the write fails."""
    found = [{INDEX: file, "read": rows, "rows": rows} for file, rows in fitting.items()]
    zeros = dict.fromkeys(_COUNTED, 0)
    schema = pa.schema({INDEX: pa.int64(), **dict.fromkeys(_COUNTED, pa.int64()), "hash": pa.string()})
    added = pa.Table.from_pylist([zeros | each for each in found], schema=schema)
    return pa.concat_tables([counts.select(schema.names).cast(schema), added]) if found else counts


@dataclass(frozen=True)
class Account:
    """The counts of each file of a batch, in the order of its manifest, and what was left out of it."""

    files: pa.Table
    counts: pa.Table
    pins: Pins
    schema: int
    copies: Copies

    @classmethod
    def of(
        cls, counts: pa.Table, kept: DataFrame | None, files: pa.Table, pins: Pins, schema: int, copies: Copies
    ) -> Account:
        """Return the account of the counted files; `kept` are the rows that a declared condition keeps, None for all."""
        columns = {name: _in_order(counts, name, files) for name in _COUNTED}
        left = REMAINING if REMAINING["rows"] in counts.column_names else {"rows": "rows", "bad": "bad"}
        columns |= {
            "kept": _in_order(counts, left["rows"], files),
            "quarantined": _in_order(counts, left["bad"], files),
        }
        if kept is not None:
            columns["kept"] = _in_order(kept.groupBy(INDEX).agg(F.count("*").alias("kept")).toArrow(), "kept", files)
        if copies.skipped:
            taken = pa.array([number not in copies.originals for number in range(files.num_rows)], pa.bool_())
            columns |= {name: pc.if_else(taken, columns[name], 0) for name in ("kept", "quarantined", "rescued")}
        return cls(files, pa.table(columns), pins, schema, copies)

    @property
    def quarantined(self) -> int:
        """The rows, and the files as a whole, that could not be read."""
        return self._total("quarantined")

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
        return {
            "files": self.files.num_rows,
            "rows_read": self._total("read"),
            "quarantined": self.quarantined,
            "filtered": self._total("read") - self._total("kept") - self.quarantined,
            "rescued": self._total("rescued"),
            "duplicates": len(self.copies.originals),
            "schema": self.schema,
            "accounts": encode_files(self.outcomes()),
        }

    def outcomes(self) -> pa.Table:
        """Return what became of every file of the batch."""
        counts = self.counts
        states = pc.if_else(pc.greater(counts["bad_files"], 0), "quarantined", "done")
        originals = pa.array([self.copies.originals.get(number) for number in range(self.files.num_rows)], pa.string())
        if self.copies.skipped:
            states = pc.if_else(pc.is_valid(originals), "duplicate", states)
        table = pa.table(
            {
                "path": self.files["path"],
                "size": self.files["size"],
                "modified": self.files["modified"],
                "state": states,
                "rows_read": counts["read"],
                "rows_written": counts["kept"],
                "rows_quarantined": counts["quarantined"],
                "rows_filtered": pc.subtract(pc.subtract(counts["read"], counts["kept"]), counts["quarantined"]),
                "hash": self.copies.hashes,
                "duplicate_of": originals,
            }
        )
        left = [(path, state) for state in LEFT for path in self.pins.get(state, ())]
        return pa.concat_tables([table, _left_out(left, table.schema)]) if left else table

    def _total(self, name: str) -> int:
        return int(pc.sum(self.counts[name]).as_py() or 0)


def _in_order(counts: pa.Table, name: str, files: pa.Table, missing: int | None = 0) -> pa.ChunkedArray:
    """Return a count for each file of the manifest; `missing` for one that has none."""
    position = pc.index_in(pa.array(range(files.num_rows), pa.int64()), value_set=counts[INDEX])
    found = counts[name].take(position)
    return found if missing is None else pc.fill_null(found, missing)


def _left_out(left: list[tuple[str, str]], schema: pa.Schema) -> pa.Table:
    """Return the files of a manifest that were not read: they changed after they were listed, or are gone."""
    zeros = {field.name: 0 for field in schema if field.type == pa.int64()}
    return pa.Table.from_pylist([{**zeros, "path": path, "state": state} for path, state in left], schema=schema)
