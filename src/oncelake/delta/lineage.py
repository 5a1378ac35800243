"""The lineage of a table: the versions that restores took out of it, and what the newest commits and a rebuild say of its works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from oncelake.model.markers import present_app_id

if TYPE_CHECKING:
    from oncelake.delta.commit_file import CommitFile
    from oncelake.delta.log import TableLog

Facts = Mapping[str, Any]


def undone_versions(restores: Iterable[tuple[int, int]], newest: int) -> list[tuple[int, int]]:
    """Return the ranges of versions that restores, each given as (its version, the version it went back to), undid."""
    found = []
    for at, to in sorted(restores, reverse=True):
        # A restore that is itself undone does not count.
        if at <= newest:
            if to + 1 < at:
                found.append((to + 1, at - 1))
            newest = to
    return found


def newest_rebuild(log: TableLog) -> CommitFile | None:
    """Return the commit of the newest rebuild that no restore undid, if the log still has it."""
    rebuilds = [at for at, to in log.restores if to == -1 and log.in_lineage(at) and at in log.commits]
    return log.entry(max(rebuilds)) if rebuilds else None


def rebuilt_facts(log: TableLog, rebuild: CommitFile | None, app_id: str) -> Facts | None:
    """Return what a rebuild says of a work that it replayed: from which inputs, by which code."""
    rebuilt = rebuild.facts.get("rebuilt", {}) if rebuild else {}
    # A rebuild writes the present names of pipelines, and the markers of former ones stay.
    return rebuilt.get(app_id) or rebuilt.get(present_app_id(app_id, log.formerly))


def recent_facts(log: TableLog, app_ids: Iterable[str], newest: int) -> Iterator[tuple[str, Facts | None]]:
    """Yield the facts of works, from the `newest` commits and from the last rebuild; None if their commit is gone.

    Works that only older commits tell of are left out.
    """
    found, rebuild, is_short = dict(log.newest_facts()), newest_rebuild(log), len(log.commits) <= newest
    for name in app_ids:
        facts = found.get(name)
        if facts is None:
            facts = rebuilt_facts(log, rebuild, name)
            # An older commit may have redone the work after the rebuild.
            is_newest = facts is not None and facts.get("generation") == log.recorded(name)
            if not is_short and not is_newest:
                continue
        yield name, facts
