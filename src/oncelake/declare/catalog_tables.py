"""Tables that pipelines read by their names in the session's catalog, and targets that become known to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadDeclaration, BadSettings
from oncelake.errors.base import did_you_mean

# What the name of a table begins with that is read by its name in the catalog.
PREFIX = "catalog."


def catalog_tables(pipelines: Iterable[Pipeline]) -> set[str]:
    """Return the tables that are read by their names in the catalog."""
    return {name for pipeline in pipelines for name in pipeline.reads_tables if name.startswith(PREFIX)}


def refuse_own_targets(
    pipelines: Iterable[Pipeline],
    path_of: Callable[[str], str],
    locations: Mapping[str, str],
    register: bool | tuple[str, ...],
) -> None:
    """Raise BadDeclaration if a target is read by its name in the catalog: the reader would not wait for its writer.

    A target has a path in the lake; `locations` are the paths that the catalog gave.
    """
    pipelines = list(pipelines)
    targets = {target: path_of(target) for pipeline in pipelines for target in pipeline.writes_tables}
    named = {PREFIX + target: target for target in targets if register is True or (register and target in register)}
    for pipeline in pipelines:
        for name in sorted(catalog_tables([pipeline])):
            if target := named.get(name) or _target_at(locations.get(name), targets):
                problem = f"{name} is a target of this project: read it as once.table({target!r}), so that its writer runs first"
                raise BadDeclaration(where=pipeline.where, problem=problem)


def check_registered(pipelines: Iterable[Pipeline], register: bool | tuple[str, ...], where: str) -> None:
    """Raise BadSettings if `register` names a table that no pipeline writes."""
    targets = sorted({target for pipeline in pipelines for target in pipeline.writes_tables})
    for name in () if isinstance(register, bool) else register:
        if name not in targets:
            problem = f"register names {name!r}, which no pipeline writes{did_you_mean(name, targets)}"
            raise BadSettings(where=where, problem=problem)


def is_same_place(found: str, path: str) -> bool:
    """Return whether a path that the catalog gave is that of a table."""
    return found.rstrip("/") == path.removeprefix("file://").rstrip("/")


def _target_at(path: str | None, targets: Mapping[str, str]) -> str | None:
    return next((target for target, place in targets.items() if path and is_same_place(path, place)), None)
