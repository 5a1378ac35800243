"""The two tables as a reader sees them: by Delta's other implementation, so that nobody marks their own work."""

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from landing import Row

COLUMNS = ["day", "carrier", "flight", "origin", "dest", "miles"]


def rows_of(path: Path, version: int | None = None) -> Counter[Row]:
    """The rows of a table, now or as of a version."""
    found = DeltaTable(path, version=version).to_pyarrow_table(columns=COLUMNS)
    return Counter(zip(*(found[column].to_pylist() for column in COLUMNS), strict=True))


def wrong_versions(path: Path, true: Counter[Row]) -> tuple[int, int]:
    """How many versions a reader could have seen, and how many of them had a day that was neither whole nor absent."""
    last = DeltaTable(path).version()
    return last + 1, sum(not _whole_days(rows_of(path, version), true) for version in range(last + 1))


def _whole_days(rows: Counter[Row], true: Counter[Row]) -> bool:
    days = {row[0] for row in rows}
    return rows == Counter({row: count for row, count in true.items() if row[0] in days})
