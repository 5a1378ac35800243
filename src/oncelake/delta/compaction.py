"""Compaction on a budget: merge the small files that upserts leave, in a commit of its own that changes no row.

A partition is due when it has at least 32 files below 16 MB, or when a fifth of its rows are marked as deleted. Then only
those small files, and the files with that many deleted rows, are rewritten. So the cost of one compaction is spread over
the merges that made it due, and a table without merges is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelake.delta.conflicts import one_line
from oncelake.delta.log import TableLog
from oncelake.model.contracts import Table
from oncelake.spark.session import own_session
from oncelake.spark.sql import identifier, one_of, typed_literal
from oncelake.storage.lock import Busy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 32
SMALL = 16 * 1024 * 1024
_WHOLE = 128 * 1024 * 1024
_DELETED = 0.2

Partition = tuple[tuple[str, str | None], ...]


def compact_if_due(table: Table, session: Callable[[], SparkSession], warn: Callable[[str], None]) -> None:
    """Compact a table that is due, between works and in a commit of its own. Failing it fails nothing."""
    try:
        log = table.last_log()
        if isinstance(log, TableLog) and (partitions := due(log)):
            with table.lock(0, lambda: True):
                compact(session(), log, partitions)
    except Busy:
        pass  # whoever writes it now will see that it is due
    except Exception as error:  # noqa: BLE001  a conflict, a full disk: the work is done all the same
        warn(f"{table.name} could not be compacted: {one_line(error)}")


def due(log: TableLog) -> list[Partition]:
    """Return the partitions that are due; an unpartitioned table is one. Clustered and mapped tables are left to their owner."""
    if log.clustered_by or log.mapped:
        return []
    names = sorted(log.partitioned_by)
    found = log.files.by_partition(names, SMALL)
    due = [each for each in found if each["small"] >= FILES or each["deleted"] > each["rows"] * _DELETED]
    return [tuple((name, each[name]) for name in names) for each in due]


def compact(session: SparkSession, log: TableLog, partitions: list[Partition]) -> None:
    """Compact the small files of some partitions."""
    places = [{name: typed_literal(value, log.schema[name]) for name, value in each} for each in partitions]
    where = one_of(places) if log.partitioned_by else None
    with own_session(session) as own:
        for key, value in {"minFileSize": SMALL, "maxFileSize": _WHOLE, "maxDeletedRowsRatio": _DELETED}.items():
            own.conf.set(f"spark.databricks.delta.optimize.{key}", str(value))
        own.sql(f"OPTIMIZE delta.{identifier(log.path)}{f' WHERE {where}' if where else ''}")
