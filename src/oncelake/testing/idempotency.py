"""Run a job twice and compare what it wrote: the core of `assert_idempotent`, without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncelake.delta.fingerprint import Fingerprint

    Table = str | Path | Callable[[], DataFrame]
    Tables = Table | Iterable[Table] | Mapping[str, Table]

# Tests are many short jobs: the quick compiler and few tasks halve their cost.
FAST = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_EXAMPLES = 5


def assert_idempotent(
    job: Callable[[], object],
    tables: Tables,
    *,
    exclude: Iterable[str] = (),
    times: int = 2,
    settings: Mapping[str, str] = FAST,
) -> None:
    """Run a job twice (or more) and fail unless every table holds after each run what it held after the first.

    A table is the path of a Delta table, or a function that returns a frame: `lambda: spark.table("silver.orders")`.
    Contents are compared, not counts. The columns in `exclude` are ignored, in whichever tables have them. `settings`
    are those of the Spark session that reads the tables, where none is active.
    """
    __tracebackhide__ = True
    problem = run_and_compare(job, ComparedTables(tables_by_name(tables), as_tuple(exclude), settings), times)
    if problem:
        raise AssertionError(problem)


class ProjectTables(dict[str, "Table"]):
    """The tables that a project may write. A test need not run all of it, so some may be absent."""


class TableSnapshot(NamedTuple):
    """A table at one moment, to be read then and later; the identity it was made with, and its partition columns."""

    frame: Callable[[], DataFrame]
    made: str | None = None
    by: tuple[str, ...] = ()


class TableContent(NamedTuple):
    """What a table holds at one moment."""

    snapshot: TableSnapshot
    fingerprint: Fingerprint


class ComparedTables(NamedTuple):
    """The tables that are compared."""

    named: Mapping[str, Table]
    exclude: tuple[str, ...]
    settings: Mapping[str, str]

    def read(self) -> dict[str, TableContent | None]:
        """What every table holds now; None where there is none."""
        return {name: self._content(table) for name, table in self.named.items()}

    def _content(self, table: Table) -> TableContent | None:
        from oncelake.delta.contents import fingerprint

        snapshot = self._snapshot(table)
        if snapshot is None:
            return None
        frame, excluded = snapshot.frame(), {column.casefold() for column in self.exclude}
        own = [column for column in frame.columns if column.casefold() in excluded]
        return TableContent(snapshot, fingerprint(frame, exclude=own, by=snapshot.by))

    def _snapshot(self, table: Table) -> TableSnapshot | None:
        from oncelake.delta.log import find_log
        from oncelake.spark.materialize import materialize
        from oncelake.spark.session import open_session

        if not isinstance(table, str | Path):
            frame = materialize(table())
            return TableSnapshot(lambda: frame)
        log = find_log(str(table), str(table))
        if log is None:
            return None

        # The job may stop its session: the one that is there then is asked.
        def read() -> DataFrame:
            return open_session(self.settings).read.format("delta").option("versionAsOf", log.version).load(log.path)

        return TableSnapshot(read, log.metadata.get("id"), log.partitioned_by)


def run_and_compare(job: Callable[[], object], tables: ComparedTables, times: int) -> str | None:
    """Run the job as often as asked; what is wrong with the tables, if anything is."""
    __tracebackhide__ = True
    if times < 2 or not tables.named:
        raise ValueError("nothing would be compared: name at least one table, and run the job at least twice")
    job()
    first = tables.read()
    absent = [name for name, found in first.items() if found is None]
    if absent and (len(absent) == len(first) or not isinstance(tables.named, ProjectTables)):
        return f"after the first run there is no Delta table {', '.join(absent)}"
    used = {column.casefold() for found in first.values() if found for column in found.fingerprint.excluded}
    unused = [column for column in tables.exclude if column.casefold() not in used]
    if unused:
        raise ValueError(f"exclude: no table has a column {unused[0]!r}")
    for number in range(2, times + 1):
        try:
            job()
        except Exception as error:
            error.add_note(f"this was run {number} of {times} of the same job; run 1 ended well")
            raise
        problems = [_difference(name, first[name], now, number) for name, now in tables.read().items()]
        found = [problem for problem in problems if problem]
        if found:
            return "\n".join(["the job is not idempotent", *found])
    return None


def _difference(name: str, first: TableContent | None, now: TableContent | None, number: int) -> str | None:
    """How a table differs from what it was after the first run, in a few lines."""
    if first is None or now is None:
        return None if first is now else f"{name}: {'created' if now else 'gone'} after run {number}"
    before, after = first.fingerprint, now.fingerprint
    if before == after:
        return None
    lines = [f"{name}: {_count_rows(before.rows)} after run 1, {_count_rows(after.rows)} after run {number}"]
    try:
        lines += _examples(first, now)
    except Exception as error:  # noqa: BLE001  a session stopped or files removed must not hide the finding
        lines.append(f"its content differs, but the rows of run 1 can no longer be read: {type(error).__name__}")
    parts = before.differing(after)
    if parts:
        lines.append(
            f"in {', '.join(parts[:_EXAMPLES])}{f' and {len(parts) - _EXAMPLES:,} more' * (len(parts) > _EXAMPLES)}"
        )
    return "\n  ".join(lines)


def _examples(first: TableContent, now: TableContent) -> list[str]:
    from oncelake.delta.contents import differences

    if first.snapshot.made != now.snapshot.made:
        return ["its content differs, but the table was recreated: the rows of run 1 are gone"]
    found = differences(now.snapshot.frame(), first.snapshot.frame(), exclude=now.fingerprint.excluded, limit=_EXAMPLES)
    if found.columns:
        return ["other columns (left is the later run)", *found.columns]
    return [found.summary, *map(str, found.examples)]


def _count_rows(number: int) -> str:
    return f"{number:,} row{'s' * (number != 1)}"


def tables_by_name(tables: Tables) -> Mapping[str, Table]:
    """Return the tables by name: their path, or the name of their function."""
    if isinstance(tables, Mapping):
        return tables
    listed: list[Table] = [tables] if isinstance(tables, str | Path) or callable(tables) else list(tables)
    return {_name(table, index): table for index, table in enumerate(listed)}


def _name(table: Table, index: int) -> str:
    if isinstance(table, str | Path):
        return str(table)
    return f"tables[{index}], {getattr(table, '__name__', type(table).__name__)}()"


def as_tuple(columns: Iterable[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)
