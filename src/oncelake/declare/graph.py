"""The dependency graph of pipelines: topological order, ownership of rows, and drawings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from oncelake.declare.pipelines import Pipeline
from oncelake.errors import BadDeclaration, CyclicPipelines, DuplicatePipeline, OverlappingWriters
from oncelake.model.contracts import Pattern, Source
from oncelake.model.ownership import disjoint
from oncelake.model.streams import Follower


def sort_upstream_first(pipelines: Iterable[Pipeline]) -> dict[str, Pipeline]:
    """Return the pipelines by name, upstream first; raise if two share a name or rows, or if there is a cycle."""
    by_name: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        if pipeline.name in by_name:
            first = by_name[pipeline.name].where
            raise DuplicatePipeline(name=pipeline.name, first=first, second=pipeline.where)
        by_name[pipeline.name] = pipeline
    _check_ownership(by_name.values())
    _check_former_names(by_name)
    by_name = {name: _follow_writers(pipeline, by_name.values()) for name, pipeline in by_name.items()}
    upstream = {name: upstream_of(pipeline, by_name.values()) for name, pipeline in sorted(by_name.items())}
    try:
        return {name: by_name[name] for name in TopologicalSorter(upstream).static_order()}
    except CycleError as error:
        raise CyclicPipelines(circle=" → ".join(reversed(error.args[1]))) from error


def _follow_writers(pipeline: Pipeline, pipelines: Iterable[Pipeline]) -> Pipeline:
    """Return the pipeline with its streams of tables as the patterns that write those tables demand."""
    patterns = [pattern for other in pipelines for pattern in other.writes]
    reads = {
        name: source.follow(patterns) if isinstance(source, Follower) else source
        for name, source in pipeline.reads.items()
    }
    return pipeline if reads == dict(pipeline.reads) else replace(pipeline, reads=reads)


def upstream_of(pipeline: Pipeline, pipelines: Iterable[Pipeline]) -> list[str]:
    """Return the names of the pipelines that write the tables this one reads."""
    reads = {table.casefold() for table in pipeline.reads_tables}
    return [other.name for other in pipelines if reads & {table.casefold() for table in other.writes_tables}]


def _check_ownership(pipelines: Iterable[Pipeline]) -> None:
    writers: defaultdict[str, list[tuple[Pipeline, Pattern]]] = defaultdict(list)
    for pipeline in pipelines:
        for pattern in pipeline.writes:
            # Some file systems ignore case; ownership of rows must not depend on that.
            writers[pattern.target.casefold()].append((pipeline, pattern))
    for target, owners in writers.items():
        for inner in writers:
            if inner.startswith(f"{target}."):
                first, second = owners[0][0], writers[inner][0][0]
                raise OverlappingWriters(target=target, first=_owner(first), second=_owner(second))
    for owners in writers.values():
        for (first, one), (second, other) in combinations(owners, 2):
            if (one.replaces or other.replaces) and not disjoint(one.within, other.within):
                raise OverlappingWriters(target=one.target, first=_owner(first), second=_owner(second))


def former_names(pipelines: Iterable[Pipeline]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return, by target, the former names of the pipelines that write it, by their present names."""
    found: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for pipeline in pipelines:
        for target in pipeline.writes_tables if pipeline.formerly else ():
            found[target][pipeline.name] = pipeline.formerly or ()
    return dict(found)


def _check_former_names(pipelines: Mapping[str, Pipeline]) -> None:
    """Refuse a former name whose works belong to another pipeline of the same target."""
    for target, names in former_names(pipelines.values()).items():
        taken: dict[str, str] = {}
        for name, formerly in names.items():
            for former in formerly:
                where = pipelines[name].where
                if former in pipelines and target in pipelines[former].writes_tables:
                    problem = f"pipeline {name}: formerly={former!r}, but {former} is declared and writes {target} too"
                    raise BadDeclaration(where=where, problem=problem)
                if former in taken:
                    problem = f"both {taken[former]} and {name} were formerly {former!r} and write {target}"
                    raise BadDeclaration(where=where, problem=problem)
                taken[former] = name


def _owner(pipeline: Pipeline) -> str:
    return f"{pipeline.name} ({pipeline.where})"


def edges(pipelines: Mapping[str, Pipeline]) -> list[tuple[str, str]]:
    """Return the edges of the graph: from tables and files to pipelines, and from pipelines to tables."""
    found: list[tuple[str, str]] = []
    for pipeline in pipelines.values():
        found += [(name, pipeline.name) for source in pipeline.reads.values() for name in _inputs(source)]
        found += [(pipeline.name, pattern.target) for pattern in pipeline.writes]
    return found


def as_text(pipelines: Mapping[str, Pipeline]) -> str:
    """Return one line per pipeline, upstream first: its inputs, its schedule, and its targets with their patterns."""
    lines = []
    for pipeline in pipelines.values():
        reads = ", ".join(name for source in pipeline.reads.values() for name in _inputs(source))
        writes = ", ".join(f"{pattern.target} ({pattern.kind})" for pattern in pipeline.writes)
        every = f"every {pipeline.grid.every}" if pipeline.grid else "when its inputs change"
        lines.append(f"{reads} → {pipeline.name} ({every}) → {writes}")
    return "\n".join(lines)


def as_mermaid(pipelines: Mapping[str, Pipeline]) -> str:
    """Return a Mermaid flowchart: tables and files are boxes, pipelines have round ends."""
    reads = [name for pipeline in pipelines.values() for source in pipeline.reads.values() for name in _inputs(source)]
    boxes = dict.fromkeys([*reads, *(pattern.target for p in pipelines.values() for pattern in p.writes)])
    # A table and a pipeline may have the same name, so the node ids contain the kind.
    numbers = {("", name): f"t{number}" for number, name in enumerate(boxes)}
    numbers |= {("pipeline", name): f"p{number}" for number, name in enumerate(pipelines)}
    lines = [f'    {numbers["", name]}["{_escape(name)}"]' for name in boxes]
    lines += [f'    {numbers["pipeline", name]}(["{_escape(name)}"])' for name in pipelines]
    for pipeline in pipelines.values():
        node = numbers["pipeline", pipeline.name]
        inputs = [name for source in pipeline.reads.values() for name in _inputs(source)]
        lines += [f"    {numbers['', name]} --> {node}" for name in inputs]
        lines += [f"    {node} -->|{pattern.kind}| {numbers['', pattern.target]}" for pattern in pipeline.writes]
    return "\n".join(["flowchart LR", *lines])


def _inputs(source: Source) -> list[str]:
    """Return the tables a source reads, or its path."""
    return list(source.tables) or [str(getattr(source, "path", source))]


def _escape(text: str) -> str:
    return text.replace('"', "#quot;")
