"""The demo, and the other examples on part of their data."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_goes_as_it_should(tmp_path):
    command = [sys.executable, EXAMPLES / "flights" / "demo.py", tmp_path / "demo"]
    played = subprocess.run(command, check=False, capture_output=True, text=True)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "923 flights are in the table twice" in played.stdout
    assert "The retry said: 7 days already done." in played.stdout
    assert "28 days already done, again without Java." in played.stdout
    assert (tmp_path / "demo" / "totals.svg").exists()


@pytest.mark.long
def test_reports_with_drifting_headers_are_one_table_in_any_order(spark, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "covid"))
    import reports

    published = reports.unpack(tmp_path / "reports")
    assert len(published) == 72 + 57
    chosen = [report for report in published if report.day.isoformat() in ("2020-01-23", "2020-03-07")]
    chosen += [report for report in published if report.day.isoformat() == "2020-03-13"][:2]
    found = {name: reports.merge_all(spark, tmp_path / name, files) for name, files in reports.orders(chosen).items()}
    assert len(set(found.values())) == 1
    rows = spark.read.format("delta").load(str(tmp_path / "in order" / "places"))
    hubei = rows.where("province = 'Hubei' AND country = 'Mainland China'").collect()
    assert [(row["confirmed"], row["recovered"]) for row in hubei] == [(67666, 43500)]
    assert rows.where("country = 'China' AND province = 'Hubei'").count() == 1
    assert rows.where("updated IS NULL").count() == 0
    sys.modules.pop("reports")
