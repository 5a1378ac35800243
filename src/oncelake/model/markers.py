"""Markers: the identity of a work in its commit (Delta's `txn` action). Deterministic: no clock, no randomness, no counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import quote, unquote

from oncelake.model.intervals import Interval
from oncelake.model.slices import Batch, Slice, Whole, parse_slice

PREFIX = "once"
# Before the slice in the app id of a restate request: the next run does what is left of it.
RESTATE_PREFIX = "restate "
# Before the slice in the app id of a commit that applies a work once more, because another commit had overtaken it.
REAPPLY_PREFIX = "reapply "
# Before the identity of a stream in the app id of its batches.
STREAM_PREFIX = "stream "
# All other characters are percent-encoded, above all "/" and "%", so that no two works share a marker.
_SAFE = " :+,=@()"
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_GENERATIONS_PER_INSTANT = 1000
_FIRST_INSTANT = 10**12
# Before the target and the version of a restore in the app id that says to which version it went back.
RESTORE_PREFIX = "once-restore/"


@dataclass(frozen=True)
class Marker:
    """A work's identity inside its commit: Delta skips a write whose app id has this version or a later one."""

    app_id: str
    version: int


def app_id(pipeline: str, target: str, slice_: Slice) -> str:
    """Return the `txnAppId` of a slice."""
    # The text of an interval has no character that would be encoded.
    slice_text = slice_.text if isinstance(slice_, Interval) else _encode(slice_.text)
    return f"{PREFIX}/{_encode(pipeline)}/{_encode(target)}/{slice_text}"


@lru_cache(maxsize=1024)
def _encode(part: str) -> str:
    return quote(part, safe=_SAFE)


def restate_app_id(pipeline: str, target: str, slice_: Slice) -> str:
    """Return the `txnAppId` of restate requests: its version is the generation up to which a slice was requested."""
    done = app_id(pipeline, target, slice_)
    return f"{done[: done.rindex('/') + 1]}{RESTATE_PREFIX}{done[done.rindex('/') + 1 :]}"


def reapply_app_id(work: str) -> str:
    """Return the `txnAppId` of the commits that apply a work once more, by the app id of the work."""
    start, _, slice_ = work.rpartition("/")
    return f"{start}/{REAPPLY_PREFIX}{slice_}"


def applied_work(text: str) -> str:
    """Return the app id of the work that a commit with this app id applies."""
    start, _, slice_ = text.rpartition("/")
    return f"{start}/{slice_.removeprefix(REAPPLY_PREFIX)}" if slice_.startswith(REAPPLY_PREFIX) else text


def requested_work(text: str) -> str:
    """Return the app id of the work that a restate request with this app id names; any other app id as it is."""
    start, _, slice_ = text.rpartition("/")
    return f"{start}/{slice_.removeprefix(RESTATE_PREFIX)}" if slice_.startswith(RESTATE_PREFIX) else text


def former_app_ids(text: str, formerly: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return one of our app ids as it was spelled under the former names of its pipeline."""
    prefix, _, rest = text.partition("/")
    pipeline, _, rest = rest.partition("/")
    names = formerly.get(unquote(pipeline), ()) if prefix == PREFIX else ()
    return [f"{PREFIX}/{_encode(name)}/{rest}" for name in names]


def present_app_id(text: str, formerly: Mapping[str, tuple[str, ...]]) -> str:
    """Return one of our app ids as it is spelled under the present name of its pipeline."""
    prefix, _, rest = text.partition("/")
    pipeline, _, rest = rest.partition("/")
    present = next((name for name, names in formerly.items() if prefix == PREFIX and unquote(pipeline) in names), None)
    return text if present is None else f"{PREFIX}/{_encode(present)}/{rest}"


def writer_of(text: str) -> tuple[str, str] | None:
    """Return pipeline and target of an app id that a pipeline wrote; None for requests, for `once.write` and for others."""
    parts = text.split("/")
    if len(parts) != 4 or parts[0] != PREFIX or parts[3].startswith((RESTATE_PREFIX, REAPPLY_PREFIX, "=")):
        return None
    return unquote(parts[1]), unquote(parts[2])


def parse_app_id(text: str) -> tuple[str, str, Slice] | None:
    """Return the pipeline, target and slice of an app id; None if another tool wrote it."""
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
    return f"{PREFIX}/{_encode(pipeline)}/{_encode(target)}/{_encode(STREAM_PREFIX + stream)}"


def parse_stream(text: str) -> tuple[str, str, str] | None:
    """Return the pipeline, target and stream of the app id of a stream; None if it is another."""
    parts = text.split("/")
    if len(parts) != 4 or parts[0] != PREFIX or not (stream := unquote(parts[3])).startswith(STREAM_PREFIX):
        return None
    return unquote(parts[1]), unquote(parts[2]), stream.removeprefix(STREAM_PREFIX)


def streams_of(markers: Mapping[str, int], pipelines: Iterable[str], target: str) -> dict[str, int]:
    """Return the streams of pipelines, by some names, among the markers of a target: the last batch of each."""
    names = set(pipelines)
    found = ((parse_stream(app_id), version) for app_id, version in markers.items())
    return {each[2]: version for each, version in found if each and each[0] in names and each[1] == target}


def marker(pipeline: str, target: str, slice_: Slice, generation: int) -> Marker:
    """Return the marker of a work that alone owns its slice: the slice is in the app id, the generation is the version.

    A batch is the exception: its stream is in the app id and its number is the version. A stream with one batch a minute
    then leaves one marker, and not half a million a year.
    """
    if isinstance(slice_, Batch):
        return Marker(stream_app_id(pipeline, target, slice_.stream), slice_.number)
    return Marker(app_id(pipeline, target, slice_), generation)


def reload_marker(pipeline: str, target: str, slice_: Slice, generation: int) -> Marker:
    """Return the marker of a work that replaces the whole table for an interval: one app id, with versions in time order.

    Delta skips a version that is not newer, so an older reload never replaces a newer one.
    """
    if not isinstance(slice_, Interval):
        return marker(pipeline, target, slice_, generation)
    seconds = int((slice_.start - _YEAR_ONE).total_seconds())
    return Marker(app_id(pipeline, target, Whole()), seconds * _GENERATIONS_PER_INSTANT + generation)


def newest_reload(recorded: int) -> datetime | None:
    """Return the start of the interval that was reloaded last; None if that reload had no interval."""
    # Generations of a slice without an interval are small; instants are not, from the year 32 on.
    seconds = recorded // _GENERATIONS_PER_INSTANT if recorded >= _FIRST_INSTANT else 0
    return _YEAR_ONE + timedelta(seconds=seconds) if seconds else None


def reload_generation(recorded: int) -> int:
    """Return the generation of the interval that was reloaded last."""
    return recorded % _GENERATIONS_PER_INSTANT


def restore_marker(target: str, at: int, to: int) -> Marker:
    """Return the marker of a commit that goes back to an older version (-1 for a rebuild, which keeps nothing).

    Commits between the two are no longer in the table's lineage. Markers outlive the clean-up of the log.
    """
    return Marker(f"{RESTORE_PREFIX}{_encode(target)}/{at}", to + 1)


def parse_restore(app_id: str, version: int) -> tuple[int, int] | None:
    """Return the version of a restore and the one it went back to; None if the marker is another's."""
    at = app_id.rpartition("/")[2]
    return (int(at), version - 1) if app_id.startswith(RESTORE_PREFIX) and at.isdigit() else None
