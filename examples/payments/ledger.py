"""What the tables must hold, computed from the ledger of what was sent, without Spark; and what they hold, read by delta-rs."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from load import POISONED

Place = tuple[int, int]  # partition and offset


@dataclass(frozen=True)
class Totals:
    """The contents of the tables: bronze by message, silver by payment, gold by minute, and what is in quarantine."""

    bronze: Counter[tuple[Place, str, int]]
    silver: dict[str, tuple[int, str, int]]
    gold: dict[datetime, tuple[int, int]]
    quarantine: Counter[tuple[Place, bytes]]

    @property
    def cents(self) -> int:
        return sum(cents for _, cents in self.gold.values())


def sent(path: Path) -> Totals:
    """Return what the tables must hold."""
    bronze, silver, gold, quarantine = Counter(), {}, {}, Counter()
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        place, raw = (entry["partition"], entry["offset"]), entry["value"].encode("latin-1")
        if raw in POISONED:
            quarantine[place, raw] += 1
            continue
        value = json.loads(raw)
        key, sequence = value["payment"], value["sequence"]
        bronze[place, key, sequence] += 1
        if key not in silver:
            minute = datetime.fromisoformat(value["created_at"]).replace(second=0, microsecond=0)
            count, cents = gold.get(minute, (0, 0))
            gold[minute] = count + 1, cents + value["cents"]
        silver[key] = max(silver.get(key, (0,)), (sequence, value["status"], value["cents"]))
    return Totals(bronze, silver, gold, quarantine)


def stored(lake: Path) -> Totals:
    """Return what the tables of a lake hold. Keys that are there twice would be lost here, so they are refused."""
    bronze = Counter(
        ((row["partition"], row["offset"]), row["payment"], row["sequence"]) for row in rows(lake / "bronze/payments")
    )
    silver = unique(
        (row["payment"], (row["sequence"], row["status"], row["cents"])) for row in rows(lake / "silver/payments")
    )
    gold = unique(
        (row["minute"].astimezone(UTC), (row["payments"], row["cents"])) for row in rows(lake / "gold/minutes")
    )
    quarantine = rows(lake / "_oncelake/streams/payments/1/quarantine")
    return Totals(bronze, silver, gold, Counter((place_of(row), row["raw"]) for row in quarantine))


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table; none, if it does not exist."""
    return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(path)) else []


def unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SystemExit(f"the key {key} is in the table twice")
        found[key] = value
    return found


def place_of(row: dict[str, Any]) -> Place:
    return int(row["file"].rpartition("/")[2]), row["offset"]
