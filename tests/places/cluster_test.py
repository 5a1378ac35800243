"""On a cluster: executors and workers die in the middle of a write, and workers differ."""

import os
import signal

import pytest
from pyspark.sql import functions as F

import oncelake as once
from oncelake.errors import WorkersDiffer
from oncelake.model import failpoints
from oncelake.spark.workers import check_workers
from support.lakes import DAYS, expected_ids, ids, land_days
from support.orders import open_orders, orders_columns, orders_pipeline, sums_columns
from support.variants import some_variants

SPAN = {"start": DAYS[0], "end": "2024-03-17"}


@pytest.fixture
def killed_once():
    """Call something once, when the commit protocol reaches a point for the second time: by then there is a table."""

    def watch(point, kill):
        reached = []

        def at(name):
            if name == point:
                reached.append(name)
                if len(reached) == 2:
                    kill()

        failpoints.watch(at)
        return reached

    yield watch
    failpoints.watch(None)


@pytest.mark.parametrize("variant", some_variants(0, 1, "executors"))
def test_executors_that_die_before_the_commit_cost_a_retry(tmp_path, spark, place, variant, killed_once):
    def kill():
        for pid in place.executors():
            os.kill(pid, signal.SIGKILL)

    project = open_orders(tmp_path, spark, variant)
    spark.range(4, numPartitions=4).count()
    assert place.executors()
    reached = killed_once("committing", kill)
    assert project.run("orders", date=DAYS[0]).outcome == "done"  # a range is one commit
    report = project.run("orders", **SPAN)
    assert len(reached) > 1
    assert (report.outcome, ids(tmp_path)) == ("done", expected_ids(variant)), [w.error for w in report.works]


@pytest.mark.parametrize("variant", some_variants(1, 0, "in a write"))
def test_an_executor_that_dies_while_it_writes_is_replaced(tmp_path, spark, variant):
    flag = str(tmp_path / "killed")

    @F.udf("bigint")
    def deadly(number):
        import os
        import signal
        from pathlib import Path

        if number == 101 and not Path(flag).exists():
            Path(flag).touch()
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(daemon), signal.SIGKILL)
        return number

    def columns(files):
        return (sums_columns if variant.adds else orders_columns)(files.withColumn("id", deadly("id")))

    land_days(tmp_path)
    pipeline = orders_pipeline(variant.declared, columns)
    report = once.Project.of(pipeline, lake=tmp_path / "lake", root=tmp_path, spark=spark).run("orders", **SPAN)
    assert os.path.exists(flag)
    assert (report.outcome, ids(tmp_path)) == ("done", expected_ids(variant)), [w.error for w in report.works]


@pytest.mark.parametrize("variant", some_variants(0, 0, "workers"))
def test_a_worker_that_dies_is_done_without(tmp_path, spark, place, variant, killed_once):
    def kill():
        worker = place.processes[1]
        worker.kill()
        worker.wait()
        for pid in place.executors():
            os.kill(pid, signal.SIGKILL)

    project = open_orders(tmp_path, spark, variant)
    killed_once("committing", kill)
    try:
        report = project.run("orders", **SPAN)
    finally:
        place.processes[1] = place.add_worker()
        place.processes.pop()
        place.wait_for(2)
    assert (report.outcome, ids(tmp_path)) == ("done", expected_ids(variant)), [w.error for w in report.works]


def test_workers_of_another_time_zone_are_refused(spark):
    other = spark.newSession()
    check_workers(other)  # these are as the driver is
    environment = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kathmandu"
    try:
        import time

        time.tzset()
        with pytest.raises(WorkersDiffer) as refused:
            check_workers(other)
        assert "20700" in refused.value.facts["problem"]
    finally:
        os.environ.pop("TZ") if environment is None else os.environ.update(TZ=environment)
        time.tzset()
