"""Spark jobs: whether a piece of code ran any, and how many bytes all cores read in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Spark's default size of a file partition, `spark.sql.files.maxPartitionBytes`.
_TASK_BYTES = 128 * 1024 * 1024


class Jobs:
    """Whether jobs ran while they were watched; True until the opposite is certain."""

    ran = True


@contextmanager
def watch_jobs(session: SparkSession) -> Iterator[Jobs]:
    """Watch whether the block, or anything beside it, runs a Spark job: of any thread, job group or session.

    Spark Connect does not tell, so jobs are assumed.
    """
    jobs = Jobs()
    before = _job_count(session)
    yield jobs
    jobs.ran = before is None or before != _job_count(session)


def parallel_bytes(session: SparkSession) -> float:
    """Return about how many bytes keep all cores busy; infinity under Spark Connect, which does not tell."""
    context = _context(session)
    return context.defaultParallelism * _TASK_BYTES if context else inf


def _job_count(session: SparkSession) -> int | None:
    """Return how many jobs the application has submitted, or None if that is unknown.

    The scheduler's own counter: the status tracker knows jobs by group only, and a moment late.
    """
    context = _context(session)
    try:
        return None if context is None else int(context._jsc.sc().dagScheduler().numTotalJobs())  # noqa: SLF001
    except Exception:  # noqa: BLE001  a scheduler without this counter, or one that stopped
        return None


def _context(session: SparkSession) -> SparkContext | None:
    from pyspark.errors import PySparkException

    try:
        return session.sparkContext
    except PySparkException:
        return None
