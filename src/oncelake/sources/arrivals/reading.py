"""Read one batch with Spark: executors parse the files of its manifest, and every row is accounted for before the commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from oncelake.delta.conflicts import TableChanged, one_line
from oncelake.errors import BadDeclaration
from oncelake.model.arrivals import CountedRead
from oncelake.model.contracts import Pins, Reading
from oncelake.model.slices import Slice
from oncelake.sources.arrivals.accounting import (
    Account,
    Copies,
    RecordCounts,
    count_fitting,
    count_records,
    count_remaining,
)
from oncelake.sources.arrivals.arriving import PROVENANCE
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.current_files import compare
from oncelake.sources.arrivals.fitting_files import (
    NONE,
    FittingFiles,
    fitting_lines,
    fitting_row_groups,
    read_fitting,
    spread,
)
from oncelake.sources.arrivals.folder_values import FolderValues, folder_columns
from oncelake.sources.arrivals.manifests import CHANGED, GONE
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
from oncelake.sources.arrivals.parsing.part_rows import NOT_AS_EXPECTED
from oncelake.sources.arrivals.parts import Footer
from oncelake.sources.arrivals.pinning import evolve_schema, first_schema, held_back, partition_drift
from oncelake.sources.arrivals.quarantine import at_origins, write_quarantine
from oncelake.sources.arrivals.schema_inference import Drift, match_name
from oncelake.sources.arrivals.schema_store import PinnedSchema, SchemaStore
from oncelake.sources.arrivals.work_list import (
    LINES,
    ROW_GROUPS,
    WorkList,
    entries_of,
    find_footers,
    without,
    work_list,
)
from oncelake.spark.materialize import materialize
from oncelake.spark.package import ship_package
from oncelake.spark.sql import identifier
from oncelake.storage.options import is_s3, options_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from oncelake.sources.arrivals.arriving import ArrivingFiles

# A batch is read again when its files have columns that the schema lacks; nested ones may take several rounds.
_TRIES = 5
_EXAMPLES = 3
# What the folders of a file say of it, beside its rows.
_PATH, _MODIFIED = "__once_path", "__once_modified"
# Batches, by folder and number, that a write could not read by itself: their rows are kept before the write.
_kept_batches: set[tuple[str, int]] = set()


class BatchRead(CountedRead):
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
        redo = {"redo": True} if self._is_redo else {}
        return self._computed[1].facts() | {"frozen": dict(self._frozen_facts)} | redo

    def replaced_files(self) -> tuple[str, ...]:
        """Return the files whose earlier rows are replaced by this batch."""
        return tuple(self.files["path"].to_pylist()) if self._frozen_facts.get("replaces") else ()

    @cached_property
    def files(self) -> pa.Table:
        """The files that are read; their index is the number of their row."""
        return self.backlog.pinned_files(self.pins)

    @cached_property
    def _origins(self) -> pa.Table:
        """The files that the rows are of: those of a retry could not be read from an earlier file."""
        origins = self._frozen_facts.get("origins", {})
        return pa.table(
            {"path": pa.array([origins.get(each, each) for each in self.files["path"].to_pylist()], "string")}
        )

    def read_again(self, error: Exception) -> bool:
        """Return whether the batch must be read once more because of an error, and see to it that its rows are kept then."""
        # An error of ours has the first line of Spark's.
        if NOT_AS_EXPECTED not in f"{error}{error.__cause__}":
            return False
        _kept_batches.add(self._identity)
        return True

    @property
    def _identity(self) -> tuple[str, int]:
        return self.backlog.manifests.folder, self.pins["manifest"]

    @cached_property
    def _computed(self) -> tuple[DataFrame, Account, str | None]:
        """Read the files. Large ones that fit the schema are read by the write itself, the others before it."""
        ship_package(self.session)
        entries = entries_of(self.files, self.reading.lake.file(""))
        footers = find_footers(entries) if self.source.split_by == ROW_GROUPS else {}
        pinned = self._pinned_schema()
        fitting = self._fitting(entries, footers, pinned)
        others = without(entries, fitting.rows)
        records, found, pinned = self._parse(others, footers, pinned)
        self._verify(others)
        pinned = self._store.pin(pinned, self.pins["manifest"])
        counts = count_fitting(found.files, fitting.rows)
        copies = self._copies(counts)
        if copies.skipped:  # files whose rows are passed on have no hash
            records = records.where(F.col(INDEX).isNull() | ~F.col(INDEX).isin(list(copies.originals)))
        if rows_of_retry := self._frozen_facts.get("rows"):
            written = self.pins.get("written", {})
            records = at_origins(records, self.files, rows_of_retry, written)
            counts = count_remaining(counts, records) if written else counts
        parts = [self._rows(records, pinned)] if others.num_rows or not fitting.rows else []
        if fitting.rows:
            parts.append(self._passed_rows(fitting, pinned))
        rows = reduce(lambda one, other: one.unionByName(other), parts)
        kept = None if self.source.where is None else self._filter(rows, self.source.where)
        account = Account.of(counts, kept, self.files, self.pins, pinned.version, copies)
        account.check(self.reading)
        bad = records.where(F.col(KIND) == BAD_ROW)
        write_quarantine(bad, self._origins, self.reading, self.pins["manifest"], account.quarantined)
        given = (rows if kept is None else kept).select(*self._columns(pinned))
        return given, account, held_back(self.source, pinned, found.drift)

    def _filter(self, rows: DataFrame, where: str) -> DataFrame:
        """Return the rows that the declaration does not filter; raise BadDeclaration if Spark cannot read it."""
        try:
            return rows.where(where)
        except AnalysisException as error:
            problem = f"where={where!r} is not a condition on the columns of the files: {one_line(error)}"
            raise BadDeclaration(where=self.reading.where, problem=problem) from error

    def _fitting(self, entries: pa.Table, footers: Mapping[int, Footer], pinned: PinnedSchema) -> FittingFiles:
        """Return the large files whose rows are passed on to the write."""
        if self._identity in _kept_batches or self._frozen_facts.get("rows"):
            return NONE
        file_format, schema = self.source.file_format, pinned.schema
        if self.source.split_by == LINES:
            return fitting_lines(self.session, entries, file_format, schema)
        return fitting_row_groups(entries, footers, file_format, schema) if footers else NONE

    def _copies(self, counts: pa.Table) -> Copies:
        """Return which files have the content of another one. Rows that replace others are never skipped, nor are retries."""
        contents, number, frozen = self.backlog.contents, self.pins["manifest"], self._frozen_facts
        skip = self.source.duplicates == "skip" and not frozen.get("replaces") and "retries" not in frozen
        counts = self._without_rows_of_retry(counts)
        copies = Copies.of(counts, self.files, contents, number, skip)
        copies.write(contents, self.files, number, bool(frozen.get("replaces")))
        return copies

    def _without_rows_of_retry(self, counts: pa.Table) -> pa.Table:
        """Return the counts without the hashes of files of ours: the rows of a retry are no file that arrived."""
        ours = self._frozen_facts.get("rows", {})
        numbers = [number for number, path in enumerate(self.files["path"].to_pylist()) if path in ours] if ours else []
        is_ours = pc.is_in(counts[INDEX], value_set=pa.array(numbers, counts[INDEX].type))
        hashes = pc.if_else(is_ours, pa.scalar(None, pa.string()), counts["hash"])
        return counts.set_column(counts.column_names.index("hash"), "hash", hashes)

    @cached_property
    def _is_redo(self) -> bool:
        """Whether the batch was committed before, and its outcomes are recorded."""
        return self.backlog.manifests.outcomes(self.pins["manifest"]) is not None

    @cached_property
    def _frozen_facts(self) -> Mapping[str, Any]:
        return self.backlog.manifests.load(self.pins["manifest"]).facts

    def notes(self) -> tuple[str, ...]:
        """Return what is to be said of the files of the batch."""
        said = {
            "current": "changed since they were ingested, and are read as they are now",
            GONE: "are gone, and not read",
            CHANGED: "changed since they were listed, and are left to a later batch",
        }
        found = [(list(self.pins.get(kind, ())), text) for kind, text in said.items()]
        notes = [f"files that {text}: {len(paths):,}: {', '.join(paths[:_EXAMPLES])}" for paths, text in found if paths]
        _, account, held = self._computed
        rescued = f"values are rescued, because the table cannot {held}; with delta.enableTypeWidening = true it can"
        return (*notes, *self._copy_notes(account.copies), *([rescued] if held else []))

    def _copy_notes(self, copies: Copies) -> Iterator[str]:
        if copies.originals:
            some, paths = list(copies.originals.items())[:_EXAMPLES], self.files["path"]
            named = ((paths[number].as_py(), original) for number, original in some)
            examples = ", ".join(
                f"{path} (as {'before' if path == original else original})" for path, original in named
            )
            done = "skipped" if copies.skipped else "ingested all the same"
            another = "an ingested file" if copies.skipped else "another file"
            yield f"files with the content of {another}: {len(copies.originals):,}, {done}: {examples}"

    def _pinned_schema(self) -> PinnedSchema:
        """Return the schema that the batch starts from. What an earlier try at it pinned, and did not commit, does not count."""
        known = self._store.newest() if self._is_redo else self._store.newest_before(self.pins["manifest"])
        pinned = first_schema(self.source, known, self.files, self.reading)
        return evolve_schema(self.source, pinned, self._folder_drift(pinned), self.reading)

    @property
    def _store(self) -> SchemaStore:
        return SchemaStore(self.backlog.manifests.folder)

    def _parse(
        self, entries: pa.Table, footers: Mapping[int, Footer], pinned: PinnedSchema
    ) -> tuple[DataFrame, RecordCounts, PinnedSchema]:
        """Return the records of files, computed and counted; the schema grows until every value that may have a column has one."""
        whole: set[int] = set()
        for _ in range(_TRIES):
            records, counts = self._count(entries, footers, pinned, whole)
            following = evolve_schema(self.source, pinned, counts.drift, self.reading)
            if following is pinned:
                break
            pinned = following
        return records, counts, pinned

    def _count(
        self, entries: pa.Table, footers: Mapping[int, Footer], pinned: PinnedSchema, whole: set[int]
    ) -> tuple[DataFrame, RecordCounts]:
        """Return the records of files, computed once, and their counts. A file that cannot be read in parts is read as a `whole`."""
        file_format, columns = self.source.file_format, len(pinned.schema)
        # The rows of a retry are known by their lines, which only who reads the whole of a file can count.
        split_by = None if self._frozen_facts.get("rows") else self.source.split_by
        while True:
            chosen = work_list(without(entries, whole), file_format, split_by, columns, footers)
            unsplit = entries.filter(pc.is_in(entries["file"], pa.array(whole, pa.int64())))
            table = pa.concat_tables([chosen.table, unsplit])
            # The job that counts them computes them.
            records = materialize(self._records(chosen._replace(table=table), pinned), eager=False)
            counts = count_records(records)
            bad = counts.files.filter(pc.greater(counts.files["bad_files"], 0))[INDEX].to_pylist()
            torn = chosen.split.intersection(bad)
            if not torn:
                return records, counts
            whole |= torn

    def _verify(self, entries: pa.Table) -> None:
        """Raise TableChanged if a file that was read is not as it was frozen: the next try leaves it for a later batch."""
        found = compare(entries, self.reading.lake.file(""))
        if found.changed or found.gone:
            path = (*found.changed, *found.gone)[0]
            raise TableChanged(f"{path} changed while it was read")

    def _records(self, chosen: WorkList, pinned: PinnedSchema) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        first = chosen.table["path"][0].as_py() if chosen.table.num_rows else ""
        reader = PackReader(self.source.file_format, pinned.schema, options_for(first) if is_s3(first) else None)
        frame = spread(self.session, chosen.table, chosen.tasks)
        return frame.mapInArrow(reader, from_arrow_schema(reader.records))

    def _folder_drift(self, pinned: PinnedSchema) -> list[Drift]:
        known = {name.casefold() for name in pinned.schema.names}
        return [drift for drift in partition_drift(self._origins) if drift.column.casefold() not in known]

    def _rows(self, records: DataFrame, pinned: PinnedSchema) -> DataFrame:
        fields: Any = records.schema[DATA].dataType if len(pinned.schema) else ()
        types = {field.name: field.dataType for field in fields}
        data = {name: F.col(f"{DATA}.{identifier(name)}") for name in pinned.schema.names}
        return self._flatten(records.where(F.col(KIND) == ROW), data, types)

    def _passed_rows(self, fitting: FittingFiles, pinned: PinnedSchema) -> DataFrame:
        """Return the rows of large files, which are read when they are written."""
        source = self.source
        numbered = bool(source.where or source.provenance or self._folders)
        frame = read_fitting(self.session, fitting.parts, source.file_format, pinned.schema, numbered)
        types = {field.name: field.dataType for field in frame.schema}
        missing = {name: F.lit(None).cast("long") for name in (INDEX, LINE_OF) if not numbered}
        frame = frame.withColumns(missing | {RESCUED_AS: F.lit(None).cast("string")})
        return self._flatten(frame, {name: F.col(identifier(name)) for name in pinned.schema.names}, types)

    @cached_property
    def _folders(self) -> list[str]:
        """The names in folders like `region=EU`."""
        return sorted({drift.column for drift in partition_drift(self._origins)})

    def _flatten(self, frame: DataFrame, data: dict[str, Column], types: Mapping[str, DataType]) -> DataFrame:
        """Return rows with their columns, and what the path of the file says, where that is asked for."""
        others = [INDEX, LINE_OF, RESCUED_AS]
        if self._folders or self.source.provenance:
            frame = frame.join(F.broadcast(self._file_facts()), INDEX, "left")
            others += [_PATH, _MODIFIED]
            for number, name in enumerate(self._folders):
                column = match_name(list(data), name)
                values = FolderValues.of(
                    number, name, data[column] if column else None, types[column] if column else None
                )
                frame = frame.withColumn(RESCUED_AS, values.rescued)
                data |= {column: values.column} if column else {}
        return frame.select(*others, *(column.alias(name) for name, column in data.items()))

    def _file_facts(self) -> DataFrame:
        paths = self._origins["path"].to_pylist()
        columns: dict[str, Any] = {
            INDEX: pa.array(range(len(paths)), pa.int64()),
            _PATH: pa.array(paths, pa.string()),
            _MODIFIED: self.files["modified"],
            **folder_columns(paths, self._folders),
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
