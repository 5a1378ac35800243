"""Restores, and what others did to a table: changed rows, maintenance, markers that expire."""

import json
from dataclasses import replace
from functools import partial

import pytest

from support.lakes import DAYS, ids, rows
from support.orders import open_orders

SPAN = {"start": DAYS[0], "end": "2024-03-17"}
ALL_IDS = [0, 1, 2, 100, 101, 102, 200, 201, 202]


def path_of(root):
    return str(root / "lake" / "silver" / "orders")


@pytest.mark.parametrize("name", ["append", "replace_interval"])
def test_what_a_restore_undoes_is_done_again_by_the_next_run(tmp_path, spark, name):
    project = open_orders(tmp_path, spark, name)
    project.run("orders", date=DAYS[0])
    kept = project.history("silver.orders")[0].version
    project.run("orders", start=DAYS[1], end="2024-03-17")
    found = project.restore("silver.orders", kept)
    assert min(str(undone.slice)[1:11] for undone in found.undone) == DAYS[1]
    assert ids(tmp_path) == [0, 1, 2]
    assert project.run("orders", **SPAN).outcome == "done"
    assert ids(tmp_path) == ALL_IDS
    assert all(work.outcome == "already_done" for work in project.run("orders", **SPAN).works)


def test_what_was_added_and_undone_is_added_again(tmp_path, spark):
    project = open_orders(tmp_path, spark, "aggregate, adding")
    project.run("orders", date=DAYS[0])
    before, kept = rows(tmp_path), project.history("silver.orders")[0].version
    project.run("orders", date=DAYS[1])
    both = rows(tmp_path)
    project.restore("silver.orders", kept)
    assert rows(tmp_path) == before
    assert [work.generation for work in project.run("orders", date=DAYS[1]).works] == [2]
    assert rows(tmp_path) == both


def test_rows_changed_by_others_are_reported_until_they_are_restated(tmp_path, spark, completed_orders):
    project = completed_orders("replace_interval, partitioned")
    path = path_of(tmp_path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE day = DATE'2024-03-15'")
    (warning,) = project.status()[0].warnings
    assert "[2024-03-15, 2024-03-16)" in warning
    assert "changed outside oncelake in version" in warning
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert len(project.status()[0].warnings) == 1
    project.restate("orders", date=DAYS[1])
    assert project.status()[0].warnings == ()
    assert json.loads(json.dumps(project.status()[0].document()))["pending"] == []


def test_rows_taken_out_of_a_table_that_others_also_write_are_reported(tmp_path, spark, completed_orders):
    project = completed_orders("append")
    path = path_of(tmp_path)
    spark.sql(f"UPDATE delta.`{path}` SET amount = 0 WHERE id = 100")
    doubled = partial(spark.sql, f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}`")
    doubled()
    assert project.status()[0].warnings == ()
    spark.sql(f"RESTORE delta.`{path}` TO VERSION AS OF 1")
    (warning,) = project.status()[0].warnings
    assert "changed outside oncelake in version 6 (RESTORE)" in warning
    assert "restore version 5 by oncelake" in warning
    doubled()
    assert project.repair("silver.orders", keys=["id"]).version == 8
    assert len(project.status()[0].warnings) == 1
    project.restore("silver.orders", to=3)
    assert project.status()[0].warnings == ()


def test_maintenance_by_others_changes_nothing(tmp_path, spark):
    project = open_orders(tmp_path, spark, "replace_interval")
    for day in DAYS:
        project.run("orders", date=day)
    before, path = project.status(), path_of(tmp_path)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    after = project.status()
    assert [replace(now, version=None, last=None) for now in after] == [
        replace(then, version=None, last=None) for then in before
    ]
    assert all(work.outcome == "already_done" for work in project.run("orders", **SPAN).works)
    assert ids(tmp_path) == ALL_IDS
    project.restate("orders", date=DAYS[1])
    assert ids(tmp_path) == ALL_IDS


def test_a_table_whose_markers_expire_is_warned_about(tmp_path, spark, completed_orders):
    project = completed_orders()
    assert project.status()[0].warnings == ()
    retention = "'delta.setTransactionRetentionDuration' = 'interval 7 days'"
    spark.sql(f"ALTER TABLE delta.`{path_of(tmp_path)}` SET TBLPROPERTIES ({retention})")
    (warning,) = project.status()[0].warnings
    assert "markers of silver.orders expire after interval 7 days" in warning
