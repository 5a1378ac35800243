"""Read one batch with Spark: executors parse the files of its manifest, and every row is accounted for before the commit."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from oncelake.model.contracts import Pins, Reading
from oncelake.model.slices import Slice
from oncelake.sources.arrivals.accounting import Account, count_records
from oncelake.sources.arrivals.arriving import PROVENANCE
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.current_files import full_path
from oncelake.sources.arrivals.discovery import partition_values
from oncelake.sources.arrivals.parsing.packs import (
    BAD_ROW,
    DATA,
    INDEX,
    KIND,
    LINE_OF,
    RESCUED_AS,
    ROW,
    PackReader,
)
from oncelake.sources.arrivals.pinning import evolve_schema, partition_drift, pin_schema
from oncelake.sources.arrivals.quarantine import write_quarantine
from oncelake.sources.arrivals.schema_inference import Drift
from oncelake.sources.arrivals.schema_store import PinnedSchema, SchemaStore
from oncelake.sources.arrivals.work_list import work_list
from oncelake.spark.materialize import materialize
from oncelake.spark.package import ship_package
from oncelake.spark.sql import identifier
from oncelake.storage.options import is_s3, options_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from oncelake.sources.arrivals.arriving import ArrivingFiles

# A batch is read again when its files have columns that the schema lacks; nested ones may take several rounds.
_TRIES = 5
# What the folders of a file say of it, beside its rows.
_PATH, _MODIFIED, _FOLDER = "__once_path", "__once_modified", "__once_folder "


class BatchRead:
    """The rows of one batch, computed once, and the account of them."""

    def __init__(
        self, session: SparkSession, source: ArrivingFiles, reading: Reading, backlog: Backlog, pins: Pins
    ) -> None:
        """Nothing is read yet."""
        self.session, self.source, self.reading, self.backlog, self.pins = session, source, reading, backlog, pins

    def __call__(self, slice_: Slice) -> DataFrame:  # noqa: ARG002  the contract; a batch is not cut further
        """Return the rows that are passed to the function."""
        return self._computed[0]

    def facts(self) -> dict[str, Any]:
        """Return what the commit records of the files and their rows."""
        return self._computed[1].facts()

    def replaced_files(self) -> tuple[str, ...]:
        """Return the files whose earlier rows are replaced by this batch."""
        manifest = self.backlog.manifests.load(self.pins["manifest"])
        return tuple(self.files["path"].to_pylist()) if manifest.facts.get("replaces") else ()

    @cached_property
    def files(self) -> pa.Table:
        """The files that are read; their index is the number of their row."""
        return self.backlog.pinned_files(self.pins)

    @cached_property
    def _computed(self) -> tuple[DataFrame, Account]:
        records, counts, pinned = self._parse()
        flat = self._flatten(records, pinned)
        rows = flat.where(F.col(KIND) == ROW)
        kept = None if self.source.where is None else rows.where(self.source.where)
        account = Account.of(counts, kept, self.files, self.pins, pinned.version)
        account.check(self.reading)
        bad = records.where(F.col(KIND) == BAD_ROW)
        write_quarantine(bad, self.files, self.reading, self.pins["manifest"], account.quarantined)
        return (rows if kept is None else kept).select(*self._columns(pinned)), account

    def _parse(self) -> tuple[DataFrame, pa.Table, PinnedSchema]:
        """Return the records of all files, computed and counted; the schema grows until every value that may have a column has one."""
        ship_package(self.session)
        store = SchemaStore(self.backlog.manifests.folder)
        pinned = pin_schema(self.source, store, self.files, self.reading)
        pinned = evolve_schema(self.source, store, pinned, self._folder_drift(pinned), self.reading)
        for _ in range(_TRIES):
            # The job that counts them computes them.
            records = materialize(self._records(pinned), eager=False)
            counts = count_records(records)
            following = evolve_schema(self.source, store, pinned, counts.drift, self.reading)
            if following.version == pinned.version:
                break
            pinned = following
        return records, counts.files, pinned

    def _records(self, pinned: PinnedSchema) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        root, file_format = self.reading.lake.file(""), self.source.file_format
        entries = work_list(self.files, self.source.splittable, root)
        first = full_path(self.files["path"][0].as_py(), root) if self.files.num_rows else ""
        reader = PackReader(file_format, pinned.schema, options_for(first) if is_s3(first) else None)
        frame = self.session.createDataFrame(entries.table)
        frame = frame.repartition(entries.tasks) if entries.tasks else frame
        return frame.mapInArrow(reader, from_arrow_schema(reader.records))

    def _folder_drift(self, pinned: PinnedSchema) -> list[Drift]:
        known = {name.casefold() for name in pinned.schema.names}
        return [drift for drift in partition_drift(self.files) if drift.column.casefold() not in known]

    def _flatten(self, records: DataFrame, pinned: PinnedSchema) -> DataFrame:
        """Return the records with the columns of the rows, and what the path of the file says, where that is asked for."""
        folders = sorted({drift.column for drift in partition_drift(self.files)} & set(pinned.schema.names))
        data = {name: F.col(f"{DATA}.{identifier(name)}") for name in pinned.schema.names}
        if folders or self.source.provenance:
            records = records.join(F.broadcast(self._file_facts(folders)), INDEX, "left")
            types = {field.name: field.dataType for field in records.schema[DATA].dataType.fields}  # type: ignore[attr-defined]
            for name in folders:
                data[name] = F.coalesce(data[name], F.col(identifier(_FOLDER + name)).cast(types[name]))
        others = [name for name in records.columns if name != DATA]
        return records.select(*map(identifier, others), *(column.alias(name) for name, column in data.items()))

    def _file_facts(self, folders: list[str]) -> DataFrame:
        paths = self.files["path"].to_pylist()
        values = [partition_values(path) if folders else {} for path in paths]
        columns: dict[str, Any] = {
            INDEX: pa.array(range(len(paths)), pa.int64()),
            _PATH: self.files["path"],
            _MODIFIED: self.files["modified"],
            **{_FOLDER + name: pa.array([each.get(name) for each in values], pa.string()) for name in folders},
        }
        return self.session.createDataFrame(pa.table(columns))

    def _columns(self, pinned: PinnedSchema) -> list[Column]:
        provenance = {
            "file": lambda: F.col(_PATH),
            "batch": lambda: F.lit(self.pins["manifest"]).cast("long"),
            "modified": lambda: F.timestamp_micros((F.col(_MODIFIED) / 1000).cast("long")),
            "row": lambda: F.col(LINE_OF),
        }
        columns = [F.col(identifier(name)) for name in pinned.schema.names]
        columns.append(F.col(RESCUED_AS).alias(self.source.rescued))
        return columns + [provenance[name]().alias(PROVENANCE[name]) for name in self.source.provenance]
