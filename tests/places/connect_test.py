"""On a Spark Connect server: what a project can do there, and what a client leaves behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import oncelake as once
from oncelake.spark.connect import describe_session, is_connect
from support.lakes import DAYS, expected_ids, ids, land, make_project, orders_of, rows
from support.orders import open_orders

SPAN = {"start": DAYS[0], "end": "2024-03-17"}
SETTINGS = """
lake: lake
pipelines: pipelines.py
spark: {{spark.remote: "{address}"}}
"""
WITH_A_UDF = """
import os
import time
from pathlib import Path
import oncelake as once
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

HERE = Path(__file__).parent


@F.udf(DoubleType())
def doubled(amount):
    if SLOW and not (HERE / "go").exists():
        (HERE / "reading").touch()
        while not (HERE / "go").exists():
            time.sleep(0.05)
    return amount * 2


@once.pipeline(
    every="day", start="2024-03-14", timezone="Europe/Berlin",
    reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at timestamp"),
    writes=once.append("silver.orders"),
)
def orders(files):
    return files.withColumn("amount", doubled("amount"))
"""


@pytest.fixture
def project(tmp_path, place):
    def make(slow=False):
        source = WITH_A_UDF.replace("SLOW", str(slow)).replace(
            "HERE = Path(__file__).parent", f"HERE = Path({str(tmp_path)!r})"
        )
        make_project(tmp_path, source, SETTINGS.format(address=place.address))
        for day in DAYS:
            land(tmp_path, day, orders_of(day))
        return tmp_path

    return make


def command(root, *arguments):
    return [str(Path(sys.executable).with_name("oncelake")), *arguments, "-p", str(root)]


def run(root, *arguments):
    done = subprocess.run(command(root, *arguments, "--json"), check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_project_with_udfs_and_a_time_zone_runs_and_its_process_ends(project):
    root = project()
    code, document = run(root, "run", "--to", "2024-03-17")
    assert (code, document["outcome"]) == (0, "done")
    assert len(ids(root)) == 9


def test_restate_repair_and_rebuild(tmp_path, spark):
    assert is_connect(spark)
    project = open_orders(tmp_path, spark, "merge")
    project.run("orders", **SPAN)
    clean = rows(tmp_path)
    assert project.restate("orders", **SPAN).outcome == "done"
    assert rows(tmp_path) == clean
    assert project.rebuild("silver.orders").version is not None
    assert rows(tmp_path) == clean
    path = str(tmp_path / "lake" / "silver" / "orders")
    spark.read.format("delta").load(path).limit(1).write.format("delta").mode("append").save(path)
    assert project.repair("silver.orders", ["customer"]).surplus == 1
    assert rows(tmp_path) == clean


def test_once_write_leaves_the_session_as_it_was(tmp_path, spark):
    before = dict(spark.conf.getAll)
    spark.range(3).createOrReplaceTempView("t")
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
    pattern = once.merge("silver.names", keys="id", any_order=True)
    for _ in range(2):
        outcome = once.write(frame, pattern, work="nightly/1", lake=str(tmp_path / "lake"))
    assert outcome.outcome == "already_done"
    assert spark.table("t").count() == 3
    spark.catalog.dropTempView("t")
    changed = {key for key, value in dict(spark.conf.getAll).items() if before.get(key) != value}
    assert not {key for key in changed if "txn" in key or "userMetadata" in key or "materialize" in key}


@pytest.mark.long
def test_works_in_threads_have_a_session_each(tmp_path, spark):
    project = open_orders(tmp_path, spark, "merge, partitioned")
    assert project.run("orders", jobs=3, **SPAN).outcome == "done"
    assert ids(tmp_path) == expected_ids("merge, partitioned")


@pytest.mark.long
def test_a_table_is_not_exclusive_and_every_interval_has_its_commit(tmp_path, spark):
    project = open_orders(tmp_path, spark, "replace_interval")
    assert not project.lake.table("silver.orders").exclusive
    assert [work.outcome for work in project.run("orders", **SPAN).works] == ["committed"] * 3


def test_a_killed_client_may_have_its_commit_and_the_next_run_finds_it(project, place):
    root = project(slow=True)
    client = subprocess.Popen(command(root, "run", "--date", DAYS[0]), start_new_session=True)
    appears(root / "reading")
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    (lock,) = (root / "lake" / "_oncelake" / "locks").glob("*.lock")
    held = json.loads(lock.read_text())
    assert held["session"].startswith(place.address)
    threading.Timer(1, (root / "go").touch).start()
    code, document = run(root, "run", "--date", DAYS[0])
    assert (code, document["outcome"]) == (0, "done")
    assert ids(root) == [0, 1, 2]


def appears(path):
    event = threading.Event()
    for _ in range(6000):
        if path.exists():
            return
        event.wait(0.01)
    raise AssertionError(f"{path} did not appear")


def test_the_address_of_a_session_reaches_it(spark):
    assert f"session_id={spark.session_id}" in describe_session(spark)


@pytest.mark.long
def test_a_server_that_was_killed_is_said_and_the_next_one_goes_on(project, place):
    root = project(slow=True)
    client = subprocess.Popen(
        command(root, "run", "--date", DAYS[0], "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    appears(root / "reading")
    place.kill()
    (root / "go").touch()
    out, err = client.communicate(timeout=300)
    assert client.returncode == 1, out + err
    assert json.loads(out)["works"][0]["outcome"] in ("failed", "unknown"), out
    assert json.loads(out)["works"][0]["code"] in ("server_lost", "outcome_unknown"), out
    place.start()
    make_project(root, (root / "pipelines.py").read_text(), SETTINGS.format(address=place.address))
    assert run(root, "run", "--date", DAYS[0])[1]["outcome"] == "done"
    assert ids(root) == [0, 1, 2]


def test_prove_says_that_it_needs_a_session_of_its_own(project):
    code, document = run(project(), "prove", "orders", "--date", DAYS[0])
    assert (code, document["error"]["code"]) == (1, "prover_unavailable")
