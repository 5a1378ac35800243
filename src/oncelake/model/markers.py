"""What a piece of work is called inside the commit that does it. Deterministic: no clock, no chance, no counter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import quote, unquote

from oncelake.model.intervals import Interval
from oncelake.model.slices import Batch, Slice, Whole, parse_slice

PREFIX = "once"
# Before the slice in the app id of a restatement that was asked for: whoever runs next does what is left of it.
RESTATE_PREFIX = "restate "
# Before the identity of a stream in the app id of its batches.
STREAM_PREFIX = "stream "
# Everything else is percent-encoded, above all "/" and "%": no two works ever share a marker.
_SAFE = " :+,=@()"
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_RANKS_PER_INSTANT = 1000


@dataclass(frozen=True)
class Marker:
    """A work's identity inside its commit: Delta skips a write whose app id has this version or a later one."""

    app_id: str
    version: int


def app_id(pipeline: str, target: str, slice_: Slice) -> str:
    """The `txnAppId` of a slice."""
    # An interval's text has no sign that would be encoded.
    slice_text = slice_.text if isinstance(slice_, Interval) else _quoted(slice_.text)
    return f"{PREFIX}/{_quoted(pipeline)}/{_quoted(target)}/{slice_text}"


@lru_cache(maxsize=1024)
def _quoted(part: str) -> str:
    return quote(part, safe=_SAFE)


def restate_app_id(pipeline: str, target: str, slice_: Slice) -> str:
    """The `txnAppId` that says up to which generation a slice was asked to be done."""
    done = app_id(pipeline, target, slice_)
    return f"{done[: done.rindex('/') + 1]}{RESTATE_PREFIX}{done[done.rindex('/') + 1 :]}"


def parse_app_id(text: str) -> tuple[str, str, Slice] | None:
    """Pipeline, target and slice of one of our app ids; None for anybody else's."""
    parts = text.split("/")
    if len(parts) != 4 or parts[0] != PREFIX:
        return None
    pipeline, target, slice_ = (unquote(part) for part in parts[1:])
    try:
        return pipeline, target, parse_slice(slice_)
    except (ValueError, OverflowError):
        return None


def stream_app_id(pipeline: str, target: str, stream: str) -> str:
    """Return the `txnAppId` of a stream: one for all its batches, which Delta's high-water rule keeps in order."""
    return f"{PREFIX}/{_quoted(pipeline)}/{_quoted(target)}/{_quoted(STREAM_PREFIX + stream)}"


def marker(pipeline: str, target: str, slice_: Slice, generation: int) -> Marker:
    """Return the marker of work that owns its slice alone: the slice is in the app id, the generation is the version.

    A batch is the exception: its stream is in the app id and its number is the version, so that a stream of one batch a
    minute leaves one marker, and not half a million a year.
    """
    if isinstance(slice_, Batch):
        return Marker(stream_app_id(pipeline, target, slice_.stream), slice_.number)
    return Marker(app_id(pipeline, target, slice_), generation)


def reload_marker(pipeline: str, target: str, slice_: Slice, generation: int) -> Marker:
    """The marker of work that replaces the whole table for an interval: one app id, and a later interval is later.

    Delta's own rule (skip what is not newer) then keeps an older reload from replacing a newer one.
    """
    if not isinstance(slice_, Interval):
        return marker(pipeline, target, slice_, generation)
    seconds = int((slice_.start - _YEAR_ONE).total_seconds())
    return Marker(app_id(pipeline, target, Whole()), seconds * _RANKS_PER_INSTANT + generation)


def newest_reload(recorded: int) -> datetime | None:
    """The start of the interval whose reload was recorded last; None if it was that of a whole slice."""
    seconds = recorded // _RANKS_PER_INSTANT
    return _YEAR_ONE + timedelta(seconds=seconds) if seconds else None


def reload_generation(recorded: int) -> int:
    """The generation of the interval whose reload was recorded last."""
    return recorded % _RANKS_PER_INSTANT
