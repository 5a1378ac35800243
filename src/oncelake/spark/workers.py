"""Check the Python of a cluster's workers, once: functions are pickled here and run there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oncelake.errors import WorkersDiffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = 8
_COLUMNS = "host string, python string, arrow string, offsets string"


def check_workers(session: SparkSession) -> None:
    """Raise WorkersDiffer if workers have another Python, pyarrow or time zone than this process, or none at all."""
    if (session.conf.get("spark.master", None) or "local").startswith("local"):
        return
    try:
        rows = session.range(0, _TASKS, 1, _TASKS).mapInArrow(_describer(), _COLUMNS).distinct().collect()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise WorkersDiffer(problem=f"they cannot run a Python function: {lines[-1] if lines else error}") from error
    # What must be the same there as here: the minor version of Python, the major one of pyarrow, the UTC offsets of the year.
    (here,) = next(_describer()(iter([None]))).to_pylist()
    for row in rows:
        for name, label in (("python", "Python"), ("arrow", "pyarrow"), ("offsets", "a time zone with UTC offsets")):
            if row[name] != here[name]:
                raise WorkersDiffer(problem=f"{row['host']} has {label} {row[name]}, this process {here[name]}")


def _describer() -> Any:
    """Return a function that describes the worker it runs on. It is nested, so that it travels there by value."""

    def describe(batches: Iterator[Any]) -> Iterator[Any]:
        import platform
        import socket
        import time

        import pyarrow as pa

        offsets = [time.localtime(at).tm_gmtoff for at in (1704067200, 1719792000)]
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    "host": [socket.gethostname()],
                    "python": [".".join(platform.python_version_tuple()[:2])],
                    "arrow": [pa.__version__.partition(".")[0]],
                    "offsets": ["/".join(map(str, offsets))],
                }
            )

    return describe
