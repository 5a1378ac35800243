"""Files that arrive, as a source: what is new is frozen in numbered manifests, and each manifest is read as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oncelake.errors import SourceChanged
from oncelake.model.arrivals import FILE_COLUMN, FILES_STREAM, FileEntry, QuarantinedRow, Waiting
from oncelake.model.contracts import Pins, Reading, SourceStats
from oncelake.model.intervals import Grid
from oncelake.model.slices import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelake.sources.arrivals.backlog import Backlog
    from oncelake.sources.arrivals.parsing.records import FileFormat
    from oncelake.sources.arrivals.reading import BatchRead

FORMATS = ("json", "csv", "parquet", "orc", "text", "binary", "avro")
# A batch is one commit, and commits have a price: by default one takes whatever fits into the memory of a driver's list.
MAX_FILES, MAX_BYTES = 100_000, 16 << 30
# The columns of provenance, by what is declared.
PROVENANCE = {"file": FILE_COLUMN, "batch": "_once_batch", "modified": "_once_modified", "row": "_once_row"}


@dataclass(frozen=True)
class ArrivingFiles:
    """A declared folder into which files arrive."""

    path: str
    format: str
    schema: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    hints: str | None = None
    evolution: str | Mapping[str, str] = "evolve"
    changed: str = "refuse"
    where: str | None = None
    provenance: tuple[str, ...] = ()
    rescued: str = "_rescued"
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    clean_up: str = "keep"
    archive: str | None = None
    clean_up_after: timedelta = timedelta()
    duplicates: str = "report"
    path_date: str | None = None
    max_expanded: int | None = None

    tables = ()
    by_interval = False
    time = None
    versioned = False
    stream = FILES_STREAM

    @property
    def policy(self) -> str | Mapping[str, str]:
        """What becomes of values that do not fit the schema."""
        return self.evolution

    @property
    def split_by(self) -> str | None:
        """By what a large file is read in parts: "row groups" or "lines"; None if it is read as a whole."""
        if self.format == "parquet":
            return "row groups"
        has_lines = self.format in ("text", "csv") or (self.format == "json" and not self._option("multiline"))
        # Only who reads the whole of a file can count its lines.
        return "lines" if has_lines and "row" not in self.provenance else None

    @property
    def file_format(self) -> FileFormat:
        """How the files are parsed."""
        from oncelake.sources.arrivals.parsing.records import MAX_EXPANDED_BYTES, MAX_READ_BYTES, FileFormat

        default = MAX_EXPANDED_BYTES if self.format in ("json", "csv", "text") else MAX_READ_BYTES
        return FileFormat(self.format, dict(self.options), self.max_expanded or default)

    def problem(self, grid: Grid | None) -> str | None:  # noqa: ARG002  the contract; the declaration is checked already
        """Return None: a pipeline that is driven by arrivals has no grid."""
        return None

    @property
    def replaces_files(self) -> bool:
        """Whether the rows of a changed file replace those of its earlier content."""
        return self.changed == "replace"

    @property
    def names_files(self) -> bool:
        """Whether every row says which file it came from."""
        return "file" in self.provenance

    @property
    def chosen_by(self) -> str:
        """What a range of time means for the files."""
        return "modified in" if self.path_date is None else f"with a date ({self.path_date}) in their path in"

    def restated(self, reading: Reading, done: int | None, ordered: str | None) -> Waiting:
        """Return the batches that read the ingested files of a range again, if they were frozen now."""
        from oncelake.sources.arrivals.restating import restated

        return restated(self._backlog(reading), done, ordered)

    def freeze_restated(self, reading: Reading, done: int | None, ordered: str | None) -> tuple[str, ...]:
        """Freeze the batches that read the ingested files of a range again; return what is to be said of other files."""
        from oncelake.sources.arrivals.restating import freeze_restated

        return freeze_restated(self._backlog(reading), done, ordered)

    def stats(self, reading: Reading) -> SourceStats:
        """Refuse: there are no intervals to ask for."""
        raise NotImplementedError(reading.where)

    def waiting(self, reading: Reading, done: int | None) -> Waiting:
        """Return the frozen batches that are not done, and those that would be frozen from the files there are now."""
        from oncelake.sources.arrivals.declared_changes import declared_changes

        waiting = self._backlog(reading).waiting(done)
        return replace(waiting, notes=(*waiting.notes, *declared_changes(self, reading, waiting)))

    def frozen(self, reading: Reading, done: int | None) -> Waiting:
        """Return the frozen batches that are not done."""
        return self._backlog(reading).frozen(done)

    def freeze(self, reading: Reading, done: int | None) -> Waiting:
        """Freeze what has arrived, and return the frozen batches that are not done."""
        return self._backlog(reading).freeze(done)

    def list_files(self, reading: Reading, done: int | None) -> Iterator[FileEntry]:
        """Yield every file that is known or has arrived."""
        from oncelake.sources.arrivals.file_entries import file_entries

        return file_entries(self._backlog(reading), done)

    def list_quarantine(self, reading: Reading, done: int | None) -> list[QuarantinedRow]:
        """Return what is in quarantine."""
        from oncelake.sources.arrivals.quarantine_states import true_states
        from oncelake.sources.arrivals.quarantine_table import quarantined_rows, read_quarantine

        return true_states(self._backlog(reading), list(quarantined_rows(read_quarantine(reading, done))), done)

    def retry_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> tuple[str, ...]:
        """Freeze a batch of what is in quarantine, to be read once more; return what is to be said of what stays there."""
        from oncelake.sources.arrivals.retrying import freeze_retry

        return freeze_retry(self._backlog(reading), rows)

    def drop_quarantine(self, reading: Reading, rows: Sequence[QuarantinedRow]) -> None:
        """Mark rows in quarantine as dropped."""
        from oncelake.sources.arrivals.quarantine_table import DROPPED, change_state

        change_state(reading, rows, DROPPED)

    def rebuild_manifests(
        self, reading: Reading, facts: Mapping[int, Mapping[str, Any]], done: int | None
    ) -> list[int]:
        """Write the manifests that are missing or damaged from the facts of the commits, and return their numbers."""
        return self._backlog(reading).rebuild(facts, done)

    def settle(self, reading: Reading, facts: Mapping[int, Mapping[str, Any]]) -> None:
        """Record what became of the files of committed batches, by the facts of their commits."""
        from oncelake.sources.arrivals.clean_up import clean_up

        backlog = self._backlog(reading)
        backlog.settle(facts)
        clean_up(backlog)

    def pin(self, reading: Reading) -> Pins:
        """Return the manifest of a batch, and which of its files are left out, or are read as they are now."""
        from oncelake.sources.arrivals.current_files import compare
        from oncelake.sources.arrivals.redoing import choose_files
        from oncelake.sources.arrivals.retrying import written_since

        backlog = self._backlog(reading)
        manifest = backlog.manifests.load(_number(reading))
        chosen = choose_files(backlog, manifest, compare(manifest.files, reading.lake.file("")))
        pins = {"files": self.path, "manifest": manifest.number, "digest": manifest.digest}
        others = {"current": chosen.current, "written": written_since(backlog, manifest)}
        return pins | chosen.left | {name: found for name, found in others.items() if found}

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Raise SourceChanged if a file that is read is not as it was frozen."""
        from oncelake.sources.arrivals.current_files import compare

        found = compare(self._backlog(reading).pinned_files(pins), reading.lake.file(""))
        if found.changed or found.gone:
            path = (*found.changed, *found.gone)[0]
            raise SourceChanged(path=path, slice=str(reading.slice), pipeline=reading.pipeline)

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> BatchRead:
        """Return the read of one batch: its rows, what could not be read, and the account of both."""
        from oncelake.sources.arrivals.reading import BatchRead

        return BatchRead(session, self, reading, self._backlog(reading), pins)

    def _option(self, name: str) -> bool:
        chosen = {key.lower(): str(value).lower() for key, value in self.options.items()}
        return chosen.get(name) == "true"

    def _backlog(self, reading: Reading) -> Backlog:
        from oncelake.sources.arrivals.backlog import Backlog

        return Backlog.of(self, reading)


def _number(reading: Reading) -> int:
    assert isinstance(reading.slice, Batch)
    return reading.slice.number
