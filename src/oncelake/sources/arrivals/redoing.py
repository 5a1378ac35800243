"""A batch that is read again, after a restore or for another target: which of its files it reads, and as what.

What a batch left to a later one stays there: the later one is read again, too, or the file counts as new. So each file is read
once, whatever was undone. A file that changed since the batch was committed is read as it is now, if no later batch has it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.current_files import CurrentFiles, full_path, stamps
from oncelake.sources.arrivals.manifests import CHANGED, GONE, LEFT, RETRIED, Manifest
from oncelake.storage.objects import replace_file, storage

if TYPE_CHECKING:
    from oncelake.sources.arrivals.backlog import Backlog

# By which attempts the outcomes of batches that were read again are recorded: a short cut, without it they are recorded again.
_PROGRESS = "redone.json"


class FileChoice(NamedTuple):
    """The files that a batch leaves out, by state, and those that it reads as they are now, with size and modification time."""

    left: dict[str, list[str]]
    current: dict[str, list[int]]


def choose_files(backlog: Backlog, manifest: Manifest, found: CurrentFiles) -> FileChoice:
    """Return how the files of a batch are read that are not as they were frozen, or that an earlier attempt left out."""
    left, current = {CHANGED: found.changed, GONE: found.gone}, dict[str, list[int]]()
    outcomes = backlog.manifests.outcomes(manifest.number)
    if outcomes is not None:  # it was committed before
        before = _paths_by_state(outcomes)
        left = _left_before(left, before)
        taken = [path for path in left[CHANGED] if path not in before.get(CHANGED, ())]
        quarantined = sorted(before.get("quarantined", set()).difference(*left.values()))
        owned = _owned_later(backlog, manifest.number, [*taken, *quarantined]) if taken or quarantined else {}
        left[RETRIED] = left.get(RETRIED, []) + [path for path in quarantined if owned.get(path)]
        if backlog.source.changed != "append":  # otherwise a changed file has a batch of its own
            current, gone = _stamps(backlog, [path for path in taken if path not in owned])
            left[CHANGED] = [path for path in left[CHANGED] if path not in current and path not in gone]
            left[GONE] = [*left[GONE], *gone]
    return FileChoice({state: paths for state, paths in left.items() if paths}, current)


def with_stamps(files: pa.Table, current: Mapping[str, list[int]]) -> pa.Table:
    """Return files with other sizes and modification times."""
    rows = [
        row | dict(zip(("size", "modified"), current.get(row["path"], ()), strict=False)) for row in files.to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=files.schema)


def newly_redone(folder: str, facts: Mapping[int, Mapping[str, Any]], recorded: Collection[int]) -> list[int]:
    """Return the batches that were read again by an attempt whose outcomes are not recorded."""
    redone = {number: each.get("attempt") for number, each in facts.items() if each.get("redo") and number in recorded}
    known = _load_progress(folder) if redone else {}
    return sorted(number for number, attempt in redone.items() if known.get(str(number)) != attempt)


def note_redone(folder: str, facts: Mapping[int, Mapping[str, Any]], numbers: Iterable[int]) -> None:
    """Note that the outcomes of batches are those of their newest attempts."""
    known = _load_progress(folder) | {str(number): facts[number].get("attempt") for number in numbers}
    replace_file(folder, _PROGRESS, json.dumps(known).encode())


def _load_progress(folder: str) -> dict[str, Any]:
    try:
        return dict(json.loads(storage(folder).read(_PROGRESS)))
    except (OSError, ValueError):
        return {}


def _paths_by_state(outcomes: pa.Table) -> dict[str, set[str]]:
    some = outcomes.filter(pc.is_in(outcomes["state"], value_set=pa.array([*LEFT, "quarantined"])))
    found: dict[str, set[str]] = {}
    for state, path in zip(some["state"].to_pylist(), some["path"].to_pylist(), strict=True):
        found.setdefault(state, set()).add(path)
    return found


def _left_before(left: Mapping[str, list[str]], before: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return what is left out, with what an earlier attempt left out: that is new by now, or in a later batch."""
    known = {path: state for state in LEFT for path in before.get(state, ())}
    found: dict[str, list[str]] = {CHANGED: [], GONE: []}
    for state, paths in left.items():
        found[state] += [path for path in paths if path not in known]
    for path, state in sorted(known.items()):
        found.setdefault(state, []).append(path)
    return found


def _owned_later(backlog: Backlog, number: int, paths: list[str]) -> dict[str, bool]:
    """Return the files that a later batch has, and whether it is a retry of what this one put into quarantine."""
    wanted, owned = pa.array(paths, pa.string()), dict[str, bool]()
    for manifest in backlog.manifests.load_all(backlog.manifests.numbers(number)):
        retried = {key[1] for key in manifest.facts.get("retries", ()) if key[0] == number and key[2] is key[3] is None}
        found = manifest.files["path"].filter(pc.is_in(manifest.files["path"], value_set=wanted)).to_pylist()
        left = backlog.left_paths(manifest.number) if found else ()
        owned |= {path: path in retried or owned.get(path, False) for path in found if path not in left}
    return owned


def _stamps(backlog: Backlog, paths: list[str]) -> tuple[dict[str, list[int]], list[str]]:
    root = backlog.reading.lake.file("")
    found = dict(zip(paths, stamps([full_path(path, root) for path in paths]) if paths else (), strict=True))
    current = {path: list(stamp) for path, stamp in found.items() if stamp}
    return current, [path for path, stamp in found.items() if not stamp]
