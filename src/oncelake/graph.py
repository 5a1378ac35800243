"""How pipelines hang together: the order they run in, and that no two own the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from oncelake.contracts import Pattern
from oncelake.errors import CyclicPipelines, DuplicatePipeline, OwnedTwice
from oncelake.pipelines import Pipeline
from oncelake.shares import disjoint


def ordered(pipelines: Iterable[Pipeline]) -> dict[str, Pipeline]:
    """The pipelines by name, upstream first; refused when two share a name or rows, or when they form a circle."""
    by_name: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        if pipeline.name in by_name:
            first = by_name[pipeline.name].where
            raise DuplicatePipeline(name=pipeline.name, first=first, second=pipeline.where)
        by_name[pipeline.name] = pipeline
    _check_ownership(by_name.values())
    upstream = {name: upstream_of(pipeline, by_name.values()) for name, pipeline in sorted(by_name.items())}
    try:
        return {name: by_name[name] for name in TopologicalSorter(upstream).static_order()}
    except CycleError as error:
        raise CyclicPipelines(circle=" → ".join(reversed(error.args[1]))) from error


def upstream_of(pipeline: Pipeline, pipelines: Iterable[Pipeline]) -> list[str]:
    """The names of the pipelines that write what this one reads."""
    reads = {table.casefold() for table in pipeline.reads_tables}
    return [other.name for other in pipelines if reads & {table.casefold() for table in other.writes_tables}]


def _check_ownership(pipelines: Iterable[Pipeline]) -> None:
    writers: defaultdict[str, list[tuple[Pipeline, Pattern]]] = defaultdict(list)
    for pipeline in pipelines:
        for pattern in pipeline.writes:
            # Folders do not tell names apart by case everywhere; rows must not depend on that.
            writers[pattern.target.casefold()].append((pipeline, pattern))
    for target, owners in writers.items():
        for inner in writers:
            if inner.startswith(f"{target}."):
                first, second = owners[0][0], writers[inner][0][0]
                raise OwnedTwice(target=target, first=_owner(first), second=_owner(second))
    for owners in writers.values():
        for (one, its), (other, others) in combinations(owners, 2):
            if (its.replaces or others.replaces) and not disjoint(its.within, others.within):
                raise OwnedTwice(target=its.target, first=_owner(one), second=_owner(other))


def _owner(pipeline: Pipeline) -> str:
    return f"{pipeline.name} ({pipeline.where})"
