"""Calling the user's function: the frames it asked for go in, a frame for every target comes out."""

from __future__ import annotations

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
from oncelake.model.slices import Slice
from oncelake.model.source_location import display_path
from oncelake.running.rowwise import rowwise
from oncelake.spark.columns import fail_unless, require_same_cell
from oncelake.spark.sql import inside

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class SliceFrame(NamedTuple):
    """What a function made of a slice; of a range that it was called for at once also the time each row came from."""

    slice: Slice
    frame: DataFrame
    came_from: Column | None = None


class SchemasDiffer(Exception):
    """The intervals of a range have results of different columns: they cannot be written together."""


def call_transform(
    pipeline: Pipeline, session: SparkSession, reading: Reading, pins: Mapping[str, Any]
) -> dict[str, list[SliceFrame]]:
    """The frames of every target for a slice, not computed yet; of a range one for every interval in it.

    The function sees one interval at a time, so what is written together is what the intervals would give one by one,
    whatever the function does with their rows; unless its plan shows that it takes row by row anyway.
    """
    reads = {name: source.read(session, reading, pins[name]) for name, source in pipeline.reads.items()}
    cells = cells_of(reading.slice, pipeline)
    if len(cells) > 1 and (found := _at_once(pipeline, session, reads, reading.slice)):
        return found
    parts: dict[str, list[SliceFrame]] = {pattern.target: [] for pattern in pipeline.writes}
    for cell in cells:
        for target, frame in _called(pipeline, {name: read(cell) for name, read in reads.items()}, cell).items():
            parts[target].append(SliceFrame(cell, frame))
    return parts


def _at_once(
    pipeline: Pipeline, session: SparkSession, reads: Mapping[str, Read], slice_: Slice
) -> dict[str, list[SliceFrame]] | None:
    timed = {name: source.time for name, source in pipeline.reads.items() if source.by_interval}
    name, time = next(iter(timed.items()))
    if pipeline.takes_interval or len(timed) != 1 or time is None:
        return None
    frames = {name: read(slice_) for name, read in reads.items()}
    found = rowwise(session, frames[name], time, lambda rows: _called(pipeline, {**frames, name: rows}, slice_))
    return {target: [SliceFrame(slice_, frame, found[1])] for target, frame in found[0].items()} if found else None


def cells_of(slice_: Slice, pipeline: Pipeline) -> list[Slice]:
    """The intervals of the pipeline's grid in a slice, or the slice itself if it is no time."""
    if not isinstance(slice_, Interval) or pipeline.grid is None:
        return [slice_]
    return list(pipeline.grid.cells(slice_.start, slice_.end))


def unite(parts: Sequence[SliceFrame], pattern: Pattern, writing: Writing) -> DataFrame:
    """The frames of a range as one. A row that is not of the interval it came from is refused, as it would be alone."""
    only = parts[0]
    if len(parts) == 1 and only.came_from is None:
        return only.frame
    from pyspark.sql import functions as F

    assert isinstance(pattern, RangeWriter)
    if only.came_from is not None:
        assert isinstance(only.slice, Interval)
        assert writing.grid is not None
        cells = list(writing.grid.cells(only.slice.start, only.slice.end))
        return require_same_cell(only.frame, pattern.time_column(only.frame, writing), only.came_from, cells)
    first = _columns(only.frame)
    frames = []
    for part in parts:
        assert isinstance(part.slice, Interval)
        if _columns(part.frame) != first:
            raise SchemasDiffer
        frames.append(fail_unless(part.frame, F.expr(inside(*pattern.time_column(part.frame, writing), part.slice))))
    while len(frames) > 1:
        # In pairs: a chain of unions would be as deep as the range is long.
        pairs = zip_longest(frames[::2], frames[1::2])
        frames = [one if other is None else one.unionByName(other) for one, other in pairs]
    return frames[0]


def _columns(frame: DataFrame) -> set[tuple[str, str]]:
    from oncelake.spark.row_encoding import type_text

    return {(field.name.casefold(), type_text(field.dataType)) for field in frame.schema.fields}


def _called(pipeline: Pipeline, frames: Mapping[str, DataFrame], slice_: Slice) -> dict[str, DataFrame]:
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
    """The line of the user's file that raised, or where the function is."""
    file = getattr(getattr(pipeline.function, "__code__", None), "co_filename", None)
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
