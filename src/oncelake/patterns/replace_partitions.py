"""`once.replace_partitions`: replace whole partitions in one commit, and only the declared ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelake.delta import writes
from oncelake.delta.layout import ColumnNames, parse_columns, parse_row_filter, parse_target
from oncelake.delta.targets import compute, frame_origin, replace
from oncelake.delta.writes import Layout, partitions_of
from oncelake.errors import BadDeclaration, NotPartitioned, WrongTimeType
from oncelake.model.contracts import Log, Writing
from oncelake.model.intervals import Grid, Interval
from oncelake.model.pattern import PatternDefaults, spell_row_filter
from oncelake.model.source_location import declared_at
from oncelake.spark.columns import find_column, hour_types
from oncelake.spark.sql import all_of, filter_predicates, inside, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME_TYPES = ("date", "timestamp", "timestamp_ntz", "string")


def replace_partitions(
    target: str,
    by: ColumnNames,
    values: Iterable[Any] | None = None,
    within: Mapping[str, Any] | None = None,
) -> ReplacePartitions:
    """Replace whole partitions of a table that is partitioned `by` these columns.

    A pipeline driven by intervals replaces the partitions of the interval: one of the columns must be a date, a timestamp
    or text like 2024-03-15. A pipeline without intervals replaces the `values` of the one column, all of them (those
    without rows are cleared). If no values are declared, it replaces the partitions that the result has rows for.
    """
    columns = parse_columns("by", by)
    if not columns:
        raise BadDeclaration(where=declared_at(), problem=f"replace_partitions on {target} needs by=")
    declared = None if values is None else tuple(values)
    if declared is not None and (len(columns) != 1 or not declared):
        raise BadDeclaration(where=declared_at(), problem="values= lists the values of the one column in by=")
    parse_row_filter({columns[0]: list(declared or ())})
    return ReplacePartitions(parse_target(target), columns, declared, parse_row_filter(within))


@dataclass(frozen=True)
class ReplacePartitions(PatternDefaults):
    """A declared `replace_partitions`."""

    target: str
    by: tuple[str, ...]
    values: tuple[Any, ...] | None
    row_filter: Mapping[str, Any]
    kind = "replace_partitions"
    replaces = True

    @property
    def within(self) -> Mapping[str, Any]:
        """The declared row filter."""
        return self.row_filter

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Return the declared partition columns."""
        return self.by

    @property
    def replaced_rows(self) -> Mapping[str, Any]:
        """The values of the one partition column, if they are declared, and the row filter."""
        values = None if self.values is None else sorted(map(str, self.values))
        return {"values": values, "within": spell_row_filter(self.row_filter)}

    def problem(self, grid: Grid | None) -> str | None:
        """Refuse `values` in a pipeline with intervals: a fixed set of partitions cannot belong to many intervals."""
        if grid is not None and self.values is not None:
            return f"replace_partitions on {self.target}: values= are the same for every interval; remove every= or values="
        return None

    def cut_column(self, log: Log | None) -> str | None:
        """Return the partition column that is a time, by the types of the table."""
        types = {name.casefold(): kind for name, kind in log.schema.items()} if log else {}
        return next((name for kind in _TIME_TYPES for name in self.by if types.get(name.casefold()) == kind), None)

    def partitioned_by_time(self, log: Log | None) -> bool:  # noqa: ARG002  the contract
        """Return True: the time column is a partition column."""
        return True

    def write(self, frame: DataFrame, writing: Writing) -> None:
        """Write one `replaceWhere` on the declared partitions and the row filter."""
        names = tuple(find_column(frame, column, frame_origin(writing))[0] for column in self.by)
        if isinstance(writing.work.slice, Interval):
            writing = writing.with_facts(cut_by=[self.time_column(frame, writing)[0], writing.work.slice.zone])
        frame, log = compute(frame, writing, Layout(partition_by=names))
        if {name.casefold() for name in log.partitioned_by} != {name.casefold() for name in names}:
            found = ", ".join(log.partitioned_by) or "nothing"
            facts = {"pipeline": writing.work.pipeline, "where": writing.where}
            raise NotPartitioned(target=self.target, found=found, declared=", ".join(names), **facts)
        partitions = self._partitions(frame, names, writing)
        if partitions is None:
            # No rows, so there is no partition to replace: the commit carries the marker alone.
            writes.append(frame, writing.path, writing.stamp)
            return
        replace(frame, writing, all_of([partitions, *filter_predicates(self.row_filter)]), (*names, *self.row_filter))

    def _partitions(self, frame: DataFrame, names: tuple[str, ...], writing: Writing) -> str | None:
        """Return the predicate of the partitions to replace; None if there are none."""
        if isinstance(writing.work.slice, Interval):
            return inside(*self.time_column(frame, writing), writing.work.slice)
        if self.values is not None:
            return filter_predicates({names[0]: list(self.values)})[0]
        return one_of(partitions_of(frame, names))

    def time_column(self, frame: DataFrame, writing: Writing) -> tuple[str, str]:
        """Return the partition column that is a time, and its type."""
        origin = frame_origin(writing)
        columns = [find_column(frame, name, origin) for name in self.by]
        hours = hour_types(writing.grid) if writing.grid is not None and writing.grid.every == "hour" else ()
        allowed = hours or _TIME_TYPES
        time_columns = [pair for kind in allowed for pair in columns if pair[1] == kind]
        if not time_columns:
            needs = "a date, a timestamp or text like 2024-03-15 among the partition columns"
            needs = f"{' or '.join(hours)} among the partition columns" if hours else needs
            facts = {
                "whose": origin.whose,
                "pipeline": origin.pipeline,
                "where": origin.where,
                "every": writing.grid.every if writing.grid else "day",
            }
            raise WrongTimeType(
                column=", ".join(self.by), type=", ".join(kind for _, kind in columns), needs=needs, **facts
            )
        return time_columns[0]
