"""Checking what a pattern says of its target: the name, the columns, the layout, the share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncelake.delta.writes import Layout
from oncelake.errors import BadDeclaration
from oncelake.model.names import table_name_problem
from oncelake.model.source_location import declared_at
from oncelake.spark.sql import share

ColumnNames = str | Iterable[str] | None


def parse_target(name: str) -> str:
    """A target's name, if it is one."""
    if problem := table_name_problem(name):
        raise BadDeclaration(where=declared_at(), problem=problem)
    return name


def parse_columns(what: str, columns: ColumnNames) -> tuple[str, ...]:
    """Column names: one, or several, each once."""
    names = (columns,) if isinstance(columns, str) else tuple(columns or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise BadDeclaration(where=declared_at(), problem=f"{what} names columns, each once, not {columns!r}")
    return names


def parse_layout(
    partition_by: ColumnNames, cluster_by: ColumnNames, deletion_vectors: bool = False, compact: bool = False
) -> Layout:
    """A layout, if it is one that Delta has."""
    partitioned, clustered = parse_columns("partition_by", partition_by), parse_columns("cluster_by", cluster_by)
    layout = Layout(partitioned, clustered, deletion_vectors, compact)
    if layout.partition_by and layout.cluster_by:
        raise BadDeclaration(where=declared_at(), problem="a table is partitioned or clustered, not both")
    return layout


def parse_row_filter(within: Mapping[str, Any] | None) -> dict[str, Any]:
    """A share, if its values can be part of a predicate."""
    try:
        share(within or {})
    except (TypeError, AttributeError) as error:
        raise BadDeclaration(where=declared_at(), problem=f"within={within!r} is no share: {error}") from error
    return dict(within or {})
