"""Tables as streams: appended rows, change feeds, and aggregates that keep state."""

import json
import shutil

import pytest
from pyspark.sql import functions as F

import oncelake as once


class Lake:
    """A lake with a table `orders`, and a project of pipelines over it."""

    def __init__(self, root, spark):
        self.root, self.spark = root, spark

    def append(self, *ids, **columns):
        rows = self.spark.createDataFrame([(each,) for each in ids], "id bigint")
        for name, value in columns.items():
            rows = rows.withColumn(name, F.lit(value))
        rows.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true").save(self.path("orders"))

    def path(self, table):
        return str(self.root / "lake" / table)

    def project(self, *pipelines):
        return once.Project.of(*pipelines, lake=self.root / "lake", spark=self.spark)

    def rows(self, table, *columns):
        found = self.spark.read.format("delta").load(self.path(table)).select(*columns).collect()
        return sorted(tuple(row) for row in found)


@pytest.fixture
def lake(tmp_path, spark):
    return Lake(tmp_path, spark)


def copy_of(source, writes, function=lambda rows: rows, name="copy"):
    return once.pipeline(name=name, reads={"rows": source}, writes=writes)(function)


def test_appended_rows_are_read_once_and_a_rewrite_stops_the_stream(lake, spark):
    lake.append(1, 2)
    project = lake.project(copy_of(once.changes("orders", feed=False), once.append("bronze")))
    assert project.run("copy").outcome == "done"
    assert project.plan("copy").works == ()
    lake.append(3)
    assert project.run("copy").outcome == "done"
    assert lake.rows("bronze", "id") == [(1,), (2,), (3,)]
    spark.sql(f"DELETE FROM delta.`{lake.path('orders')}` WHERE id = 1")
    report = project.run("copy")
    assert [(work.outcome, work.code) for work in report.works] == [("failed", "upstream_rewritten")]
    assert lake.rows("bronze", "id") == [(1,), (2,), (3,)]


def test_a_table_that_was_created_again_stops_the_stream(lake):
    lake.append(1)
    lake.append(2)
    project = lake.project(copy_of(once.changes("orders", feed=False), once.append("bronze")))
    project.run("copy")
    shutil.rmtree(lake.path("orders"))
    lake.append(3)
    # The new table has fewer versions than the stream has read, so it must not pass for one without news.
    report = lake.project(copy_of(once.changes("orders", feed=False), once.append("bronze"))).run("copy")
    assert [(work.outcome, work.code) for work in report.works] == [("failed", "upstream_recreated")]


def test_behind_a_merge_the_change_feed_is_read(lake):
    lake.append(1, 2, amount=1, seq=1)
    orders = once.pipeline(
        name="orders_now",
        reads={"rows": once.changes("orders")},
        writes=once.merge("silver", keys="id", latest_by="seq"),
    )(lambda rows: rows)
    gold = copy_of(once.changes("silver"), once.merge("gold", keys="id", cdc="delta"), name="gold")
    project = lake.project(orders, gold)
    assert project.run().outcome == "done"
    lake.append(2, 3, amount=5, seq=2)
    assert project.run().outcome == "done"
    assert lake.rows("gold", "id", "amount") == [(1, 1), (2, 5), (3, 5)]
    notes = " ".join(project.plan().notes)
    assert "silver is written by merge, so its change feed is read" in notes
    (status,) = (each for each in project.status() if each.pipeline == "gold")
    assert (status.stream.lag, status.stream.unit) == (0, "versions")


def test_a_table_with_columns_of_a_change_feed_is_not_read_by_one(lake):
    lake.append(1, _commit_version=F.lit(7))
    report = lake.project(copy_of(once.changes("orders", feed=True), once.append("bronze"))).run("copy")
    (work,) = report.works
    assert (work.code, "_commit_version" in work.error) == ("bad_declaration", True)


def test_an_aggregate_over_a_stream_keeps_state(lake):
    lake.append(1, 2, place="a")
    lake.append(3, place="b")
    totals = once.pipeline(
        name="totals",
        reads={"rows": once.changes("orders", max_files=1)},
        writes=once.aggregate("totals", keys="place"),
    )(lambda rows: rows.groupBy("place").agg(F.count("*").alias("orders"), F.sum("id").alias("ids")))
    project = lake.project(totals)
    assert project.run("totals").outcome == "done"
    assert lake.rows("totals", "place", "orders", "ids") == [("a", 2, 3), ("b", 1, 3)]
    lake.append(4, place="a")
    report = project.run("totals")
    assert report.outcome == "done"
    assert lake.rows("totals", "place", "orders", "ids") == [("a", 3, 7), ("b", 1, 3)]
    # A restored target and the state of the query no longer fit, and the state cannot go back.
    project.restore("totals", to=1)
    assert {work.code for work in project.run("totals").works} == {"state_ahead"}


def test_what_is_added_is_of_one_batch(lake, stopped_at):
    lake.append(1, 2, place="a")
    totals = once.pipeline(
        name="totals",
        reads={"rows": once.changes("orders", max_files=1)},
        writes=once.aggregate("totals", keys="place", add="ids"),
    )(lambda rows: rows.groupBy("place").agg(F.sum("id").alias("ids")))
    with stopped_at("written"):
        lake.project(totals).run("totals")
    lake.append(3, place="a")
    assert lake.project(totals).run("totals").outcome == "done"
    assert lake.rows("totals", "place", "ids") == [("a", 6)]


def test_status_tells_where_a_stream_stands_without_a_session(lake):
    lake.append(1)
    project = lake.project(copy_of(once.changes("orders", feed=False), once.append("bronze")))
    project.run("copy")
    lake.append(2)
    (status,) = project.status("copy")
    assert (status.done, status.missing) == (1, 0)
    assert (status.stream.batch, status.stream.lag, status.stream.unit) == (0, 1, "versions")
    assert json.loads(json.dumps(status.document()))["stream"]["problem"] is None
