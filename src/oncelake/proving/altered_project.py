"""A project whose surroundings a case changes: tables without a lock, input tables at other paths, another grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from oncelake.delta.tables import DeltaTable, Lake
from oncelake.model.intervals import Grid

if TYPE_CHECKING:
    import oncelake as once
    from oncelake.declare.pipelines import Pipeline


def alter_project(project: once.Project, name: str, request: Mapping[str, Any]) -> once.Project:
    """Return the project as a request wants it around a pipeline; the project itself if it wants nothing."""
    inputs, grid, no_lock = request.get("inputs"), request.get("grid"), request.get("no_lock")
    if not (inputs or grid or no_lock):
        return project
    altered = copy(project)
    if inputs:
        # Nobody writes the copies, so that nothing waits for the pipelines that write the originals.
        altered.pipelines = {
            other: pipeline
            for other, pipeline in project.pipelines.items()
            if other == name or not pipeline.writes_tables & inputs.keys()
        }
        altered.lake = replace(project.lake, elsewhere={**project.lake.elsewhere, **inputs}, _tables={})
    if grid:
        altered.pipelines = {**altered.pipelines, name: on_grid(altered.pipelines[name], Grid(**grid))}
    if no_lock:
        known = {field.name: getattr(altered.lake, field.name) for field in fields(altered.lake)}
        altered.lake = _UnlockedLake(**{**known, "_tables": {}})
    return altered


def on_grid(pipeline: Pipeline, grid: Grid) -> Pipeline:
    """Return the pipeline as if it were declared with another grid; it starts with the interval of its first one."""
    assert pipeline.start is not None
    return replace(pipeline, grid=grid, start=grid.floor(pipeline.start))


def tables_by_time(pipeline: Pipeline) -> dict[str, str]:
    """Return the time columns of the tables that a pipeline reads by interval, without those that it reads twice."""
    count = Counter(table for source in pipeline.reads.values() for table in source.tables)
    sources = [source for source in pipeline.reads.values() if source.by_interval and source.time is not None]
    return {source.tables[0]: source.time for source in sources if source.time and count[source.tables[0]] == 1}


class _UnlockedTable(DeltaTable):
    """A table whose lock keeps nobody out, as on an object store without leases."""

    @property
    def exclusive(self) -> bool:
        """Return False: another writer may commit at any moment."""
        return False

    def lock(self, *_: Any, **__: Any) -> AbstractContextManager[None]:
        """Hold nothing."""
        return nullcontext()


@dataclass(frozen=True)
class _UnlockedLake(Lake):
    """A lake without locks."""

    def table(self, name: str) -> DeltaTable:
        """Return a table without a lock."""
        found = self._tables.get(name)
        if not isinstance(found, _UnlockedTable):
            path = super().table(name).path
            found = self._tables[name] = _UnlockedTable(name, path, self.path, self.formerly.get(name))
        return found
