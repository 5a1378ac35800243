"""Hours of a zone with clock changes cannot be cut by a time without a zone; and tables get no feature they do not need."""

import json
from datetime import UTC, datetime

import pytest

import oncelake as once
from oncelake.errors import BadRange, WrongTimeType
from oncelake.model.intervals import Grid
from oncelake.spark.columns import FrameOrigin, find_time_column
from oncelake.spark.sql import inside

ORIGIN = FrameOrigin("table raw", "p", "pipelines.py:1")


def test_hours_of_a_zone_with_clock_changes_need_a_timestamp(spark):
    frame = spark.sql("SELECT TIMESTAMP_NTZ'2024-10-27 02:30:00' AS local, TIMESTAMP'2024-10-27 02:30:00Z' AS at")
    with pytest.raises(WrongTimeType, match="clocks change in Europe/Berlin"):
        find_time_column(frame, "local", Grid("hour", "Europe/Berlin"), ORIGIN)
    assert find_time_column(frame, "at", Grid("hour", "Europe/Berlin"), ORIGIN) == ("at", "timestamp")
    for grid in (Grid("hour"), Grid("hour", "Asia/Tokyo"), Grid("day", "Europe/Berlin")):
        assert find_time_column(frame, "local", grid, ORIGIN) == ("local", "timestamp_ntz")


def test_a_repeated_hour_of_the_past_is_refused_by_its_bounds():
    grid = Grid("hour", "America/Mexico_City")  # no clock changes since 2022
    assert not grid.changes_clocks
    hours = list(grid.cells(datetime(2021, 10, 31, 5, tzinfo=UTC), datetime(2021, 10, 31, 9, tzinfo=UTC)))
    assert inside("t", "timestamp_ntz", hours[0]) == (
        "`t` >= TIMESTAMP_NTZ'2021-10-31T00:00:00' AND `t` < TIMESTAMP_NTZ'2021-10-31T01:00:00'"
    )
    for hour in hours[1:3]:
        with pytest.raises(BadRange, match="clocks of America/Mexico_City repeat"):
            inside("t", "timestamp_ntz", hour)
        assert "TIMESTAMP'" in inside("t", "timestamp", hour)
    day = Grid("day", "America/Mexico_City").cell(hours[1].start)
    assert "2021-11-01" in inside("t", "timestamp_ntz", day)


def test_a_pipeline_that_would_mix_the_repeated_hours_fails_with_the_reason(spark, tmp_path):
    rows = [(hour, datetime(2024, 10, 27, hour, 30, tzinfo=UTC)) for hour in (0, 1, 2)]
    spark.createDataFrame(rows, "id long, at timestamp").write.format("delta").save(f"{tmp_path}/raw")

    @once.pipeline(
        every="hour",
        start="2024-10-27T00:00",
        timezone="Europe/Berlin",
        reads=once.table("raw", time="at"),
        writes=once.replace_interval("t", time="local"),
    )
    def load(raw):
        return raw.selectExpr("id", "CAST(at AS TIMESTAMP_NTZ) AS local")

    report = once.Project.of(load, lake=str(tmp_path), spark=spark).run(
        start="2024-10-27T02:00+02:00", end="2024-10-27T03:00+01:00", now=datetime(2024, 10, 28, tzinfo=UTC)
    )
    assert {work.code for work in report.works} == {"wrong_time_type"}


@pytest.mark.parametrize("cluster_by", [None, "id"])
def test_deletion_vectors_bring_no_other_reader_feature(spark, tmp_path, cluster_by):
    pattern = once.merge("t", keys="id", deletion_vectors=True, cluster_by=cluster_by)
    frame = spark.range(3).selectExpr("id", "'a' AS v")
    assert once.write(frame, pattern, work="w/1", lake=str(tmp_path)).outcome == "committed"
    assert once.write(frame.selectExpr("id", "'b' AS v").where("id = 1"), pattern, work="w/2", lake=str(tmp_path))
    logs = sorted((tmp_path / "t/_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    readers = {feature for action in actions for feature in action.get("protocol", {}).get("readerFeatures", ())}
    assert readers == {"deletionVectors"}
    assert any(action["add"].get("deletionVector") for action in actions if "add" in action)
    clustered = {feature for action in actions for feature in action.get("protocol", {}).get("writerFeatures", ())}
    assert ("clustering" in clustered) == (cluster_by is not None)
    assert "variantType" not in clustered
    found = spark.read.format("delta").load(f"{tmp_path}/t").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(0, "a"), (1, "b"), (2, "a")]
