"""Let all reports arrive in three portions, in random order and with repeats. Run the pipelines after each, and show the tables."""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable
from reports import HERE, unpack

import oncelake as once

ONCELAKE = Path(sys.executable).with_name("oncelake")
TRUNCATED = "04-01-2020.csv"


class Delivery(NamedTuple):
    """A file that a producer drops: its path below the landing folder, and its content."""

    name: str
    content: bytes


def deliveries(unpacked: Path, paths: list[Path]) -> list[Delivery]:
    """Return the reports, every third one again under another name, and one that was truncated on the way."""
    found = [Delivery(str(path.relative_to(unpacked)), path.read_bytes()) for path in paths]
    copies = [Delivery(_renamed(each.name, "copy"), each.content) for each in found[::3]]
    content = (unpacked / TRUNCATED).read_bytes()
    return [*found, *copies, Delivery(_renamed(TRUNCATED, "truncated"), content[: len(content) // 2])]


def portions(files: list[Delivery], seed: int, count: int = 3) -> list[list[Delivery]]:
    """Return the files in a random order, in portions."""
    shuffled = random.Random(seed).sample(files, len(files))
    return [shuffled[number::count] for number in range(count)]


def create_project(root: Path) -> None:
    """Create a project with the pipelines of this example, whose folder `landing` is empty."""
    (root / "landing").mkdir(parents=True)
    for name in ("oncelake.yaml", "pipelines.py"):
        shutil.copy(HERE / name, root)


def land(root: Path, files: list[Delivery]) -> None:
    """Drop files into the landing folder."""
    for file in files:
        path = root / "landing" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)


def show(root: Path) -> None:
    """Print the account of the files, the size of the tables, and the quarantine."""
    arrivals = once.open(root).arrivals("reports")
    files, bronze = arrivals.files(), DeltaTable(root / "lake/bronze/reports")
    read, written, bad = (
        sum(getattr(each, f"rows_{what}") for each in files) for what in ("read", "written", "quarantined")
    )
    rescued = bronze.to_pyarrow_dataset().count_rows(filter=pc.field("_rescued").is_valid())
    print(f"  files      {len(files):>9,}: {read:,} rows read = {written:,} written + {bad:,} in quarantine")
    print(
        f"  bronze     {bronze.count():>9,} rows, {len(bronze.schema().fields)} columns, {rescued:,} rows with a rescued value"
    )
    print(f"  silver     {DeltaTable(root / 'lake/silver/places').count():>9,} places and days")
    print(f"  gold       {DeltaTable(root / 'lake/gold/countries').count():>9,} countries and days")
    for row in arrivals.quarantine():
        print(f"  quarantine {row.file}, line {row.line}: {row.reason}")


def fingerprints(root: Path, *tables: str) -> dict[str, str]:
    """Return the fingerprints of tables, which are the same whatever the order of their rows and files."""
    return {name: str(once.fingerprint(root / "lake" / name.replace(".", "/"))) for name in tables}


def main() -> int:
    """Let the reports arrive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the project to create")
    parser.add_argument("--seed", type=int, default=1, help="another order of arrival")
    parser.add_argument("--every", type=int, default=1, help="only every n-th report")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists: name a new folder")
    create_project(given.folder)
    with tempfile.TemporaryDirectory() as temporary:
        unpacked = Path(temporary)
        paths = [report.path for report in unpack(unpacked)][:: given.every]
        arriving = portions(deliveries(unpacked, paths), given.seed)
    for number, files in enumerate(arriving, 1):
        land(given.folder, files)
        print(f"portion {number} of {len(arriving)}: {len(files)} files arrive", flush=True)
        subprocess.run([ONCELAKE, "run"], cwd=given.folder, check=True)
        show(given.folder)
    for table, fingerprint in fingerprints(given.folder, "silver.places", "gold.countries").items():
        print(f"{table:15} {fingerprint}")
    return 0


def _renamed(name: str, suffix: str) -> str:
    path = Path(name)
    return str(path.with_stem(f"{path.stem} ({suffix})"))


if __name__ == "__main__":
    sys.exit(main())
