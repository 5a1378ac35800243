"""Call the user's function with the frames of its sources; it returns a frame for each target."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.conflicts import one_line
from oncelake.errors import FunctionFailed, OncelakeError, WrongReturnType
from oncelake.model.contracts import Pattern, RangeWriter, Read, Reading, Writing
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval
from oncelake.model.slices import Slice, cells
from oncelake.model.source_location import display_path
from oncelake.running.rowwise import rowwise
from oncelake.spark.columns import fail_unless, require_same_cell
from oncelake.spark.sql import inside

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class SliceFrame(NamedTuple):
    """The result of the function for a slice. `came_from` is the source's time column if it was called once for a range."""

    slice: Slice
    frame: DataFrame
    came_from: Column | None = None


class SchemasDiffer(Exception):
    """The results for the intervals of a range have different columns, so they cannot be written in one commit."""


def open_reads(pipeline: Pipeline, session: SparkSession, reading: Reading, pins: Mapping[str, Any]) -> dict[str, Read]:
    """Return what reads the sources of a slice as of the pins."""
    return {name: source.read(session, reading, pins[name]) for name, source in pipeline.reads.items()}


def call_transform(
    pipeline: Pipeline, session: SparkSession, reading: Reading, reads: Mapping[str, Read]
) -> dict[str, list[SliceFrame]]:
    """Return the lazy frames of each target for a slice; for a range, one for each interval in it.

    The function is called for one interval at a time, so a range gives the same rows as its intervals one by one, whatever
    the function computes. Only if its plan is row by row anyway, it is called once for the whole range.
    """
    intervals = cells(reading.slice, pipeline.grid)
    if len(intervals) > 1 and (frames := _in_one_pass(pipeline, session, reads, reading.slice)):
        return frames
    parts: dict[str, list[SliceFrame]] = {pattern.target: [] for pattern in pipeline.writes}
    for cell in intervals:
        for target, frame in _call(pipeline, {name: read(cell) for name, read in reads.items()}, cell).items():
            parts[target].append(SliceFrame(cell, frame))
    return parts


def _in_one_pass(
    pipeline: Pipeline, session: SparkSession, reads: Mapping[str, Read], slice_: Slice
) -> dict[str, list[SliceFrame]] | None:
    """Call the function once for a range; return None if its plan is not certainly row by row."""
    times = {name: source.time for name, source in pipeline.reads.items() if source.by_interval}
    name, time = next(iter(times.items()))
    if pipeline.takes_interval or len(times) != 1 or time is None:
        return None
    frames = {name: read(slice_) for name, read in reads.items()}
    result = rowwise(session, frames[name], time, lambda rows: _call(pipeline, {**frames, name: rows}, slice_))
    return {target: [SliceFrame(slice_, frame, result[1])] for target, frame in result[0].items()} if result else None


def unite(parts: Sequence[SliceFrame], pattern: Pattern, writing: Writing) -> DataFrame:
    """Return the frames of a range as one. A row outside its own interval is refused, as in a work of that interval alone."""
    only = parts[0]
    if len(parts) == 1 and only.came_from is None:
        return only.frame
    from pyspark.sql import functions as F

    assert isinstance(pattern, RangeWriter)
    if only.came_from is not None:
        assert isinstance(only.slice, Interval)
        assert writing.grid is not None
        intervals = list(writing.grid.cells(only.slice.start, only.slice.end))
        return require_same_cell(only.frame, pattern.time_column(only.frame, writing), only.came_from, intervals)
    first = _columns(only.frame)
    frames = []
    for part in parts:
        assert isinstance(part.slice, Interval)
        if _columns(part.frame) != first:
            raise SchemasDiffer
        frames.append(fail_unless(part.frame, F.expr(inside(*pattern.time_column(part.frame, writing), part.slice))))
    while len(frames) > 1:
        # In pairs: a chain of unions would make a plan as deep as the range is long.
        pairs = zip_longest(frames[::2], frames[1::2])
        frames = [one if other is None else one.unionByName(other) for one, other in pairs]
    return frames[0]


def _columns(frame: DataFrame) -> set[tuple[str, str]]:
    from oncelake.spark.row_encoding import type_text

    return {(field.name.casefold(), type_text(field.dataType)) for field in frame.schema.fields}


def _call(pipeline: Pipeline, frames: Mapping[str, DataFrame], slice_: Slice) -> dict[str, DataFrame]:
    arguments: dict[str, Any] = {**frames}
    failpoint("read")
    if pipeline.takes_interval:
        arguments["interval"] = slice_
    try:
        result = pipeline.function(**arguments)
    except OncelakeError:
        raise
    except Exception as error:
        where, problem = _raised_at(error, pipeline), f"{type(error).__name__}: {one_line(error)}"
        raise FunctionFailed(where=where, pipeline=pipeline.name, problem=problem) from error
    failpoint("transformed")
    return _by_target(result, pipeline)


def _raised_at(error: Exception, pipeline: Pipeline) -> str:
    """Return the line of the user's file that raised, or the place of the declaration."""
    file = getattr(getattr(inspect.unwrap(pipeline.function), "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{display_path(file)}:{lines[-1]}" if file and lines else pipeline.where


def _by_target(result: Any, pipeline: Pipeline) -> dict[str, DataFrame]:
    from pyspark.sql import DataFrame

    targets = [pattern.target for pattern in pipeline.writes]
    expected = "a DataFrame" if len(targets) == 1 else f"a dict of DataFrames for {', '.join(targets)}"
    frames = {targets[0]: result} if len(targets) == 1 and not isinstance(result, dict) else result
    if not isinstance(frames, dict) or set(frames) != set(targets):
        got = f"a dict of {', '.join(map(str, frames))}" if isinstance(frames, dict) else _kind(result)
        raise WrongReturnType(where=pipeline.where, pipeline=pipeline.name, got=got, expected=expected)
    for target, frame in frames.items():
        if not isinstance(frame, DataFrame) or frame.isStreaming:
            got = "a streaming DataFrame" if isinstance(frame, DataFrame) else _kind(frame)
            expected = "a DataFrame" if len(targets) == 1 else f"a DataFrame for {target}"
            raise WrongReturnType(where=pipeline.where, pipeline=pipeline.name, got=got, expected=expected)
    return frames


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
