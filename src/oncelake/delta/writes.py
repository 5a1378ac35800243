"""Writes to a Delta table: append, replace, overwrite, merge, restore. Each is one commit with its marker and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelake.delta.conflicts import ErrorKind, TableChanged, classify
from oncelake.model.contracts import Stamp
from oncelake.model.failpoints import failpoint
from oncelake.model.markers import Marker
from oncelake.spark.connect import is_connect, one_write_at_a_time
from oncelake.spark.session import clone_session, own_session, with_settings
from oncelake.spark.sql import TARGET, identifier, typed_literal
from oncelake.storage.options import delta_rs_options
from oncelake.storage.paths import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType


# Below this size planning is most of the cost of a merge.
SMALL = 64 * 1024 * 1024
_QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True)
class Layout:
    """How a table's files are laid out when it is created, and whether they are compacted later."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    deletion_vectors: bool = False
    compact: bool = False


def table_at(session: SparkSession, path: str, version: int) -> DataFrame:
    """Return a table as of one version."""
    return session.read.format("delta").option("versionAsOf", version).load(path)


def create(frame: DataFrame, path: str, layout: Layout) -> None:
    """Create the table for a frame, without its rows and without a marker.

    A `replaceWhere` that creates its table checks nothing, so the table must exist before the first rows are written.
    delta-rs creates it in one atomic file. Spark leaves an incomplete log behind when it is killed, and then refuses to
    create the table: it is used only for types that delta-rs does not know.
    """
    _require_delta(frame.sparkSession, path)
    schema = _nullable(frame.schema)
    try:
        _create_without_jvm(path, schema, layout)
    except Exception:  # noqa: BLE001  a type or a store that delta-rs does not know
        by = f" PARTITIONED BY ({_names(layout.partition_by)})" if layout.partition_by else ""
        statement = f"CREATE TABLE IF NOT EXISTS delta.{identifier(path)} ({schema.toDDL()}) USING delta{by}"
        frame.sparkSession.sql(statement)


def _require_delta(session: SparkSession, path: str) -> None:
    """Raise what Spark raises if it has no Delta: delta-rs would create a table that the session cannot write."""
    try:
        _ = session.read.format("delta").load(path).schema
    except Exception as error:
        if classify(error) is ErrorKind.NO_DELTA:
            raise


def apply_layout(session: SparkSession, path: str, layout: Layout) -> None:
    """Set clustering and deletion vectors of a table that has no rows yet, in commits without a marker.

    delta-rs cannot: it knows no clustering, and with deletion vectors it adds the feature `variantType`, which readers refuse.
    """
    if layout.cluster_by:
        session.sql(f"ALTER TABLE delta.{identifier(path)} CLUSTER BY ({_names(layout.cluster_by)})")
    if layout.deletion_vectors:
        properties = "('delta.enableDeletionVectors' = 'true')"
        session.sql(f"ALTER TABLE delta.{identifier(path)} SET TBLPROPERTIES {properties}")


def _create_without_jvm(path: str, schema: StructType, layout: Layout) -> None:
    from deltalake import DeltaTable, Schema

    place = str(local_path(path)) if is_local(path) else path
    fields = Schema.from_json(schema.json())
    options, by = delta_rs_options(path), list(layout.partition_by)
    DeltaTable.create(place, schema=fields, partition_by=by, mode="ignore", storage_options=options)


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(identifier(column) for column in columns)


def partitions_of(frame: DataFrame, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the partitions a frame has rows for: their values as literals, by column."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    texts = [f"CAST({identifier(column)} AS STRING) AS {identifier(column)}" for column in columns]
    rows = frame.selectExpr(*texts).distinct().collect()
    found = [{column: typed_literal(row[column], kinds[column]) for column in columns} for row in rows]
    return sorted(found, key=repr)


def append(frame: DataFrame, path: str, stamp: Stamp, evolve: bool = False) -> None:
    """Append the rows; with `evolve` the table takes the columns that it lacks, in the same commit."""
    with one_write_at_a_time(frame.sparkSession):
        writer = _writer(frame, stamp).mode("append")
        (writer.option("mergeSchema", "true") if evolve else writer).save(path)


def mark(session: SparkSession, path: str, stamp: Stamp) -> None:
    """Commit a stamp without data."""
    append(session.read.format("delta").load(path).limit(0), path, stamp)


def restore(path: str, read: int, version: int, markers: Sequence[Marker], facts: str) -> None:
    """Restore a version in one commit that carries many markers. Spark's RESTORE takes one at most; this needs no JVM.

    The commit follows directly on the version that was `read`: the markers say so, and delta-rs refuses a version that is taken.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction

    transactions = [Transaction(marker.app_id, marker.version) for marker in markers]
    table = DeltaTable(str(local_path(path)) if is_local(path) else path, storage_options=delta_rs_options(path))
    if table.version() != read:
        raise TableChanged(
            f"version {table.version()} of the table came after version {read}, from which this was planned"
        )
    table.restore(
        version,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": facts}, app_transactions=transactions),
    )


def clear(path: str, stamp: Stamp, session: Callable[[], SparkSession]) -> None:
    """Remove all rows of a table in one commit that carries the stamp, also if it has none.

    A session is started only for tables with features that delta-rs does not write.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction

    place = str(local_path(path)) if is_local(path) else path
    marker = [Transaction(stamp.marker.app_id, stamp.marker.version)]
    properties = CommitProperties(custom_metadata={"userMetadata": stamp.facts}, app_transactions=marker)
    failpoint("committing")
    try:
        table = DeltaTable(place, storage_options=delta_rs_options(path))
        by = table.metadata().partition_columns
        table.create_write_transaction([], "overwrite", table.schema(), by, commit_properties=properties)
    except Exception as error:
        if "eature" not in str(error):
            raise
        overwrite(session().read.format("delta").load(path).limit(0), path, stamp)


def replace(frame: DataFrame, path: str, predicate: str, stamp: Stamp, evolve: bool = False) -> None:
    """Replace the rows that the predicate matches (`replaceWhere`); rows outside it are refused."""
    with one_write_at_a_time(frame.sparkSession):
        writer = _writer(frame, stamp).mode("overwrite").option("replaceWhere", predicate)
        (writer.option("mergeSchema", "true") if evolve else writer).save(path)


def overwrite(frame: DataFrame, path: str, stamp: Stamp, new_schema: bool = False) -> None:
    """Replace all rows of the table, with `new_schema` also its columns."""
    # Explicit, because a user's session may set dynamic mode, which keeps partitions that became empty.
    writer = _writer(frame, stamp).mode("overwrite").option("partitionOverwriteMode", "static")
    with one_write_at_a_time(frame.sparkSession):
        (writer.option("overwriteSchema", "true") if new_schema else writer).save(path)


@dataclass(frozen=True)
class Clauses:
    """The clauses of a MERGE; None leaves one out. `s` is the batch, `once_table` the table."""

    on: str
    delete: Column | None = None
    update: Column | None = None
    sets: Mapping[str, Column] | None = None
    insert: Column | None = None
    values: Mapping[str, Column] | None = None
    evolve: bool = False


def merge(rows: DataFrame, path: str, clauses: Clauses, stamp: Stamp, quick: bool) -> None:
    """Merge (upsert) the rows in a session of its own: MERGE takes its marker from the session's settings only.

    `quick` is for few rows, and files so small that planning is most of the cost.
    """
    settings = {**_settings(stamp), **(_QUICK if quick else {})}
    failpoint("committing")
    if is_connect(rows.sparkSession):
        _merge_into(rows, path, clauses, settings)
        return
    from delta.tables import DeltaTable

    own = clone_session(rows.sparkSession)
    for key, value in settings.items():
        own.conf.set(key, value)
    merging = DeltaTable.forPath(own, path).alias(TARGET).merge(rows.alias("s"), clauses.on)
    if clauses.evolve:
        merging = merging.withSchemaEvolution()
    if clauses.delete is not None:
        merging = merging.whenMatchedDelete(clauses.delete)
    if clauses.sets:
        merging = merging.whenMatchedUpdate(clauses.update, dict(clauses.sets))
    if clauses.values:
        merging = merging.whenNotMatchedInsert(clauses.insert, dict(clauses.values))
    merging.execute()


def _merge_into(rows: DataFrame, path: str, clauses: Clauses, settings: Mapping[str, str]) -> None:
    """Merge under Connect, in the session that has the rows: another one does not see what was computed there.

    The settings are taken out again, however it ends, and no other write of ours runs in the session meanwhile. A view
    gives the table its name in the clauses, which `mergeInto` cannot.
    """
    from pyspark.sql import functions as F

    session = rows.sparkSession
    with one_write_at_a_time(session), _named(session, path), with_settings(session, settings):
        merging = rows.alias("s").mergeInto(TARGET, F.expr(clauses.on))
        if clauses.evolve:
            merging = merging.withSchemaEvolution()
        if clauses.delete is not None:
            merging = merging.whenMatched(clauses.delete).delete()
        if clauses.sets:
            merging = merging.whenMatched(clauses.update).update(dict(clauses.sets))
        if clauses.values:
            merging = merging.whenNotMatched(clauses.insert).insert(dict(clauses.values))
        merging.merge()


@contextmanager
def _named(session: SparkSession, path: str) -> Iterator[None]:
    """Let a view stand for the table inside the block."""
    session.read.format("delta").load(path).createOrReplaceTempView(TARGET)
    try:
        yield
    finally:
        session.catalog.dropTempView(TARGET)


def change(session: SparkSession, path: str, condition: str, sets: Mapping[str, str] | None = None) -> None:
    """Update or delete rows of an internal table, without a marker."""
    table = f"delta.{identifier(path)}"
    assignments = ", ".join(f"{identifier(name)} = {value}" for name, value in (sets or {}).items())
    with own_session(session) as own:
        doing = f"UPDATE {table} SET {assignments}" if sets else f"DELETE FROM {table}"  # noqa: S608  quoted names, typed literals
        own.sql(f"{doing} WHERE {condition}")


def _settings(stamp: Stamp) -> dict[str, str]:
    return {
        "spark.databricks.delta.write.txnAppId": stamp.marker.app_id,
        "spark.databricks.delta.write.txnVersion": str(stamp.marker.version),
        "spark.databricks.delta.commitInfo.userMetadata": stamp.facts,
        # The rows come from a checkpoint of their own; Delta would copy them once more to be sure that they stay the same.
        "spark.databricks.delta.merge.materializeSource": "none",
    }


def _writer(frame: DataFrame, stamp: Stamp) -> DataFrameWriter:
    failpoint("committing")
    return (
        frame.write.format("delta")
        .option("txnAppId", stamp.marker.app_id)
        .option("txnVersion", stamp.marker.version)
        .option("userMetadata", stamp.facts)
    )


def _nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, nullable=True, metadata=f.metadata) for f in schema.fields])
