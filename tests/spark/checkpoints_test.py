"""The log reader on logs that Spark wrote: every kind of checkpoint, and what is left when the log was cleaned up."""

import pytest
from deltalake import DeltaTable

import oncelake as once
from oncelake.delta.log import read_log

KINDS = {
    "classic": {},
    "several parts": {"spark.databricks.delta.checkpoint.partSize": "2"},
    "version 2, parquet": {"policy": "v2", "spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"},
    "version 2, json": {"policy": "v2", "spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"},
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def table(request, spark, tmp_path_factory):
    """A table with five works and a checkpoint after the fourth commit."""
    lake = tmp_path_factory.mktemp("logs")
    confs = {key: value for key, value in request.param.items() if key != "policy"}
    for key, value in confs.items():
        spark.conf.set(key, value)
    properties = "'delta.checkpointInterval' = '4'"
    if "policy" in request.param:
        properties += f", 'delta.checkpointPolicy' = '{request.param['policy']}'"
    spark.sql(f"CREATE TABLE delta.`{lake}/t` (id LONG) USING delta TBLPROPERTIES ({properties})")
    for number in range(1, 6):
        once.write(spark.range(number), once.append("t"), work=f"job/{number}", lake=str(lake))
    for key in confs:
        spark.conf.unset(key)
    return lake / "t"


def app_id(number):
    return f"once/job/t/={number}"


def cleaned(table, tmp_path):
    """The same log without its hint and without the commits behind the checkpoint."""
    import shutil

    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    for name in ("_last_checkpoint", *(f"{version:020}.json" for version in range(4))):
        (copy / "_delta_log" / name).unlink()
    return copy


def test_every_marker_is_found(table):
    log = read_log("t", str(table))
    assert log.checkpoint.version == 4
    assert log.version == DeltaTable(str(table)).version() == 5
    assert {app_id(n): log.recorded(app_id(n)) for n in range(1, 6)} == {app_id(n): 1 for n in range(1, 6)}
    assert [log.commit(app_id(n)).rows.written for n in range(1, 6)] == [1, 2, 3, 4, 5]
    assert log.rows() == 15
    assert log.schema == {"id": "long"}


def test_markers_survive_the_clean_up_of_the_log(table, tmp_path):
    log = read_log("t", str(cleaned(table, tmp_path)))
    assert [log.recorded(app_id(n)) for n in range(1, 6)] == [1] * 5
    assert log.commit(app_id(1)) is None
    assert log.commit(app_id(5)).rows.written == 5
    assert log.rows() == 15


def test_a_work_whose_commit_was_cleaned_up_is_still_done(table, tmp_path, spark):
    copy = cleaned(table, tmp_path)
    again = once.write(spark.range(9), once.append("t"), work="job/1", lake=str(copy.parent))
    assert (again.outcome, again.version, again.rows.written) == ("already_done", None, None)
