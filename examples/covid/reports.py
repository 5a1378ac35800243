"""Real daily reports, merged in order and shuffled with repeats: the same table, by fingerprint."""

import argparse
import random
import re
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pyspark.sql import functions as F

import oncelake as once

HERE = Path(__file__).parent
FINAL = 99
NAMES = {  # the names of each column over time
    "country": ("Country/Region", "Country_Region"),
    "province": ("Province/State", "Province_State"),
    "county": ("Admin2",),
    "updated": ("Last Update", "Last_Update"),
    "confirmed": ("Confirmed",),
    "deaths": ("Deaths",),
    "recovered": ("Recovered",),
}
FORMATS = ("M/d/yyyy H:mm", "M/d/yy H:mm", "yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd HH:mm:ss")
# The latest day wins for a place; within a day, the version that was published last.
PLACES = once.merge("places", keys=["country", "province", "county"], latest_by=["day", "version", "updated"])


@dataclass(frozen=True)
class Report:
    """A published file: its day, and its version number."""

    path: Path
    day: date
    version: int


def unpack(folder: Path) -> list[Report]:
    """Unpack all reports, oldest first."""
    with tarfile.open(HERE / "reports.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    found = []
    for path in folder.rglob("*.csv"):
        if daily := re.fullmatch(r"(\d\d)-(\d\d)-(\d{4})", path.stem):
            month, day, year = map(int, daily.groups())
            found.append(Report(path, date(year, month, day), FINAL))
        else:
            found.append(Report(path, date.fromisoformat(path.parent.name), int(path.stem[:2])))
    return sorted(found, key=lambda report: (report.day, report.version))


def read(spark, report: Report):
    """Read a report into one set of names and types, whatever its header and date format."""
    raw = spark.read.csv(str(report.path), header=True)
    existing = {name.lstrip("\ufeff"): name for name in raw.columns}

    def column(name):
        found = next((existing[each] for each in NAMES[name] if each in existing), None)
        return F.lit(None).cast("string") if found is None else F.trim(F.col(f"`{found}`"))

    key = {name: F.coalesce(column(name), F.lit("")) for name in ("country", "province", "county")}
    counts = {name: column(name).cast("double").cast("long") for name in ("confirmed", "deaths", "recovered")}
    updated = F.coalesce(*(F.try_to_timestamp(column("updated"), F.lit(each)) for each in FORMATS))
    when = {"updated": updated, "day": F.lit(report.day), "version": F.lit(report.version)}
    return raw.select(*(value.alias(name) for name, value in {**key, **counts, **when}.items()))


def merge_all(spark, lake: Path, reports: list[Report]) -> str:
    """Merge the reports one after another, each as one work, and return the table's fingerprint."""
    for number, report in enumerate(reports):
        work = f"reports/{number} {report.path.name}"  # a repeated file is a new work: only the merge pattern deduplicates it
        once.write(read(spark, report), PLACES, work=work, lake=str(lake))
        print(f"\r{lake.name}: {number + 1} of {len(reports)} files", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return str(once.fingerprint(lake / "places"))


def orders(reports: list[Report]) -> dict[str, list[Report]]:
    """Return the files in order, and shuffled with every third one repeated."""
    again = [*reports, *reports[::3]]
    random.Random(17).shuffle(again)
    return {"in order": reports, "shuffled, with repeats": again}


def main() -> int:
    """Merge in both orders and compare."""
    from oncelake.spark.session import open_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every n-th file")
    every = parser.parse_args().every
    spark = open_session({})
    with tempfile.TemporaryDirectory() as folder:
        reports = unpack(Path(folder) / "reports")[::every]
        found = {name: merge_all(spark, Path(folder) / name, files) for name, files in orders(reports).items()}
        rows = spark.read.format("delta").load(f"{folder}/in order/places").count()
    for name, fingerprint in found.items():
        print(f"{name + ':':24}{fingerprint}")
    same = len(set(found.values())) == 1
    print(f"{len(reports)} files, {rows:,} places: {'one table, whatever the order' if same else 'THEY DIFFER'}")
    return 0 if same else 3


if __name__ == "__main__":
    sys.exit(main())
