"""Going back to an older version of a target, knowingly: what that undoes is asked for again, in the same commit.

Delta's own RESTORE keeps every marker, so that what it undid would be taken for done for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.log import TableLog, read_log_at
from oncelake.delta.writes import restore
from oncelake.errors import BadVersion
from oncelake.model.markers import Marker, newest_reload, parse_app_id, reload_generation, restate_app_id
from oncelake.model.slices import Named, Slice, Whole


@dataclass(frozen=True)
class Undone:
    """A work whose commit a restore takes back, and the generation in which it is to be done again."""

    pipeline: str
    target: str
    slice: Slice
    generation: int

    @property
    def marker(self) -> Marker:
        """What asks for it."""
        return Marker(restate_app_id(self.pipeline, self.target, self.slice), self.generation)

    def document(self) -> dict[str, Any]:
        """As `restore --json` prints it."""
        named = {"pipeline": self.pipeline, "target": self.target, "slice": str(self.slice)}
        return {**named, "generation": self.generation}


@dataclass(frozen=True)
class Restore:
    """What a restore does: from which version to which, and what it undoes."""

    target: str
    read: int
    to: int
    undone: tuple[Undone, ...]
    # Works of `once.write`, which only their callers can do again.
    elsewhere: tuple[Undone, ...] = ()
    version: int | None = None

    def document(self) -> dict[str, Any]:
        """The restore as `restore --json` prints it."""
        return {
            "target": self.target,
            "from_version": self.read,
            "to_version": self.to,
            "version": self.version,
            "undone": [undone.document() for undone in self.undone],
            "undone_elsewhere": [undone.document() for undone in self.elsewhere],
        }


def plan_restore(log: TableLog, to: int, pipelines: Mapping[str, Pipeline]) -> Restore:
    """What a restore to a version would undo, by the markers there are now and were there then."""
    if not 0 <= to <= log.version:
        raise BadVersion(target=log.table, version=to, newest=log.version)
    then = read_log_at(log.table, log.path, to).markers
    undone = list(_undone(log, {name: recorded.version for name, recorded in then.items()}, pipelines))
    ours = tuple(each for each in undone if not isinstance(each.slice, Named))
    return Restore(log.table, log.version, to, ours, tuple(each for each in undone if isinstance(each.slice, Named)))


def apply_restore(planned: Restore, path: str) -> None:
    """One commit: the files of the older version, and the markers that ask for what is undone."""
    facts = {"restore": planned.to, "target": planned.target}
    markers = [undone.marker for undone in (*planned.undone, *planned.elsewhere)]
    restore(path, planned.to, markers, json.dumps({"oncelake": facts}))


def _undone(log: TableLog, then: Mapping[str, int], pipelines: Mapping[str, Pipeline]) -> Iterator[Undone]:
    for name, recorded in log.markers.items():
        parsed = parse_app_id(name)
        if parsed is None or then.get(name, 0) >= recorded.version:
            continue
        pipeline, target, slice_ = parsed
        generation = recorded.version
        if isinstance(slice_, Whole) and (newest := newest_reload(recorded.version)) is not None:
            declared = pipelines.get(pipeline)
            if declared is None or declared.grid is None:
                continue
            slice_, generation = declared.grid.cell(newest), reload_generation(recorded.version)
        yield Undone(pipeline, target, slice_, generation + 1)
