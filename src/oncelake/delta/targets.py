"""Create and check a target before a write, and explain a write that was refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from oncelake.delta import writes
from oncelake.delta.conflicts import ErrorKind, TableBeingCreated, classify, one_line
from oncelake.delta.log import TableLog, being_created
from oncelake.delta.tables import delta_log, require_log
from oncelake.errors import RowsOutsideSlice, SourceUnreadable, WorkFailed, WrongColumns
from oncelake.model.arrivals import FILES_STREAM
from oncelake.model.contracts import Log, Stamp, Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.names import is_refused_by_delta
from oncelake.model.slices import Batch
from oncelake.spark.columns import FrameOrigin, column_types
from oncelake.spark.materialize import materialize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Error = TypeVar("Error", bound=WorkFailed)

_EXAMPLES = 3
# The file of checksums beside `a:b.json` is `.a:b.json.crc`, and Hadoop takes what is before the colon for a scheme.
_COLON = re.compile(r"Relative path in absolute URI: \.([^/\n]*:[^/\n]*)\.crc")


def frame_origin(writing: Writing) -> FrameOrigin:
    """Return whose frame is about to be written, for error messages."""
    return FrameOrigin(f"the frame for {writing.work.target}", writing.work.pipeline, writing.where)


def compute(
    frame: DataFrame, writing: Writing, layout: writes.Layout, evolve: bool = False
) -> tuple[DataFrame, TableLog]:
    """Return the frame and the target's log; create the table if it does not exist.

    The frame is computed before the commit if its inputs may change while they are read, so that they can be compared
    after the read; and before the table is created, because a frame that fails must not leave an empty table.
    """
    log = known_log(writing)
    _refuse_names(frame, log, writing)
    if log is not None:
        _fit(frame, log, writing, evolve)
    if log is None or writing.verify_inputs is not None:
        frame = materialize(frame)
        verify_inputs(writing)
    return frame, ensure_table(frame, writing, layout, evolve)


def verify_inputs(writing: Writing) -> None:
    """Raise if an input changed since it was pinned. The rows must be computed by now."""
    if writing.verify_inputs is not None:
        writing.verify_inputs()


def ensure_table(frame: DataFrame, writing: Writing, layout: writes.Layout, evolve: bool = False) -> TableLog:
    """Return the target's log. Create the table if it does not exist; compare the frame's columns if it does.

    With `evolve` the table takes new columns, and null for those the frame lacks.
    """
    log = known_log(writing) or _created(frame, writing, layout)
    if (layout.cluster_by or layout.deletion_vectors) and log.version == 0:
        writes.apply_layout(frame.sparkSession, writing.path, layout)
        log = require_log(writing.table)
    _fit(frame, log, writing, evolve)
    return log


def known_log(writing: Writing) -> TableLog | None:
    """Return the log as the commit protocol has just read it, under the lock; where there is none, as it is now."""
    log = writing.table.last_log() if writing.table.exclusive else writing.table.log()
    assert log is None or isinstance(log, TableLog)
    return log


def _created(frame: DataFrame, writing: Writing, layout: writes.Layout) -> TableLog:
    failure: Exception | None = None
    try:
        writes.create(frame, writing.path, layout)
    except Exception as error:  # noqa: BLE001  another runner may be creating it at this moment
        failure = error
    log = delta_log(writing.table)
    if log is None and failure is not None and not being_created(writing.path):
        raise failure
    if log is None:
        raise TableBeingCreated from failure
    failpoint("created")
    return log


def replace(frame: DataFrame, writing: Writing, predicate: str, example_columns: tuple[str, ...]) -> None:
    """Replace the rows of a predicate; refuse rows outside it, with examples of their values."""
    stamp = writing.stamp if writing.fence is None else _fenced_stamp(writing, writing.fence)
    try:
        writes.replace(frame, writing.path, predicate, stamp)
    except Exception as error:
        if classify(error) is ErrorKind.OUTSIDE_PREDICATE:
            examples = _examples_outside(frame, predicate, example_columns) or one_line(error)
            raise error_for(RowsOutsideSlice, writing, slice=str(writing.work.slice), examples=examples) from error
        raise


def _fenced_stamp(writing: Writing, fence: Callable[[Log], None]) -> Stamp:
    """Return the stamp of a range: the log store commits it right after the version that the fence was asked for."""
    log = writing.table.last_log()
    assert log is not None  # the table exists by now
    fence(log)
    return writing.stamp.with_facts(as_of=log.version, must_follow=log.version)


def refused(error: Exception, writing: Writing) -> Exception:
    """Return the error of ours that a write's exception means, or the exception itself."""
    if classify(error) is ErrorKind.SCHEMA:
        return error_for(WrongColumns, writing, difference=one_line(error))
    if name := _COLON.search(str(error)):
        problem = "a file system of Hadoop with checksums opens no file with a colon in its name; rename the file"
        return SourceUnreadable(path=name[1], problem=problem)
    return error


def _examples_outside(frame: DataFrame, predicate: str, example_columns: tuple[str, ...]) -> str:
    strays = frame.where(f"NOT COALESCE({predicate}, FALSE)").select(
        *(f"`{c.replace('`', '``')}`" for c in example_columns)
    )
    rows = strays.limit(_EXAMPLES + 1).collect()
    texts = ["(" + ", ".join(f"{c}={row[c]}" for c in example_columns) + ")" for row in rows[:_EXAMPLES]]
    return ", ".join(texts) + (", …" if len(rows) > _EXAMPLES else "")


def _fit(frame: DataFrame, log: TableLog, writing: Writing, evolve: bool) -> None:
    there = {name.casefold(): name for name in log.schema}
    ours = {name.casefold(): name for name in column_types(frame)}
    parts = []
    extra = [name for key, name in ours.items() if key not in there]
    if not evolve and extra:
        parts.append(f"the table has no column {', '.join(extra)}")
    if not evolve and (lacking := [name for key, name in there.items() if key not in ours]):
        parts.append(f"the frame has no column {', '.join(lacking)}")
    if len(ours) < len(frame.columns):
        parts.append("the frame has a column twice")
    if parts:
        error = error_for(WrongColumns, writing, difference="; ".join(parts))
        slice_ = writing.work.slice
        if extra and not evolve and isinstance(slice_, Batch):
            # What arrives brings new columns; the declaration says what becomes of them.
            rescue = ', or evolution="rescue" on once.files' if slice_.stream == FILES_STREAM else ""
            error.next = f'declare schema="evolve" on the pattern{rescue}; otherwise {error.next}'
        raise error


def _refuse_names(frame: DataFrame, log: TableLog | None, writing: Writing) -> None:
    """Refuse column names that Delta refuses: delta-rs would create the table, and the next new column would fail."""
    configuration = log.metadata.get("configuration") or {} if log else {}
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        return
    wrong = [name for name in frame.columns if is_refused_by_delta(name)]
    if wrong:
        named = ", ".join(map(repr, wrong))
        difference = (
            f"Delta refuses spaces and any of ,;{{}}()= in column names, as in {named}: rename them in the function"
        )
        raise error_for(WrongColumns, writing, difference=difference)


def error_for(error: type[Error], writing: Writing, **facts: Any) -> Error:
    """Return an error about a frame that cannot be written."""
    work = writing.work
    return error(target=work.target, pipeline=work.pipeline, where=writing.where, **facts)


def table_schema(log: TableLog) -> StructType:
    """Return the columns of a table as a Spark schema."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(log.metadata["schemaString"]))
