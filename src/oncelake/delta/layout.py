"""Validate the target of a pattern: table name, columns, layout (partitioning, clustering) and row filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncelake.delta.writes import Layout
from oncelake.errors import BadDeclaration
from oncelake.model.names import table_name_problem
from oncelake.model.source_location import declared_at
from oncelake.spark.sql import filter_predicates

ColumnNames = str | Iterable[str] | None


def parse_target(name: str) -> str:
    """Return the target's name; raise BadDeclaration if it is not the name of a table in the lake."""
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    if name.startswith("catalog."):
        problem = f"{name} is a name of the session's catalog, by which tables are read; targets are written by path"
        raise BadDeclaration(where=declared_at(), problem=f"{problem}: name it like silver.orders, with register: true")
    return name


def parse_columns(what: str, columns: ColumnNames) -> tuple[str, ...]:
    """Return one or several column names as a tuple; raise BadDeclaration for a duplicate or a non-name."""
    names = (columns,) if isinstance(columns, str) else tuple(columns or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise BadDeclaration(
            where=declared_at(), problem=f"{what} must be column names without duplicates, not {columns!r}"
        )
    return names


def parse_layout(
    partition_by: ColumnNames, cluster_by: ColumnNames, deletion_vectors: bool = False, compact: bool = False
) -> Layout:
    """Return the layout; raise BadDeclaration if Delta does not support it."""
    partitioned, clustered = parse_columns("partition_by", partition_by), parse_columns("cluster_by", cluster_by)
    layout = Layout(partitioned, clustered, deletion_vectors, compact)
    if layout.partition_by and layout.cluster_by:
        raise BadDeclaration(where=declared_at(), problem="a table can be partitioned or clustered, not both")
    return layout


def parse_row_filter(within: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the row filter; raise BadDeclaration if its values cannot be part of a predicate."""
    try:
        filter_predicates(within or {})
    except (TypeError, AttributeError) as error:
        raise BadDeclaration(where=declared_at(), problem=f"within={within!r} is not a row filter: {error}") from error
    return dict(within or {})
