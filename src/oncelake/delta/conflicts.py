"""Classify Spark's and Delta's exceptions: conflict, transient (retry), schema. Only this module matches their classes."""

from __future__ import annotations

import re
from enum import Enum


class ErrorKind(Enum):
    """The kinds of exceptions that a write can raise."""

    CONFLICT = "another writer was faster"
    TRANSIENT = "a retry may succeed"
    OUTSIDE_PREDICATE = "rows outside the predicate"
    SCHEMA = "the frame does not fit the table"
    LOST_JVM = "Spark's JVM is gone"
    NO_DELTA = "the session has no Delta"
    MACHINE = "the disk is full, or a folder cannot be written"
    OTHER = "something else"


class TableBeingCreated(Exception):
    """Another runner is creating the table, which has no commit yet. Retry."""


class TableChanged(Exception):
    """The table got a new version between the comparison with it and the write. Retry."""


# In classic mode conflicts have no condition, and their classes have no useful base; the prefixes are the same everywhere.
_CONFLICTS = (
    "DELTA_CONCURRENT_",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_TABLE_ALREADY_EXISTS",
    "DELTA_PATH_EXISTS",
)
_CONFLICT_CLASSES = (
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DeltaConcurrentModificationException",
    TableBeingCreated.__name__,
    TableChanged.__name__,
)
# What delta-rs says of a commit whose version was taken; its class is that of unsupported features, too.
_DELTA_RS_CONFLICT = re.compile("Failed to commit transaction|existing table version|[Cc]oncurrent")
# What our log store says of a commit that may not become this version.
_FENCED = "[ONCELAKE_FENCED]"
# Failures of clusters and stores that a retry may fix; matched in the text, because any exception may wrap them.
_TRANSIENT = re.compile(
    "ExecutorLostFailure|FetchFailedException|SocketTimeoutException|Read timed out|Connection reset|ConnectTimeout"
    "|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|NoHttpResponseException|SlowDown|ConditionalRequestConflict"
    "|503 Service|ThrottlingException|RequestTimeout|TimeoutException: Futures timed out"
)
# What the client of a Connect server says when the server is gone, or is another one that does not know the session.
_LOST_SERVER = re.compile(
    r"RETRIES_EXCEEDED|StatusCode\.UNAVAILABLE|failed to connect to all addresses|Socket closed"
    r"|INVALID_HANDLE\.SESSION_(?:NOT_FOUND|CHANGED|CLOSED)"
)
# What a Connect server says that was asked to stop while it works for a client.
_STOPPING_SERVER = re.compile(
    "Cannot call methods on a stopped SparkContext|SparkContext (?:was|has been|is being) shut ?down"
    "|LiveListenerBus is stopped|RpcEnv (?:already )?stopped"
)
# What py4j says of a JVM that does not answer any more.
_LOST_JVM = re.compile(
    "Answer from Java side is empty|Error while sending or receiving|trying to connect to the Java server"
    r"|Error while obtaining a new communication channel|\[Errno 111\] Connection refused"
)
# Faults of the machine: neither a retry nor a smaller slice cures them.
_MACHINE = re.compile("No space left on device|Read-only file system|Permission denied|Disk quota exceeded")
# What Spark says when Delta's jars or its settings are missing.
_NO_DELTA = re.compile(
    r"Cannot find catalog plugin class for catalog '\w+': org.apache.spark.sql.delta|DELTA_CONFIGURE_SPARK_SESSION"
    r"|Failed to find (?:the )?data source: delta|DATA_SOURCE_NOT_FOUND\] .*\bdelta\b"
)
_GRPC = re.compile(r"""of RPC that terminated with:.*?details = ["'](.+?)["']$""", re.DOTALL | re.MULTILINE)
_CALLING = "An error occurred while calling"  # py4j's first line, which carries no information
_CAUSED_BY = "Caused by: "  # a line of the JVM's stack; the last one is what began it
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception): .*$", re.MULTILINE)
_OUTSIDE_PREDICATE = ("DELTA_REPLACE_WHERE_MISMATCH", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
_SCHEMAS = (
    "DELTA_METADATA_MISMATCH",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
    "_LEGACY_ERROR_TEMP_DELTA_0007",
)


def classify(error: BaseException) -> ErrorKind:
    """Return the kind of an exception that a write raised."""
    names = {cls.__name__ for cls in type(error).__mro__}
    condition = _condition(error)
    if names & set(_CONFLICT_CLASSES) or condition.startswith(_CONFLICTS) or _FENCED in str(error):
        return ErrorKind.CONFLICT
    if "CommitFailedError" in names and _DELTA_RS_CONFLICT.search(str(error)):
        return ErrorKind.CONFLICT
    if condition.startswith(_OUTSIDE_PREDICATE):
        return ErrorKind.OUTSIDE_PREDICATE
    if condition.startswith(_SCHEMAS):
        return ErrorKind.SCHEMA
    if is_lost_server(error) or any(_is_lost_jvm(each) for each in _with_causes(error)):
        return ErrorKind.LOST_JVM
    if _NO_DELTA.search(str(error)):
        return ErrorKind.NO_DELTA
    if _MACHINE.search(str(error)):
        return ErrorKind.MACHINE
    transient = isinstance(error, TimeoutError | ConnectionError) or _TRANSIENT.search(str(error))
    return ErrorKind.TRANSIENT if transient else ErrorKind.OTHER


def is_lost_server(error: BaseException) -> bool:
    """Return whether an exception says that a Spark Connect server is gone, or another one than before."""
    return any(map(_says_lost_server, _with_causes(error)))


def _says_lost_server(error: BaseException) -> bool:
    module, text = type(error).__module__, str(error)
    if module.startswith("pyspark.errors.exceptions.connect") and _STOPPING_SERVER.search(text):
        return True
    return module.startswith(("pyspark.errors", "grpc")) and _LOST_SERVER.search(text) is not None


def _is_lost_jvm(error: BaseException) -> bool:
    """Return whether an exception says that the JVM is gone."""
    names = {cls.__name__ for cls in type(error).__mro__}
    says_so = _LOST_JVM.search(str(error)) is not None
    return "Py4JNetworkError" in names or (says_so and (isinstance(error, ConnectionError) or "Py4JError" in names))


def _with_causes(error: BaseException) -> list[BaseException]:
    """Return an exception and what caused it; an exception may be its own cause."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


def one_line(error: BaseException) -> str:
    """Return an exception's message and its first cause in one line, without the JVM stack; for a Python worker, the exception it raised."""
    text = str(error).strip()
    if details := _GRPC.search(text):
        return details[1]
    raised: list[str] = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    if raised:
        return raised[-1]
    lines = [line for line in text.splitlines() if not line.startswith(_CALLING)]
    message = (lines or [type(error).__name__])[0].removeprefix(": ")
    causes = [line.removeprefix(_CAUSED_BY) for line in lines if line.startswith(_CAUSED_BY)]
    return f"{message}; caused by {causes[-1]}" if causes and causes[-1] not in message else message


def _condition(error: BaseException) -> str:
    condition = getattr(error, "getCondition", lambda: None)()
    if condition:
        return str(condition)
    text = str(error)
    return text[1:].split("]", maxsplit=1)[0] if text.startswith("[") else ""
