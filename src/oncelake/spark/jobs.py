"""The jobs of Spark: whether there were any, and how much they read at once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"
_PAUSE = 0.005
# What a task reads of files, unless Spark is told otherwise.
_TASK_BYTES = 128 * 1024 * 1024


class Jobs:
    """What is known of the jobs of a stretch of code; True until the opposite is certain."""

    ran = True


@contextmanager
def watched(session: SparkSession) -> Iterator[Jobs]:
    """Watch whether what is called starts a job of Spark. Under Connect nobody can tell, and it counts as if it did."""
    jobs = Jobs()
    context = _context(session)
    if context is None:
        yield jobs
        return
    before, group = context.getLocalProperty(_GROUP), uuid.uuid4().hex
    tracker = context.statusTracker()
    try:
        context.setLocalProperty(_GROUP, group)
        yield jobs
        # Jobs become known in their order, a moment after they began: when this one is, all before it are.
        last = f"{group} end"
        context.setLocalProperty(_GROUP, last)
        session.range(1).collect()
        while not tracker.getJobIdsForGroup(last):
            time.sleep(_PAUSE)
        jobs.ran = bool(tracker.getJobIdsForGroup(group))
    finally:
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]


def read_at_once(session: SparkSession) -> float:
    """About how many bytes keep all cores busy. Under Connect nobody can tell, and nothing is enough."""
    context = _context(session)
    return context.defaultParallelism * _TASK_BYTES if context else inf


def _context(session: SparkSession) -> SparkContext | None:
    from pyspark.errors import PySparkException

    try:
        return session.sparkContext
    except PySparkException:
        return None
