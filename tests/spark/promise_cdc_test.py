"""`cdc="delta"`: the change feed of a version is its net change per key, whatever wrote the source."""

from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

import oncelake as once
from oncelake import errors
from support.variants import sampled

AT = {n: datetime(2024, 3, n, tzinfo=UTC) for n in range(1, 10)}
SCHEMA = "id long, v string, at timestamp"
BY = ("_commit_version", "at")


class Source:
    """A table with a change feed, and a copy of it that is merged from the feed."""

    def __init__(self, spark, folder):
        self.spark, self.lake, self.path = spark, str(folder), f"{folder}/src"
        spark.sql(
            f"CREATE TABLE delta.`{self.path}` ({SCHEMA}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )

    def write(self, rows, mode="append", **options):
        frame = self.spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.format("delta").mode(mode).options(**options).save(self.path)

    def sql(self, statement):
        self.spark.sql(statement.format(t=f"delta.`{self.path}`"))

    def merge(self, first, last, by, target="copy", pattern=once.merge):
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", first).option("endingVersion", last).load(self.path)
        written = pattern(target, keys="id", latest_by=by, cdc="delta")
        assert once.write(feed, written, work=f"c/{first}-{last}", lake=self.lake).outcome == "committed"

    def rows(self, table):
        found = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["v"], row["at"]) for row in found)


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path)


def rewrite_by_overwrite(source):
    source.write([(1, "a", AT[1]), (2, "c", AT[2])], mode="overwrite")


def rewrite_by_replace_where(source):
    source.write([(1, "a", AT[1]), (2, "c", AT[2])], mode="overwrite", replaceWhere="id >= 1")


def rewrite_with_an_older_time(source):
    source.write([(1, "older", AT[1]), (2, "c", AT[2])], mode="overwrite")


REWRITES = {"overwritten": rewrite_by_overwrite, "replaced": rewrite_by_replace_where}
BATCHES = {"in two batches": [(1, 1), (2, 2)], "in one batch": [(1, 2)]}
REWRITTEN = [f"{how}, {batches}, by {by}" for how in REWRITES for batches in BATCHES for by in BY]


@pytest.mark.parametrize("rewritten", sampled(REWRITTEN, 2, "cdc"))
def test_rewritten_rows_stay(source, rewritten):
    how, batches, by = rewritten.split(", ")
    source.write([(1, "a", AT[1]), (2, "b", AT[1])])
    REWRITES[how](source)
    for first, last in BATCHES[batches]:
        source.merge(first, last, by.removeprefix("by "))
    assert source.rows("copy") == source.rows("src")


def test_rewritten_with_an_older_time_the_newest_version_counts(source):
    source.write([(1, "a", AT[5]), (2, "b", AT[1])])
    rewrite_with_an_older_time(source)
    source.merge(1, 1, "_commit_version")
    source.merge(2, 2, "_commit_version")
    assert source.rows("copy") == source.rows("src")
    # By time the older row does not win, but the delete of the same version deletes nothing either.
    source.merge(1, 1, "at", target="by_time")
    source.merge(2, 2, "at", target="by_time")
    assert source.rows("by_time") == [(1, "a", AT[5]), (2, "c", AT[2])]


@pytest.mark.parametrize("by", sampled(BY, 1, "delete"))
def test_a_delete_of_its_own_version_still_deletes(source, by):
    source.write([(1, "a", AT[1]), (2, "b", AT[1])])
    source.sql("DELETE FROM {t} WHERE id = 1")
    source.merge(1, 1, by)
    source.merge(2, 2, by)
    assert source.rows("copy") == source.rows("src") == [(2, "b", AT[1])]


@pytest.mark.parametrize("by", sampled(BY, 1, "of"))
def test_versions_of_one_batch_are_applied_in_their_order(source, by):
    source.write([(1, "a", AT[1]), (2, "b", AT[1])])
    source.sql("DELETE FROM {t}")
    source.write([(1, "a", AT[1])])
    source.merge(1, 3, by)
    assert source.rows("copy") == source.rows("src") == [(1, "a", AT[1])]


@pytest.mark.parametrize("by", sampled(BY, 1, "update"))
def test_an_update_that_changes_the_key_removes_the_old_key(source, by):
    source.write([(1, "a", AT[1]), (2, "b", AT[1])])
    source.sql("UPDATE {t} SET id = 3 WHERE id = 1")
    source.merge(1, 1, by)
    source.merge(2, 2, by)
    assert source.rows("copy") == source.rows("src") == [(2, "b", AT[1]), (3, "a", AT[1])]


def test_history_keeps_the_current_version_of_a_rewritten_row(source):
    source.write([(1, "a", AT[1]), (2, "b", AT[1])])
    rewrite_by_overwrite(source)
    source.merge(1, 1, "at", pattern=once.scd2)
    source.merge(2, 2, "at", pattern=once.scd2)
    found = DeltaTable(f"{source.lake}/copy").to_pyarrow_table().to_pylist()
    assert sorted((r["id"], r["v"], r["is_current"]) for r in found) == [
        (1, "a", True),
        (2, "b", False),
        (2, "c", True),
    ]


def test_null_keys_are_still_quarantined_row_by_row(source):
    source.write([(None, "a", AT[1]), (1, "b", AT[1])])
    source.write([(None, "a", AT[1]), (1, "b", AT[1])], mode="overwrite")
    feed = source.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    pattern = once.merge("copy", keys="id", latest_by="at", cdc="delta", null_keys="quarantine")
    outcome = once.write(feed.load(source.path), pattern, work="c/1", lake=source.lake)
    assert outcome.rows.quarantined == 3
    assert source.rows("copy") == [(1, "b", AT[1])]


def test_a_feed_without_its_version_is_refused(source):
    frame = source.spark.createDataFrame([(1, "insert", AT[1])], "id long, _change_type string, at timestamp")
    with pytest.raises(errors.WrongColumns, match="_commit_version"):
        once.write(frame, once.merge("copy", keys="id", latest_by="at", cdc="delta"), work="c/1", lake=source.lake)


def test_a_feed_without_its_key_is_refused_by_name(source):
    source.write([(1, "a", AT[1])])
    feed = source.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    with pytest.raises(errors.ColumnMissing, match="number"):
        once.write(
            feed.load(source.path),
            once.merge("copy", keys="number", latest_by="at", cdc="delta"),
            work="c/1",
            lake=source.lake,
        )
