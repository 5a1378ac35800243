"""Read the two tables with delta-rs, an independent implementation of Delta, so that Spark does not check itself."""

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from landing import Row

COLUMNS = ["day", "carrier", "flight", "origin", "dest", "miles"]


def rows_of(path: Path, version: int | None = None) -> Counter[Row]:
    """Return the rows of a table, now or at a version."""
    found = DeltaTable(path, version=version).to_pyarrow_table(columns=COLUMNS)
    return Counter(zip(*(found[column].to_pylist() for column in COLUMNS), strict=True))


def wrong_versions(path: Path, true: Counter[Row]) -> tuple[int, int]:
    """Return how many versions a reader could have seen, and how many of them contain an incomplete day."""
    last = DeltaTable(path).version()
    return last + 1, sum(not _whole_days(rows_of(path, version), true) for version in range(last + 1))


def _whole_days(rows: Counter[Row], true: Counter[Row]) -> bool:
    days = {row[0] for row in rows}
    return rows == Counter({row: count for row, count in true.items() if row[0] in days})
