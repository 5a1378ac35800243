"""One row per key: chosen before a write, and repaired in a table that has more."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

import oncelake as once
from oncelake.cli.main import cli
from oncelake.delta.log import read_log
from oncelake.errors import BadDeclaration, ColumnMissing, TableMissing
from support.lakes import make_project

SCHEMA = "id int, day int, v string, at int"

PIPELINE = """
import oncelake as once

@once.pipeline(reads=once.table("t"), writes=once.overwrite("copy"))
def copied(rows):
    return rows
"""


@pytest.fixture
def root(tmp_path):
    return make_project(tmp_path, PIPELINE)


def append(spark, root, rows, **layout):
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame.write.format("delta").mode("append").options().partitionBy(*layout.get("by", [])).save(
        str(root / "lake" / "t")
    )


def content(spark, root):
    return sorted(map(tuple, spark.read.format("delta").load(str(root / "lake" / "t")).collect()), key=repr)


def repair(root, *arguments):
    done = CliRunner().invoke(cli, ["repair", "t", *arguments, "--json", "--project", str(root)])
    return done.exit_code, json.loads(done.stdout)


def test_the_latest_row_is_the_same_however_the_rows_lie(spark):
    rows = [(1, 1, "a", 2), (1, 1, "b", 2), (1, 1, "c", 1), (None, 1, "d", 1), (2, 1, "e", None), (2, 1, "f", 0)]
    chosen = [
        sorted(
            map(tuple, once.latest(spark.createDataFrame(each, SCHEMA).repartition(2), "ID", "at").collect()), key=repr
        )
        for each in (rows, rows[::-1])
    ]
    assert chosen[0] == chosen[1]
    assert [row[2] for row in chosen[0]][1:] == ["f", "d"]
    assert chosen[0][0][2] in "ab"
    with pytest.raises(ColumnMissing, match="did you mean 'at'"):
        once.latest(spark.createDataFrame(rows, SCHEMA), "id", "att")
    with pytest.raises(BadDeclaration, match="has no order"):
        once.latest(spark.sql("SELECT map(1, 2) AS m"), "m")


def test_a_key_is_made_of_types_and_values_and_not_of_the_session(spark):
    made = spark.sql(
        "SELECT 1 AS a, CAST(1 AS BIGINT) AS b, '1' AS c, NULL AS d, 'x,y' AS e, TIMESTAMP'2024-03-31T01:30:00Z' AS t"
    )
    same = made.select(once.key("a"), once.key("b")).collect()[0]
    assert same[0] == same[1]
    assert len(same[0]) == 64
    columns = [("a",), ("c",), ("d",), ("c", "d"), ("d", "c"), ("c", "c"), ("e",), ("t",)]
    keys = made.select(*(once.key(*each).alias(str(n)) for n, each in enumerate(columns))).collect()[0]
    assert len(set(keys)) == len(columns)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        assert made.select(once.key(F.col("t"))).collect()[0][0] == keys[-1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    instants = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in range(2)]
    frame = spark.createDataFrame([(instant,) for instant in instants], "t timestamp")
    assert frame.select(once.key("t")).distinct().count() == 2


def test_identical_rows_are_repaired_and_only_their_file_is_touched(spark, root):
    append(spark, root, [(1, 1, "a", 1), (2, 1, "b", 1)], by=["day"])
    append(spark, root, [(1, 2, "a", 1), (3, 2, "c", 1), (None, 2, "n", 1)], by=["day"])
    append(spark, root, [(1, 2, "a", 1), (None, 2, "n", 1)], by=["day"])
    code, shown = repair(root, "--keys", "id,day", "--dry-run")
    assert (code, shown["removed"], shown["version"]) == (0, 0, None)
    code, done = repair(root, "--keys", "id,day")
    assert (code, done["duplicate_keys"], done["surplus"], done["identical"], done["removed"]) == (0, 1, 1, 1, 1)
    assert [(commit["version"], commit["rows"]) for commit in done["since"]] == [(2, 1)]
    assert (done["files"], done["version"]) == (2, 3)
    assert content(spark, root) == [
        (1, 1, "a", 1),
        (1, 2, "a", 1),
        (2, 1, "b", 1),
        (3, 2, "c", 1),
        (None, 2, "n", 1),
        (None, 2, "n", 1),
    ]
    removed = list(read_log("t", str(root / "lake" / "t")).entry(3).actions("remove"))
    assert [action["partitionValues"] for action in removed] == [{"day": "2"}] * 2
    code, again = repair(root, "--keys", "id,day")
    assert (code, again["duplicate_keys"], again["version"]) == (0, 0, None)


def test_rows_that_differ_need_an_order_and_the_rest_is_repaired_without(spark, root):
    append(spark, root, [(1, 1, "a", 1), (2, 1, "x", 1), (3, 1, "s", 1)])
    append(spark, root, [(1, 1, "b", 2), (2, 1, "x", 1), (1, 1, "a", 1)])
    code, done = repair(root, "--keys", "id")
    assert (code, done["identical"], done["differing"], done["removed"], done["left"]) == (1, 1, 1, 2, 1)
    assert content(spark, root) == [(1, 1, "a", 1), (1, 1, "b", 2), (2, 1, "x", 1), (3, 1, "s", 1)]
    code, done = repair(root, "--keys", "id", "--keep", "latest_by=at")
    assert (code, done["removed"], done["left"]) == (0, 1, 0)
    assert content(spark, root) == [(1, 1, "b", 2), (2, 1, "x", 1), (3, 1, "s", 1)]
    history = once.open(root, spark=spark)
    assert history.repair("t", ["id"]).doubled == 0


def test_a_repair_that_cannot_be_meant_is_refused(spark, root):
    with pytest.raises(TableMissing):
        once.open(root, spark=spark).repair("nothing", ["id"])
    append(spark, root, [(1, 1, "a", 1)])
    with pytest.raises(ColumnMissing):
        once.open(root, spark=spark).repair("t", ["idd"])
    wrong = CliRunner().invoke(cli, ["repair", "t", "--keys", "id", "--keep", "newest", "--project", str(root)])
    assert wrong.exit_code == 2


@pytest.mark.parametrize("key", ["id", "copies"])
def test_repair_keeps_columns_named_like_words_it_uses(spark, root, key):
    rows = [(1, 1, "a", 7), (2, 2, "b", 8)]
    for _ in range(2):
        frame = spark.createDataFrame(rows, "id int, copies int, spare string, contents int")
        frame.write.format("delta").mode("append").save(str(root / "lake" / "t"))
    done = once.open(root, spark=spark).repair("t", [key])
    assert (done.doubled, done.removable, done.left) == (2, 2, 0)
    assert content(spark, root) == rows
