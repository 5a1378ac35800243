"""Days of a zone, with rows around the hours the clocks change."""

import json

import oncelake as once
from lakes import ids, make_project, settings_of

PIPELINE = """
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline(every="day", start="2024-03-30", zone="Europe/Berlin",
               reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, at timestamp"),
               writes=once.replace_interval("silver.orders", time=TIME))
def orders(files):
    return files.withColumn("day", F.to_date("at"))
"""
# The day of 23 hours, and the instants on both sides of its two midnights.
LANDED = {
    "2024-03-30": [(1, "2024-03-30T12:00:00Z"), (2, "2024-03-30T22:59:59Z")],
    "2024-03-31": [(3, "2024-03-30T23:00:00Z"), (4, "2024-03-31T01:30:00Z"), (5, "2024-03-31T21:59:59Z")],
    "2024-04-01": [(6, "2024-03-31T22:00:00Z")],
}


def berlin(root, spark, time):
    make_project(root, PIPELINE.replace("TIME", repr(time)))
    for day, rows in LANDED.items():
        folder = root / "landing" / day
        folder.mkdir(parents=True)
        (folder / "rows.json").write_text("".join(json.dumps({"id": i, "at": at}) + "\n" for i, at in rows))
    return once.open(root, spark=spark)


def test_a_day_of_23_hours_holds_exactly_its_rows(tmp_path, spark):
    for time in ("at", "day"):
        root = tmp_path / time
        report = berlin(root, spark, time).run("orders", start="2024-03-30", end="2024-04-02")
        assert [(w.outcome, w.rows.written) for w in report.works] == [
            ("committed", 2),
            ("committed", 3),
            ("committed", 1),
        ]
        assert str(report.works[1].work.slice) == "[2024-03-31, 2024-04-01) Europe/Berlin"
        assert report.document()["works"][1]["start"] == "2024-03-30T23:00:00Z"
        assert report.document()["works"][1]["end"] == "2024-03-31T22:00:00Z"
        assert ids(root) == [1, 2, 3, 4, 5, 6]


def test_the_users_session_keeps_its_settings_and_its_zone(tmp_path, spark):
    before = settings_of(spark, tmp_path)
    assert before["spark.sql.session.timeZone"] == "UTC"
    assert berlin(tmp_path, spark, "at").run("orders", date="2024-03-31").outcome == "done"
    assert settings_of(spark, tmp_path) == before
