"""What a running query of Structured Streaming says of itself, from inside its `foreachBatch`: its id, and what a batch reads."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY_ID = "sql.streaming.queryId"
# The offset of a source of files is a number of an entry in the checkpoint, which names the files.
_ENTRY = "logOffset"


def query_id(session: SparkSession) -> str | None:
    """Return the id of the query whose batch is being written, which is in its checkpoint."""
    found = session.sparkContext.getLocalProperty(_QUERY_ID)
    return str(found) if found else None


def batch_inputs(session: SparkSession, query: str, number: int) -> list[Any] | None:
    """Return up to where a batch reads each source, as the checkpoint says; None if that cannot be read."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark offers no way to a checkpoint
        queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
        folder = str(queries.get(jvm.java.util.UUID.fromString(query)).resolvedCheckpointRoot())
        _, _, *sources = _read(session, f"{folder}/offsets/{number}").split("\n")
        return [_input(session, f"{folder}/sources/{index}", text) for index, text in enumerate(sources)]
    except (PySparkException, Py4JError, AttributeError, ValueError):
        return None


def _input(session: SparkSession, folder: str, text: str) -> Any:
    """Return an offset; of a source of files with a digest of the entry that names them."""
    found = json.loads(text)
    if not isinstance(found, dict) or _ENTRY not in found:
        return found
    from py4j.protocol import Py4JError

    for name in (str(found[_ENTRY]), f"{found[_ENTRY]}.compact"):
        with suppress(Py4JError):
            return {**found, "files": hashlib.sha256(_read(session, f"{folder}/{name}").encode()).hexdigest()}
    return found


def _read(session: SparkSession, path: str) -> str:
    """Return a file of text, wherever Spark keeps it."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(path)
    stream = place.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()).open(place)  # noqa: SLF001
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
