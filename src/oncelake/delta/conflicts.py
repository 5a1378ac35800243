"""What Spark's and Delta's exceptions mean. Classes and conditions are matched here and nowhere else."""

from __future__ import annotations

import re
from enum import Enum


class ErrorKind(Enum):
    """What an exception of a write means for the work."""

    CONFLICT = "another writer was faster"
    TRANSIENT = "it may go better next time"
    STRAY = "rows outside the predicate"
    SCHEMA = "the frame does not fit the table"
    OTHER = "something else"


class TableBeingCreated(Exception):
    """The table is being created by another runner and has no commit yet."""


class TableChanged(Exception):
    """The table got a new version after it was compared with and before it was written."""


# In classic mode conflicts carry no condition, and the classes have no useful base: the prefix is the same everywhere.
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
# What goes wrong by itself on clusters and stores; matched in the text, for it comes wrapped in anything.
_TRANSIENT = re.compile(
    "ExecutorLostFailure|FetchFailedException|SocketTimeoutException|Read timed out|Connection reset|ConnectTimeout"
    "|NoHttpResponseException|SlowDown|503 Service|ThrottlingException|RequestTimeout|TimeoutException: Futures timed out"
)
_CALLING = "An error occurred while calling"  # py4j's own first line, which says nothing
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception): .*$", re.MULTILINE)
_STRAYS = ("DELTA_REPLACE_WHERE_MISMATCH", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
_SCHEMAS = (
    "DELTA_METADATA_MISMATCH",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
    "_LEGACY_ERROR_TEMP_DELTA_0007",
)


def classify(error: BaseException) -> ErrorKind:
    """What an exception of a write means."""
    names = {cls.__name__ for cls in type(error).__mro__}
    condition = _condition(error)
    if names & set(_CONFLICT_CLASSES) or condition.startswith(_CONFLICTS):
        return ErrorKind.CONFLICT
    if condition.startswith(_STRAYS):
        return ErrorKind.STRAY
    if condition.startswith(_SCHEMAS):
        return ErrorKind.SCHEMA
    transient = isinstance(error, TimeoutError | ConnectionError) or _TRANSIENT.search(str(error))
    return ErrorKind.TRANSIENT if transient else ErrorKind.OTHER


def one_line(error: BaseException) -> str:
    """What an exception says, in one line: without a JVM's stack, and of a Python worker's what it raised itself."""
    text = str(error).strip()
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    lines = [line for line in text.splitlines() if not line.startswith(_CALLING)]
    return raised[-1] if raised else (lines or [type(error).__name__])[0].removeprefix(": ")


def _condition(error: BaseException) -> str:
    condition = getattr(error, "getCondition", lambda: None)()
    if condition:
        return str(condition)
    text = str(error)
    return text[1:].split("]", maxsplit=1)[0] if text.startswith("[") else ""
