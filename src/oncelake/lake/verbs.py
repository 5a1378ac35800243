"""What can be done to a Delta table, each verb exactly one commit that carries its marker and facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.contracts import Stamp
from oncelake.lake.literals import identifier, typed_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Layout:
    """How a table's files are laid out when it is created."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()


def table_at(session: SparkSession, path: str, version: int) -> DataFrame:
    """A table as of one version."""
    return session.read.format("delta").option("versionAsOf", version).load(path)


def create(frame: DataFrame, path: str, layout: Layout) -> None:
    """Create the table a frame fits into, without its rows and without a marker: a commit that does no work.

    A replace that creates its table checks nothing, so the table must be there before the first rows are. And it is
    made by SQL: a writer would leave a data file before the log exists, and drop a clustering without a word.
    """
    columns = _nullable(frame.schema).toDDL()
    layouts = {"PARTITIONED BY": layout.partition_by, "CLUSTER BY": layout.cluster_by}
    clauses = [f" {word} ({', '.join(map(identifier, names))})" for word, names in layouts.items() if names]
    statement = f"CREATE TABLE IF NOT EXISTS delta.{identifier(path)} ({columns}) USING delta{''.join(clauses)}"
    frame.sparkSession.sql(statement)


def partitions_of(frame: DataFrame, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The partitions a frame has rows for, their values as literals by column."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    texts = [f"CAST({identifier(column)} AS STRING) AS {identifier(column)}" for column in columns]
    rows = frame.selectExpr(*texts).distinct().collect()
    found = [{column: typed_literal(row[column], kinds[column]) for column in columns} for row in rows]
    return sorted(found, key=repr)


def append(frame: DataFrame, path: str, stamp: Stamp) -> None:
    """Add the rows."""
    _writer(frame, stamp).mode("append").save(path)


def replace(frame: DataFrame, path: str, predicate: str, stamp: Stamp) -> None:
    """Put the rows in the place of those the predicate matches; rows it does not match are refused."""
    _writer(frame, stamp).mode("overwrite").option("replaceWhere", predicate).save(path)


def overwrite(frame: DataFrame, path: str, stamp: Stamp) -> None:
    """Put the rows in the place of all there are."""
    # Said aloud, because a user's session may ask for the other mode, which would keep partitions that became empty.
    _writer(frame, stamp).mode("overwrite").option("partitionOverwriteMode", "static").save(path)


def _writer(frame: DataFrame, stamp: Stamp) -> DataFrameWriter:
    return (
        frame.write.format("delta")
        .option("txnAppId", stamp.marker.app_id)
        .option("txnVersion", stamp.marker.version)
        .option("userMetadata", stamp.facts)
    )


def _nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, nullable=True, metadata=f.metadata) for f in schema.fields])
