"""Reports that arrive in any order, with repeats, on part of the data of the example."""

import csv
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

import oncelake as once

COVID = Path(__file__).parents[2] / "examples" / "covid"
REPORTS = ("01-30-2020.csv", "02-25-2020.csv", "03-13-2020.csv", "04-01-2020.csv")  # three headers
# Of 2020-03-13, 02 has a byte order mark, and 20 is the report itself.
REVISIONS = ("2020-02-25/01_", "2020-03-13/01_", "2020-03-13/02_", "2020-03-13/20_")


@pytest.fixture
def arrive(monkeypatch):
    monkeypatch.syspath_prepend(str(COVID))
    import arrive

    yield arrive
    for name in ("arrive", "reports"):
        sys.modules.pop(name)


def test_reports_that_arrive_in_any_order_give_one_silver_and_one_gold(spark, tmp_path, arrive):
    unpacked = tmp_path / "reports"
    paths = [report.path for report in arrive.unpack(unpacked) if is_chosen(report.path)]
    files = arrive.deliveries(unpacked, paths)
    assert len(files) == 8 + 3 + 1
    # Old headers, later the new one, which adds columns; and everything at once, in another order.
    new = [file for file in files if file.name.startswith("04-")]
    orders = {
        "in two runs": [[file for file in files if file not in new], new],
        "at once": arrive.portions(files, 1, 1),
    }
    found = {}
    for order, portions in orders.items():
        root = tmp_path / order
        arrive.create_project(root)
        for portion in portions:
            arrive.land(root, portion)
            assert once.open(root, spark=spark).run().outcome == "done"
        every_row_is_accounted_for(root, files)
        found[order] = arrive.fingerprints(root, "silver.places", "gold.countries")
    assert found["in two runs"] == found["at once"]
    assert totals(root) == true_totals(unpacked)


def every_row_is_accounted_for(root, files):
    """Compare the account of each file with its lines, and all of them with the table and the quarantine."""
    arrivals = once.open(root).arrivals("reports")
    entries = {entry.path: entry for entry in arrivals.files()}
    assert set(entries) == {f"landing/{file.name}" for file in files}
    for file in files:
        entry = entries[f"landing/{file.name}"]
        assert entry.state == "done"
        assert entry.rows_read == len(lines(file.content)) - 1
        assert entry.rows_read == entry.rows_written + entry.rows_quarantined
    (row,) = arrivals.quarantine()
    assert "(truncated)" in row.file
    assert "looks truncated" in row.reason
    written = sum(entry.rows_written for entry in entries.values())
    bronze = DeltaTable(root / "lake/bronze/reports")
    assert bronze.count() == written
    assert {"Latitude", "Combined_Key"} <= {field.name for field in bronze.schema().fields}


def totals(root):
    rows = DeltaTable(root / "lake/gold/countries").to_pyarrow_table().to_pylist()
    return {(row["country"], row["day"]): (row["confirmed"] or 0, row["deaths"] or 0) for row in rows}


def true_totals(unpacked):
    """Compute the totals of the final reports without Spark."""
    found = defaultdict(lambda: (0, 0))
    for name in REPORTS:
        day = date(int(name[6:10]), int(name[:2]), int(name[3:5]))
        header, *rows = lines((unpacked / name).read_bytes())
        for row in (dict(zip(header, each, strict=True)) for each in rows):
            key = (row.get("Country_Region") or row["Country/Region"]).strip(), day
            found[key] = found[key][0] + int(row["Confirmed"] or 0), found[key][1] + int(row["Deaths"] or 0)
    return dict(found)


def lines(content):
    return list(csv.reader(content.decode("utf-8-sig").splitlines()))


def is_chosen(path):
    return path.name in REPORTS or any(each in str(path) for each in REVISIONS)
