"""Large Parquet files whose columns have the types of the schema: their rows are passed on to the write, and kept nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.records import FileFormat
from oncelake.sources.arrivals.parsing.row_groups import RowGroupReader
from oncelake.sources.arrivals.parts import Footer
from oncelake.sources.arrivals.schema_types import normalize
from oncelake.sources.arrivals.work_list import ROW_GROUPS, work_list
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fitting_files(entries: pa.Table, footers: Mapping[int, Footer], schema: pa.Schema) -> dict[int, Footer]:
    """Return the footers of the files of which every column has the type of the schema, and nothing must be rescued.

    Only local ones: a task must see after its read whether the file is still as it was frozen.
    """
    paths = entries["path"]
    return {
        file: footer
        for file, footer in footers.items()
        if len(schema) and is_local(paths[file].as_py()) and _fits(footer.schema, schema)
    }


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


def read_fitting(
    session: SparkSession,
    entries: pa.Table,
    fitting: Mapping[int, Footer],
    file_format: FileFormat,
    schema: pa.Schema,
    numbered: bool,
) -> DataFrame:
    """Return the rows of large files, one row group after the other; with `numbered` also their file and number in it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    chosen = entries.filter(pc.is_in(entries["file"], value_set=pa.array(fitting, pa.int64())))
    parts = work_list(chosen, file_format, ROW_GROUPS, footers=fitting)
    reader = RowGroupReader(file_format, schema, numbered)
    return spread(session, parts.table, parts.tasks).mapInArrow(reader, from_arrow_schema(reader.columns))


def spread(session: SparkSession, entries: pa.Table, tasks: int) -> DataFrame:
    """Return entries as a frame that is spread evenly over so many tasks; 0 leaves that to Spark."""
    frame = session.createDataFrame(entries)
    # From one partition rows are dealt out in turn, from several each starts anywhere.
    return frame.coalesce(1).repartition(min(tasks, entries.num_rows)) if tasks else frame
