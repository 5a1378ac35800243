"""Days of a zone, with rows around the hours the clocks change."""

from pyspark.sql import functions as F

import oncelake as once
from support.lakes import ids, land, rows, settings_of
from support.orders import FILES

# The day of 23 hours, and the instants on both sides of its two midnights.
LANDED = {
    "2024-03-30": [(1, "2024-03-30T12:00:00Z"), (2, "2024-03-30T22:59:59Z")],
    "2024-03-31": [(3, "2024-03-30T23:00:00Z"), (4, "2024-03-31T01:30:00Z"), (5, "2024-03-31T21:59:59Z")],
    "2024-04-01": [(6, "2024-03-31T22:00:00Z")],
}
# The day of 25 hours, in which it is half past two twice.
LATE = {
    "2024-10-26": [(1, "2024-10-26T21:59:59Z")],
    "2024-10-27": [
        (i + 2, f"2024-10-{at}Z") for i, at in enumerate(("26T22:00:00", "27T00:30:00", "27T01:30:00", "27T22:59:59"))
    ],
    "2024-10-28": [(6, "2024-10-27T23:00:00Z")],
}


def berlin(root, spark, time, days=LANDED):
    @once.pipeline(
        every="day",
        start="2024-03-30",
        timezone="Europe/Berlin",
        reads=once.files(FILES, schema="id long, at timestamp"),
        writes=once.replace_interval("silver.orders", time=time),
    )
    def orders(files):
        return files.withColumn("day", F.to_date("at"))

    for day, landed in days.items():
        land(root, day, [{"id": number, "at": at} for number, at in landed])
    return once.Project.of(orders, lake=root / "lake", root=root, spark=spark)


def test_a_day_of_23_hours_holds_exactly_its_rows(tmp_path, spark):
    for time in ("at", "day"):
        root = tmp_path / time
        project = berlin(root, spark, time)
        days = [project.run("orders", date=f"2024-03-{day}") for day in (30, 31)]
        assert [(day.works[0].outcome, day.works[0].rows.written) for day in days] == [
            ("committed", 2),
            ("committed", 3),
        ]
        assert str(days[1].works[0].work.slice) == "[2024-03-31, 2024-04-01) Europe/Berlin"
        assert days[1].document()["works"][0]["start"] == "2024-03-30T23:00:00Z"
        assert days[1].document()["works"][0]["end"] == "2024-03-31T22:00:00Z"
        assert project.run("orders", date="2024-04-01").works[0].rows.written == 1
        assert ids(root) == [1, 2, 3, 4, 5, 6]
        assert (
            berlin(tmp_path / f"{time} together", spark, time)
            .run("orders", start="2024-03-30", end="2024-04-02")
            .works[0]
            .rows.written
            == 6
        )
        assert rows(tmp_path / f"{time} together") == rows(root)


def test_a_day_of_25_hours_holds_exactly_its_rows(tmp_path, spark):
    project = berlin(tmp_path, spark, "day", LATE)
    (work,) = project.run("orders", date="2024-10-27").works
    assert (work.start, work.end, work.rows.written) == ("2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z", 4)
    around = project.run("orders", start="2024-10-26", end="2024-10-29").works
    assert [(each.outcome, each.rows.written) for each in around] == [
        ("committed", 1),
        ("already_done", 4),
        ("committed", 1),
    ]
    assert ids(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_the_users_session_keeps_its_settings_and_its_zone(tmp_path, spark):
    before = settings_of(spark, tmp_path)
    assert before["spark.sql.session.timeZone"] == "UTC"
    assert berlin(tmp_path, spark, "at").run("orders", date="2024-03-31").outcome == "done"
    assert settings_of(spark, tmp_path) == before
