"""How pipelines hang together: the order they run in, and that no two own the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import CyclicPipelines, DuplicatePipeline, OverlappingWriters
from oncelake.model.contracts import Pattern, Source
from oncelake.model.ownership import disjoint


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
                raise OverlappingWriters(target=target, first=_owner(first), second=_owner(second))
    for owners in writers.values():
        for (one, its), (other, others) in combinations(owners, 2):
            if (its.replaces or others.replaces) and not disjoint(its.within, others.within):
                raise OverlappingWriters(target=its.target, first=_owner(one), second=_owner(other))


def _owner(pipeline: Pipeline) -> str:
    return f"{pipeline.name} ({pipeline.where})"


def edges(pipelines: Mapping[str, Pipeline]) -> list[tuple[str, str]]:
    """What is read and written: from tables and files to pipelines, and from pipelines to tables."""
    found: list[tuple[str, str]] = []
    for pipeline in pipelines.values():
        found += [(name, pipeline.name) for source in pipeline.reads.values() for name in _read(source)]
        found += [(pipeline.name, pattern.target) for pattern in pipeline.writes]
    return found


def as_text(pipelines: Mapping[str, Pipeline]) -> str:
    """A line for every pipeline, upstream first: what it reads, how often it runs, and what it writes by which pattern."""
    lines = []
    for pipeline in pipelines.values():
        reads = ", ".join(name for source in pipeline.reads.values() for name in _read(source))
        writes = ", ".join(f"{pattern.target} ({pattern.kind})" for pattern in pipeline.writes)
        every = f"every {pipeline.grid.every}" if pipeline.grid else "when its inputs change"
        lines.append(f"{reads} → {pipeline.name} ({every}) → {writes}")
    return "\n".join(lines)


def as_mermaid(pipelines: Mapping[str, Pipeline]) -> str:
    """A flowchart: tables and files are boxes, pipelines have round ends."""
    reads = [name for pipeline in pipelines.values() for source in pipeline.reads.values() for name in _read(source)]
    boxes = dict.fromkeys([*reads, *(pattern.target for p in pipelines.values() for pattern in p.writes)])
    # A table may be called like a pipeline: they are told apart by what they are.
    numbers = {("", name): f"t{number}" for number, name in enumerate(boxes)}
    numbers |= {("pipeline", name): f"p{number}" for number, name in enumerate(pipelines)}
    lines = [f'    {numbers["", name]}["{_escaped(name)}"]' for name in boxes]
    lines += [f'    {numbers["pipeline", name]}(["{_escaped(name)}"])' for name in pipelines]
    for pipeline in pipelines.values():
        mine = numbers["pipeline", pipeline.name]
        read = [name for source in pipeline.reads.values() for name in _read(source)]
        lines += [f"    {numbers['', name]} --> {mine}" for name in read]
        lines += [f"    {mine} -->|{pattern.kind}| {numbers['', pattern.target]}" for pattern in pipeline.writes]
    return "\n".join(["flowchart LR", *lines])


def _read(source: Source) -> list[str]:
    """The tables a source reads, or what else it is known by."""
    return list(source.tables) or [str(getattr(source, "path", source))]


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;")
