"""Compute a frame once: every later step sees the same rows, however often it reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER = "spark.checkpoint.dir"


def materialize(frame: DataFrame, eager: bool = True) -> DataFrame:
    """Return the frame with its rows computed once, now or (not `eager`) by the first job that needs them.

    The rows are kept by the executors, in memory and on their disks. If one is lost with its rows, the work is retried
    from its inputs. A cluster with a checkpoint folder (`spark.checkpoint.dir`) keeps them there instead, always at once:
    Spark computes a lazy one twice.
    """
    if frame.sparkSession.conf.get(_FOLDER, None):
        return frame.checkpoint()
    return frame.localCheckpoint(eager)


def run_plan(frame: DataFrame) -> None:
    """Compute a frame and keep nothing of it: a query that keeps state goes on only if the plan of each batch has run."""
    frame.write.format("noop").mode("overwrite").save()
