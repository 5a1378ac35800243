"""Large files of which every value fits the schema: their rows are passed on to the write, and kept nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.packs import ENTRIES
from oncelake.sources.arrivals.parsing.part_rows import COUNTED_PARTS, PartCounter, PartReader
from oncelake.sources.arrivals.parsing.records import FileFormat
from oncelake.sources.arrivals.parts import Footer
from oncelake.sources.arrivals.schema_types import normalize
from oncelake.sources.arrivals.work_list import LINES, ROW_GROUPS, large_files, tasks_for, work_list
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Fewer bytes of lines are read once, and their rows are kept: that is quicker than another job.
COUNTED_BYTES = 64 << 20


class FittingFiles(NamedTuple):
    """How many rows each of the files has, and the entries of their parts, each with its rows."""

    rows: Mapping[int, int]
    parts: pa.Table


NONE = FittingFiles({}, ENTRIES.empty_table())


def fitting_row_groups(
    entries: pa.Table, footers: Mapping[int, Footer], file_format: FileFormat, schema: pa.Schema
) -> FittingFiles:
    """Return the Parquet files of which, by their footers, every column has the type of the schema."""
    local = _local(entries, schema)["file"].to_pylist()
    found = {file: footers[file] for file in local if file in footers and _fits(footers[file].schema, schema)}
    parts = work_list(_chosen(entries, found), file_format, ROW_GROUPS, footers=found).table
    return FittingFiles({file: footer.rows for file, footer in found.items()}, parts)


def fitting_lines(session: SparkSession, entries: pa.Table, file_format: FileFormat, schema: pa.Schema) -> FittingFiles:
    """Return the files of lines of which, by a job that counts them, every row can be read.

    To read a file twice is quicker than to keep its rows, and needs no memory for them.
    """
    local = _local(entries, schema)
    parts, _, split = work_list(local.filter(large_files(local, LINES)), file_format, LINES, len(schema))
    parts = _chosen(parts, split)
    if (pc.sum(parts["length"]).as_py() or 0) < COUNTED_BYTES:
        return NONE
    counted = _map(session, parts, PartCounter(file_format, schema), COUNTED_PARTS).toArrow().to_pylist()
    fitting = split.difference(each["file"] for each in counted if each["rows"] is None)
    rows = {(each["file"], each["offset"]): each["rows"] for each in counted}
    found = [entry | {"rows": rows[entry["file"], entry["offset"]]} for entry in _chosen(parts, fitting).to_pylist()]
    totals = {file: sum(entry["rows"] for entry in found if entry["file"] == file) for file in fitting}
    return FittingFiles(totals, pa.Table.from_pylist(found, schema=ENTRIES))


def read_fitting(
    session: SparkSession, parts: pa.Table, file_format: FileFormat, schema: pa.Schema, numbered: bool
) -> DataFrame:
    """Return the rows of parts of large files; with `numbered` also their file and number in it."""
    reader = PartReader(file_format, schema, numbered)
    return _map(session, parts, reader, reader.columns)


def spread(session: SparkSession, entries: pa.Table, tasks: int) -> DataFrame:
    """Return entries as a frame that is spread evenly over so many tasks; 0 leaves that to Spark."""
    frame = session.createDataFrame(entries)
    # From one partition rows are dealt out in turn, from several each starts anywhere.
    return frame.coalesce(1).repartition(min(tasks, entries.num_rows)) if tasks else frame


def _map(session: SparkSession, parts: pa.Table, function: PartCounter | PartReader, result: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks = tasks_for(pc.sum(parts["length"]).as_py())
    return spread(session, parts, tasks).mapInArrow(function, from_arrow_schema(result))


def _local(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the entries of local files: a task must see after its read whether the file is still as it was frozen."""
    known = bool(len(schema))  # of a schema without columns nothing can be said yet
    return entries.filter(pa.array([known and is_local(path) for path in entries["path"].to_pylist()], pa.bool_()))


def _chosen(entries: pa.Table, files: Collection[int]) -> pa.Table:
    return entries.filter(pc.is_in(entries["file"], value_set=pa.array(list(files), pa.int64())))


def _fits(given: pa.Schema, schema: pa.Schema) -> bool:
    matched, unmatched = FieldNames(schema.names).match(given.names)
    if unmatched or len(set(given.names)) < len(given.names):
        return False
    return all(_same(given.field(name).type, schema.field(column).type) for column, name in matched.items())


def _same(given: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        return bool(normalize(given) == wanted)
    except ValueError:  # a type that Spark does not have
        return False
