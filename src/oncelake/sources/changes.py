"""`once.changes`: a Delta table as a stream: the rows that are appended to it, or its change feed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oncelake.delta.tables import delta_log, require_log
from oncelake.errors import BadDeclaration, OncelakeError
from oncelake.model.contracts import Pattern, Reading
from oncelake.model.intervals import Grid
from oncelake.model.names import table_name_problem
from oncelake.model.source_location import declared_at
from oncelake.model.streams import REASON, Beginning, Lag, StreamDefaults
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelake.delta.log import TableLog

FEED = "delta.enableChangeDataFeed"
_FEED_COLUMNS = {"_change_type", "_commit_version", "_commit_timestamp"}


def changes(
    name: str, *, feed: bool | None = None, max_files: int | None = None, max_bytes: str | None = None
) -> ChangesSource:
    """Read a table as a stream: each row once, in the order of the table's commits.

    If the pipelines that write the table only append, the frame has its rows. Otherwise it is read by its change feed,
    which is switched on where it is not: rows have `_change_type` ("insert", "update_preimage", "update_postimage" or
    "delete"), `_commit_version` and `_commit_timestamp`, as `merge(…, cdc="delta")` takes them. `feed=True` or `feed=False` says which; a commit that changes or removes rows
    of a table that is read by its appended rows stops the stream. `max_files` and `max_bytes` bound a batch.
    """
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    if max_files is not None and (isinstance(max_files, bool) or not isinstance(max_files, int) or max_files < 1):
        raise BadDeclaration(
            where=declared_at(), problem=f"max_files={max_files!r} is not a number of files, at least 1"
        )
    return ChangesSource(name, feed, max_files, max_bytes)


@dataclass(frozen=True)
class ChangesSource(StreamDefaults):
    """A table that is read as a stream."""

    name: str
    feed: bool | None = None
    max_files: int | None = None
    max_bytes: str | None = None
    # Why it is read by its appended rows or by its change feed.
    why: str = "declared"

    @property
    def tables(self) -> tuple[str, ...]:
        """The table itself."""
        return (self.name,)

    @property
    def stream_identity(self) -> Mapping[str, Any]:
        """The table, and how it is read."""
        return {"changes": self.name, "feed": bool(self.feed)}

    def follow(self, writers: Iterable[Pattern]) -> ChangesSource:
        """Return the source as it is read behind these patterns: by the change feed unless all of them append."""
        kinds = sorted({pattern.kind for pattern in writers if pattern.target == self.name})
        if self.feed is not None or not kinds:
            return self
        feed = kinds != ["append"]
        how = f"{self.name} is written by {', '.join(kinds)}"
        return replace(self, feed=feed, why=f"{how}, so its {'change feed is' if feed else 'appended rows are'} read")

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse intervals: changes drive their pipeline."""
        return f"changes of {self.name} are a stream, which does not go with every=" if grid is not None else None

    def open_stream(self, session: SparkSession, reading: Reading) -> DataFrame:
        """Return the stream of rows or of changes. Commits that it would have to leave out fail the batch."""
        table = reading.lake.table(self.name)
        log = require_log(table)
        options = {"maxFilesPerTrigger": self.max_files, "maxBytesPerTrigger": self.max_bytes}
        chosen = {name: str(value) for name, value in options.items() if value is not None}
        if self.feed:
            if dict(log.metadata.get("configuration") or {}).get(FEED) != "true":
                self._refuse_feed_columns(log, reading)
                session.sql(f"ALTER TABLE delta.{identifier(table.path)} SET TBLPROPERTIES ('{FEED}' = 'true')")
            chosen["readChangeFeed"] = "true"
        return session.readStream.format("delta").options(**chosen).load(table.path)

    def _refuse_feed_columns(self, log: TableLog, reading: Reading) -> None:
        if taken := sorted(_FEED_COLUMNS.intersection(log.schema)):
            problem = f"{self.name} has the column {', '.join(taken)}, which the change feed of Delta adds itself: write it under another name"
            raise BadDeclaration(where=reading.where, problem=problem)

    def decode(self, frame: DataFrame) -> DataFrame:
        """Return the rows, or the changes: every row of a table can be read."""
        from pyspark.sql import functions as F

        return frame.withColumn(REASON, F.lit(None).cast("string"))

    def raw(self, decoded: DataFrame) -> DataFrame:
        """Return no rows: every row of a table can be read."""
        from pyspark.sql import functions as F

        none = {"file": "string", "line": "long", "offset": "long", "raw": "binary", "reason": "string"}
        return decoded.select(*(F.lit(None).cast(kind).alias(name) for name, kind in none.items())).limit(0)

    def lag(self, reading: Reading, offset: str | None) -> Lag:
        """Return how many versions of the table a position is behind."""
        try:
            log = delta_log(reading.lake.table(self.name))
        except OncelakeError:
            return Lag(None, "versions")
        if log is None:
            return Lag(0, "versions")
        position = json.loads(offset) if offset else None
        if position is None:
            return Lag(log.version + 1, "versions")
        if position.get("reservoirId") != log.metadata.get("id"):
            return Lag(None, "versions", f"{self.name} was dropped and created again")
        first = int(position["reservoirVersion"])
        if position.get("isStartingVersion"):
            return Lag(max(log.version + 1 - first, 1), "versions")
        return Lag(
            max(log.version + 1 - first - int(_is_read(log, first, int(position.get("index", -1)))), 0), "versions"
        )

    def source_ids(self, reading: Reading) -> Mapping[str, str]:  # noqa: ARG002  the contract
        """Return nothing: Delta itself refuses the offsets of another table."""
        return {}

    def beginning(self, reading: Reading, first: str | None) -> Beginning:  # noqa: ARG002  the contract
        """Return the beginning: the rows of the table as it is now, and what is written after that."""
        return Beginning()

    def notes(self, reading: Reading) -> list[str]:  # noqa: ARG002  the contract
        """Return how the table is read, and why."""
        how = "its change feed" if self.feed else "its appended rows"
        return [self.why if self.why != "declared" else f"{self.name} is read by {how}"]


def _is_read(log: TableLog, version: int, index: int) -> bool:
    """Return whether a position is at the last file of a version: with files of changes, Delta stops there instead of before the next one."""
    if index < 0 or version > log.version:
        return False
    try:
        count = sum(1 for _ in log.entry(version).actions("cdc"))
    except OncelakeError:
        return False
    return 0 < count <= index + 1
