"""What the keyed patterns do with awkward keys, orders, columns and tables."""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import count
from math import nan
from pathlib import Path

import pytest

import oncelake as once
from oncelake.delta.log import read_log
from oncelake.errors import BadDeclaration, CannotRestate, NullKeys, RepeatedKeys, WrongColumns
from support.orders import FILES

SCHEMA = "id int, v string, at int, op string"
MERGE = once.merge("t", keys="id", latest_by="at", delete_when="op = 'd'", exclude="op")


class Lake:
    """A lake that every call writes another work to."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.numbers = spark, Path(folder), count()

    def write(self, rows, pattern=MERGE, schema=SCHEMA, work=None, **more):
        frame = self.spark.createDataFrame(rows, schema)
        work = work or f"work/{next(self.numbers)}"
        return once.write(frame, pattern, work=work, lake=str(self.folder), **more)

    def frame(self, table="t"):
        return self.spark.read.format("delta").load(str(self.folder / table))

    def rows(self, table="t"):
        return sorted(map(tuple, self.frame(table).collect()), key=repr)

    def log(self, table="t"):
        return read_log(table, str(self.folder / table))

    def actions(self, version, table="t"):
        """The kinds of actions of a commit."""
        lines = (self.folder / table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        return sorted({next(iter(json.loads(line))) for line in lines})


@pytest.fixture
def lake(spark, tmp_path):
    return Lake(spark, tmp_path)


def test_of_one_batch_the_latest_row_of_a_key_wins_and_an_older_one_later_does_not(lake):
    lake.write([(1, "old", 1, "u"), (1, "new", 3, "u"), (1, "mid", 2, "u"), (2, "x", 1, "u")])
    lake.write([(1, "late", 2, "u"), (2, "y", 2, "u")])
    assert lake.rows() == [(1, "new", 3), (2, "y", 2)]


def test_rows_of_one_order_are_settled_by_their_content_whoever_comes_first(spark, tmp_path):
    first, second = Lake(spark, tmp_path / "a"), Lake(spark, tmp_path / "b")
    batches = [[(1, "p", 1, "u"), (2, "s", 1, "u")], [(1, "q", 1, "u"), (2, "r", 1, "u")], [(3, "z", None, "u")]]
    for batch in batches:
        first.write(batch)
    for batch in reversed(batches):
        second.write(batch)
    second.write([*batches[1], *batches[0]])
    assert first.rows() == second.rows()
    assert len(first.rows()) == 3


def test_no_order_is_below_every_order_and_a_delete_wins_where_it_is_equal(lake):
    lake.write([(1, "untimed", None, "u"), (2, "gone", 5, "d"), (3, "was", None, "u")])
    lake.write([(1, "timed", 0, "u"), (2, "same", 5, "u"), (3, "x", None, "d")])
    lake.write([(1, "untimed again", None, "u"), (2, "older", 4, "u")])
    assert lake.rows() == [(1, "timed", 0)]
    lake.write([(2, "newer", 6, "u")])
    assert lake.rows() == [(1, "timed", 0), (2, "newer", 6)]


def test_what_was_remembered_for_a_commit_that_never_came_does_not_count(lake, stopped_at):
    with stopped_at("prepared"):
        lake.write([(7, "x", 9, "d")], work="day/1")
    lake.write([(8, "corrected", 9, "d")], work="day/1")
    lake.write([(7, "late", 3, "u"), (8, "late", 3, "u")])
    assert lake.rows() == [(7, "late", 3)]


def test_deletes_are_forgotten_after_the_declared_time(lake):
    short = once.merge("t", keys="id", latest_by="at", delete_when="op = 'd'", exclude="op", tombstones="1 hour")
    lake.write([(1, "x", 9, "d"), (2, "x", 9, "d")], short)
    (memory,) = (lake.folder / "_oncelake" / "tombstones" / "t").iterdir()
    age = "UPDATE delta.`{}` SET __once_at = __once_at - INTERVAL 2 HOURS WHERE id = 1"
    lake.spark.sql(age.format(memory))
    lake.write([(1, "late", 3, "u"), (2, "late", 3, "u")], short)
    assert lake.rows() == [(1, "late", 3)]


def test_what_is_decided_is_settled_and_still_counts(lake, monkeypatch):
    monkeypatch.setattr("oncelake.delta.prepared._MANY", 3)
    for key in range(4):
        lake.write([(key, "x", 9, "d")])
    lake.write([(key, "late", 3, "u") for key in range(5)])
    assert lake.rows() == [(4, "late", 3)]
    (folder,) = (lake.folder / "_oncelake" / "tombstones" / "t").iterdir()
    memory = lake.spark.read.format("delta").load(str(folder))
    assert memory.where("__once_attempt IS NULL").count() == 3
    assert memory.count() == 4


def test_a_delete_of_a_restored_row_deletes_it_again(lake):
    lake.write([(1, "x", 1, "u")])
    lake.write([(1, "x", 2, "d")])
    lake.spark.sql(f"RESTORE delta.`{lake.folder / 't'}` TO VERSION AS OF 1")
    lake.write([(1, "x", 2, "d")])
    assert lake.rows() == []


def test_keys_that_differ_by_case_or_blanks_are_different_and_nan_is_one_key(lake):
    lake.write([("a", 1), ("A", 1), ("a ", 1)], once.merge("t", keys="k"), "k string, v int")
    lake.write([("a", 2)], once.merge("t", keys="k"), "k string, v int")
    assert lake.rows() == [("A", 1), ("a ", 1), ("a", 2)]
    floats = once.merge("f", keys="k")
    lake.write([(nan, 1), (0.0, 1), (None, 1)][:2], floats, "k double, v int")
    lake.write([(nan, 2), (-0.0, 2)], floats, "k double, v int")
    assert sorted(row[1] for row in lake.rows("f")) == [2, 2]


def test_keys_of_another_width_match_and_those_of_another_kind_are_refused(lake):
    pattern = once.merge("t", keys="k")
    lake.write([(Decimal("1.50"), 1)], pattern, "k decimal(9,2), v bigint")
    lake.write([(Decimal("1.5"), 2)], pattern, "k decimal(5,1), v int")
    assert lake.rows() == [(Decimal("1.50"), 2)]
    for schema in ("k decimal(9,3), v int", "k double, v int", "k string, v int"):
        with pytest.raises(WrongColumns, match="column k is"):
            lake.write([], pattern, schema)
    with pytest.raises(WrongColumns, match="column v is double"):
        lake.write([], pattern, "k decimal(9,2), v double")
    assert lake.log().version == 2


def test_an_empty_batch_and_one_of_deletes_only_are_done(lake):
    assert lake.write([]).rows.written == 0
    outcome = lake.write([(1, "x", 1, "d")])
    assert (outcome.outcome, outcome.rows.written, outcome.rows.deleted) == ("committed", 0, 0)
    lake.write([(2, "y", 1, "u")])
    assert lake.write([(2, None, 2, "d")]).rows.deleted == 1
    assert lake.rows() == []


def test_null_keys_are_refused_with_examples_or_set_aside(lake):
    with pytest.raises(NullKeys) as refused:
        lake.write([(None, "nobody", 1, "u"), (1, "x", 1, "u")])
    assert "v=nobody" in refused.value.facts["examples"]
    assert lake.rows() == []
    aside = once.merge("t", keys="id", latest_by="at", null_keys="quarantine", exclude="op")
    outcome = lake.write([(None, "nobody", 1, "u"), (None, "no", 2, "u"), (1, "x", 1, "u")], aside, work="a/1")
    assert (outcome.rows.written, outcome.rows.quarantined) == (1, 2)
    assert lake.rows() == [(1, "x", 1)]
    found = lake.spark.read.format("delta").load(str(lake.folder / "_oncelake" / "quarantine" / "t"))
    assert sorted(json.loads(row["row"])["v"] for row in found.collect()) == ["no", "nobody"]
    assert lake.write([(None, "nobody", 1, "u")], aside, work="a/1", generation=2).rows.quarantined == 1
    assert found.sparkSession.read.format("delta").load(str(lake.folder / "_oncelake/quarantine/t")).count() == 1


def test_new_columns_are_refused_or_taken_as_declared_and_case_does_not_matter(lake):
    lake.write([(1, "x", 1)], once.merge("t", keys="id", latest_by="at"), "id int, v string, at int")
    with pytest.raises(WrongColumns, match="no column more"):
        lake.write([(1, "y", 2, 7)], once.merge("t", keys="id", latest_by="at"), "id int, v string, at int, more int")
    evolving = once.merge("t", keys="ID", latest_by="At", schema="evolve")
    lake.write([(2, "y", 2, 7)], evolving, "Id int, V string, AT int, More int")
    assert lake.frame().columns == ["id", "v", "at", "More"]
    lake.write([(1, 3)], evolving, "id int, at int")
    assert lake.rows() == [(1, None, 3, None), (2, "y", 2, 7)]
    assert lake.actions(2) == ["add", "commitInfo", "metaData", "txn"]


def test_a_table_without_the_key_is_refused(lake):
    lake.write([(1,)], once.merge("t", keys="other"), "other int")
    with pytest.raises(WrongColumns, match="the table has no column id"):
        lake.write([(1, 2)], once.merge("t", keys="id", schema="evolve"), "other int, id int")


def test_a_table_that_has_duplicates_keeps_them_in_step_until_it_is_repaired(lake):
    twice = lake.spark.createDataFrame([(1, "x", 1), (1, "x", 1)], "id int, v string, at int")
    twice.write.format("delta").save(str(lake.folder / "t"))
    lake.write([(1, "y", 2, "u")])
    assert lake.rows() == [(1, "y", 2)] * 2


@pytest.mark.parametrize("pattern", ["merge", "scd2", "aggregate"])
def test_a_replay_under_another_name_writes_no_file_and_unchanged_rows_are_left_alone(lake, pattern):
    patterns = {
        "merge": MERGE,
        "scd2": once.scd2("t", keys="id", latest_by="at", delete_when="op = 'd'", exclude="op"),
        "aggregate": once.aggregate("t", keys=["id", "at"]),
    }
    batch = [(1, "x", 1, "u"), (2, "y", 1, "u"), (3, "z", 2, "d"), (3, "z", 1, "u")]
    lake.write(batch, patterns[pattern])
    before = lake.rows()
    outcome = lake.write(batch, patterns[pattern])
    assert (outcome.outcome, outcome.rows.written) == ("committed", 0)
    assert lake.actions(outcome.version) == ["commitInfo", "txn"]
    assert lake.rows() == before
    outcome = lake.write([*batch[:1], (2, "new", 2, "u")], patterns[pattern])
    assert outcome.rows.written == {"merge": 1, "scd2": 2, "aggregate": 1}[pattern]


def test_parts_of_a_row_can_be_updated_or_left(lake):
    lake.write([(1, "x", 1, "a"), (2, "y", 1, "a")], once.merge("t", keys="id", latest_by="at"))
    some = once.merge("t", keys="id", latest_by="at", update=["v"], insert=False)
    lake.write([(1, "new", 2, "b"), (3, "none", 2, "b")], some)
    assert lake.rows() == [(1, "new", 2, "a"), (2, "y", 1, "a")]
    lake.write([(2, "ignored", 9, "b"), (4, "w", 1, "b")], once.merge("t", keys="id", latest_by="at", update=False))
    assert lake.rows() == [(1, "new", 2, "a"), (2, "y", 1, "a"), (4, "w", 1, "b")]


def test_without_an_order_the_batch_that_comes_last_wins(lake):
    pattern = once.merge("t", keys=["id", "day"])
    lake.write([(1, "mon", "a"), (1, "tue", "b")], pattern, "id int, day string, v string")
    lake.write([(1, "mon", "c")], pattern, "id int, day string, v string")
    assert lake.rows() == [(1, "mon", "c"), (1, "tue", "b")]


def test_debezium_and_change_feeds_are_unwrapped(lake):
    row = "struct<id: int, name: string>"
    schema = f"before {row}, after {row}, op string, ts_ms bigint, source struct<lsn: bigint>"
    debezium = once.merge("t", keys="id", latest_by=["ts_ms", "lsn"], cdc="debezium")
    lake.write(
        [
            (None, (1, "ann"), "c", 10, (1,)),
            ((1, "ann"), (1, "anna"), "u", 10, (2,)),
            (None, (2, "bob"), "r", 5, (1,)),
            ((2, "bob"), None, "d", 20, (3,)),
            (None, None, None, None, None),
        ],
        debezium,
        schema,
    )
    lake.write([(None, (2, "late"), "u", 15, (9,))], debezium, schema)
    assert lake.rows() == [(1, "anna", 10, 2)]
    feed = [(1, "a", 1, "insert", 1), (1, "a", 1, "update_preimage", 2), (1, "b", 2, "update_postimage", 2)]
    feed += [(2, "x", 1, "insert", 1), (2, "x", 3, "delete", 3)]
    delta = once.merge("f", keys="id", latest_by="at", cdc="delta")
    lake.write(feed, delta, "id int, v string, at int, _change_type string, _commit_version bigint")
    assert lake.rows("f") == [(1, "b", 2)]
    with pytest.raises(WrongColumns, match="_change_type"):
        lake.write([(1, "b", 2)], delta, "id int, v string, at int")


def test_a_merge_looks_only_at_the_partitions_of_its_keys(lake):
    pattern = once.merge("t", keys=["id", "day"], partition_by="day")
    schema = "id int, day date, v string"
    from datetime import date

    lake.write([(1, date(2024, 3, day), "a") for day in (14, 15, 16)], pattern, schema)
    outcome = lake.write([(1, date(2024, 3, 15), "b")], pattern, schema)
    info = lake.log().entry(outcome.version).info
    assert "2024-03-15" in info["operationParameters"]["predicate"]
    assert info["operationMetrics"]["numTargetFilesRemoved"] == "1"
    assert sorted(row[2] for row in lake.rows()) == ["a", "a", "b"]


def test_a_clustered_table_is_looked_at_by_key_range_and_marked_not_rewritten(lake):
    pattern = once.merge("t", keys="id", latest_by="at", exclude="op", cluster_by="id", deletion_vectors=True)
    lake.write([(key, "a", 1, "u") for key in range(100)], pattern)
    outcome = lake.write([(5, "b", 2, "u"), (7, "b", 2, "u")], pattern)
    info = lake.log().entry(outcome.version).info
    assert ">= 5" in info["operationParameters"]["predicate"]
    assert int(info["operationMetrics"]["numTargetDeletionVectorsAdded"]) > 0
    assert sum(row[1] == "b" for row in lake.rows()) == 2
    assert len(lake.rows()) == 100


def test_two_merges_at_once_are_both_applied(spark, tmp_path):
    lake = Lake(spark, tmp_path)
    lake.write([(0, "x", 0, "u")])
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda k: lake.write([(k, "x", 1, "u")], work=f"at/{k}").outcome, range(3)))
    assert outcomes == ["committed"] * 3
    assert [row[0] for row in lake.rows()] == [0, 1, 2]


def test_history_is_kept_and_a_late_row_finds_its_place(lake):
    pattern = once.scd2("t", keys="id", latest_by="at", track="v", delete_when="op = 'd'", exclude="op")
    lake.write([(1, "a", 1, "u"), (1, "b", 5, "u"), (2, "x", 5, "u")], pattern)
    lake.write([(1, "b", 7, "u"), (2, "x", 8, "d"), (3, "gone before it came", 4, "d")], pattern)
    assert lake.rows() == [(1, "a", 1, 1, 5, False), (1, "b", 5, 5, None, True), (2, "x", 5, 5, 8, False)]
    lake.write([(1, "c", 6, "u"), (3, "late", 2, "u")], pattern)
    assert lake.rows() == [
        (1, "a", 1, 1, 5, False),
        (1, "b", 5, 5, 6, False),
        (1, "b", 7, 7, None, True),
        (1, "c", 6, 6, 7, False),
        (2, "x", 5, 5, 8, False),
        (3, "late", 2, 2, 4, False),
    ]
    with pytest.raises(NullKeys):
        lake.write([(1, "when?", None, "u")], pattern)


def test_groups_are_set_once_each_and_null_is_a_group(lake):
    schema, pattern = "region string, total int", once.aggregate("t", keys="region")
    lake.write([("eu", 1), (None, 2)], pattern, schema)
    lake.write([(None, 3), ("us", 4)], pattern, schema)
    assert lake.rows() == [("eu", 1), ("us", 4), (None, 3)]
    with pytest.raises(RepeatedKeys, match="region=eu"):
        lake.write([("eu", 1), ("eu", 2)], pattern, schema)


def test_adding_needs_exact_numbers_and_is_not_done_twice(lake):
    pattern = once.aggregate("t", keys="k", add="n")
    lake.write([(1, 5)], pattern, "k int, n bigint", work="a/1")
    assert lake.write([(1, 5)], pattern, "k int, n bigint", work="a/1").outcome == "already_done"
    lake.write([(1, 2), (2, None)], pattern, "k int, n bigint")
    lake.write([(1, None), (2, 3)], pattern, "k int, n bigint")
    assert lake.rows() == [(1, 7), (2, 3)]
    with pytest.raises(CannotRestate):
        lake.write([(1, 5)], pattern, "k int, n bigint", work="a/1", generation=2)
    with pytest.raises(WrongColumns, match="depends on the order"):
        lake.write([(1, 5.0)], once.aggregate("f", keys="k", add="n"), "k int, n double")
    with pytest.raises(WrongColumns, match="and nothing else"):
        lake.write([(1, 5, 1)], once.aggregate("g", keys="k", add="n"), "k int, n int, other int")


def test_small_files_are_put_together_in_a_commit_of_its_own(lake, monkeypatch):
    monkeypatch.setattr("oncelake.delta.compaction.FILES", 3)
    outcomes = [lake.write([(key, "x", key, "u")]) for key in range(3)]
    log = lake.log()
    newest = log.entry(log.version)
    assert (newest.info["operation"], log.version) == ("OPTIMIZE", outcomes[-1].version + 1)
    assert not newest.markers
    assert not any(add["dataChange"] for add in newest.actions("add"))
    assert len(lake.rows()) == 3


def test_bad_declarations_say_what_is_wrong():
    wrong = [
        lambda: once.merge("t", keys=[]),
        lambda: once.merge("t", keys="id", schema="maybe"),
        lambda: once.merge("t", keys="id", null_keys="keep"),
        lambda: once.merge("t", keys="id", cdc="oracle"),
        lambda: once.merge("t", keys="id", tombstones="a while"),
        lambda: once.scd2("t", keys="id", latest_by=None),
        lambda: once.aggregate("t", keys=None),
        lambda: once.table("t", latest={"by": "at"}),
        once.key,
    ]
    for declare in wrong:
        with pytest.raises(BadDeclaration, match=r"keyed_test\.py:\d+"):
            declare()


@once.pipeline(
    every="day",
    start="2024-03-14",
    reads=once.files(FILES, schema="id long, amount long, at string"),
    writes=[once.merge("orders", keys="id", latest_by="at"), once.aggregate("daily", keys="day")],
)
def sales(files):
    from pyspark.sql import functions as F

    days = files.groupBy(F.substring("at", 1, 10).alias("day")).agg(F.sum("amount").alias("total"))
    return {"orders": files, "daily": days}


@once.pipeline(
    every="day",
    start="2024-03-14",
    reads=once.table("orders", latest={"keys": "amount", "by": "at"}),
    writes=once.overwrite("latest"),
)
def newest(orders):
    return orders


def test_several_targets_are_right_when_killed_between_them_and_latest_is_read(tmp_path, spark, stopped_at):
    folder = tmp_path / "landing" / "2024-03-14"
    folder.mkdir(parents=True)
    orders = [{"id": key, "amount": key % 2, "at": f"2024-03-14T0{key}"} for key in range(4)]
    (folder / "a.json").write_text("\n".join(map(json.dumps, orders)))
    project = once.Project.of(sales, newest, lake=tmp_path / "lake", root=tmp_path, spark=spark)
    assert "daily: a merge rewrites" in " ".join(project.plan(date="2024-03-14").notes)
    with stopped_at("settled"):
        project.run("sales", date="2024-03-14")
    (folder / "b.json").write_text(json.dumps({"id": 9, "amount": 100, "at": "2024-03-14T09"}))
    report = project.run("sales", date="2024-03-14")
    assert [work.outcome for work in report.works] == ["already_done", "failed"]
    (folder / "b.json").unlink()
    assert project.run(date="2024-03-14").outcome == "done"
    lake = Lake(spark, tmp_path / "lake")
    assert lake.rows("daily") == [("2024-03-14", 2)]
    assert len(lake.rows("orders")) == 4
    assert sorted(row["id"] for row in lake.frame("latest").collect()) == [2, 3]


def test_history_of_a_key_named_next_deletes_no_other_key(lake):
    pattern = once.scd2("t", keys="next", latest_by="at", delete_when="op = 'd'", exclude="op")
    schema = "next int, v string, at int, op string"
    lake.write([(1, "a", 1, "u"), (1, None, 2, "d"), (1, "b", 4, "u")], pattern, schema)
    lake.write([(1, "c", 6, "u")], pattern, schema)
    lake.write([(4, "x", 1, "u")], pattern, schema)
    found = sorted(tuple(row) for row in lake.frame().select("next", "v", "valid_from", "valid_to").collect())
    assert found == [(1, "a", 1, 2), (1, "b", 4, 6), (1, "c", 6, None), (4, "x", 1, None)]


def test_a_row_is_a_delete_if_the_feed_or_the_condition_says_so(lake):
    pattern = once.merge("f", keys="id", latest_by="at", cdc="delta", delete_when="v = 'gone'")
    feed = [(1, "a", 1, "insert", 1), (1, "a", 2, "delete", 2), (2, "gone", 1, "insert", 1), (3, "x", 1, "insert", 1)]
    lake.write(feed, pattern, "id int, v string, at int, _change_type string, _commit_version bigint")
    assert lake.rows("f") == [(3, "x", 1)]


def test_a_group_may_be_named_count(lake):
    schema, pattern = "count int, total int", once.aggregate("t", keys="count")
    lake.write([(7, 1), (8, 2)], pattern, schema)
    with pytest.raises(RepeatedKeys, match=r"\(count=7\)"):
        lake.write([(7, 1), (7, 2)], pattern, schema)
