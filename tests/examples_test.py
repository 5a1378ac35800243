"""The examples that are not the demo, on part of their data."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_reports_with_drifting_headers_are_one_table_in_any_order(spark, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "covid"))
    import reports

    published = reports.unpacked(tmp_path / "reports")
    assert len(published) == 72 + 57
    chosen = [report for report in published if report.day.isoformat() in ("2020-01-23", "2020-03-07")]
    chosen += [report for report in published if report.day.isoformat() == "2020-03-13"][:2]
    found = {name: reports.merged(spark, tmp_path / name, files) for name, files in reports.orders(chosen).items()}
    assert len(set(found.values())) == 1
    rows = spark.read.format("delta").load(str(tmp_path / "in order" / "places"))
    hubei = rows.where("province = 'Hubei' AND country = 'Mainland China'").collect()
    assert [(row["confirmed"], row["recovered"]) for row in hubei] == [(67666, 43500)]
    assert rows.where("country = 'China' AND province = 'Hubei'").count() == 1
    assert rows.where("updated IS NULL").count() == 0
    sys.modules.pop("reports")
