"""Content and its fingerprint: equal for equal content, different for any other, over every type Spark has."""

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from oncelake.delta.fingerprint import MAX_PARTS, RowSums, differences, fingerprint, fingerprint_table
from oncelake.errors import UsageError
from oncelake.spark.row_encoding import row_hashes, row_text
from oncelake.spark.session import clone_session
from support.pools import NULLS_ONLY, pools

UNKNOWN_TO_DELTA = ("time(", "interval", "collate")
SAME = {
    "minus zero": ("0.0D", "-0.0D"),
    "minus zero, float": ("0.0F", "-0.0F"),
    "minus zero in an array": ("array(0.0D)", "array(-0.0D)"),
    "any NaN": ("double('NaN')", "-double('NaN')"),
    "map order": ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    "order of a map of maps": (
        "map('a', map(1, 1, 2, 2), 'b', map(3, 3))",
        "map('b', map(3, 3), 'a', map(2, 2, 1, 1))",
    ),
    "map order in an array of structs": (
        "array(named_struct('m', map(1, 'x', 2, 'y')))",
        "array(named_struct('m', map(2, 'y', 1, 'x')))",
    ),
    "order of keys that are structs": (
        "map(named_struct('k', 1), 1, named_struct('k', 2), 2)",
        "map(named_struct('k', 2), 2, named_struct('k', 1), 1)",
    ),
    "order of keys that are arrays": ("map(array(1), 1, array(), 2)", "map(array(), 2, array(1), 1)"),
    "key order of a variant": ("""parse_json('{"a": 1, "b": [2]}')""", """parse_json('{"b":[2],"a":1}')"""),
    "decimal places of a variant": ("parse_json('1.50')", "parse_json('1.5')"),
    "instant": ("timestamp'2024-01-01 00:00:00Z'", "timestamp'2024-01-01 05:30:00+05:30'"),
}
OTHER = {
    "null and empty text": ("cast(null as string)", "''"),
    "null and its name": ("cast(null as string)", "'null'"),
    "null and its mark": ("cast(null as string)", "'n'"),
    "null and its mark, in an array": ("array(cast(null as string))", "array('n')"),
    "case": ("'a'", "'A'"),
    "case, whatever the collation": ("'a' collate utf8_lcase", "'A' collate utf8_lcase"),
    "case in an array, whatever the collation": ("array('a' collate utf8_lcase)", "array('A' collate utf8_lcase)"),
    "trailing blank": ("'a'", "'a '"),
    "trailing blank, whatever the collation": ("'a' collate utf8_binary_rtrim", "'a ' collate utf8_binary_rtrim"),
    "composed and decomposed": ("'\\u00e9'", "'e\\u0301'"),
    "bytes that are no text": ("cast(X'FF' as string)", "cast(X'FE' as string)"),
    "bytes that are no text, in an array": ("array(cast(X'FF' as string))", "array(cast(X'FE' as string))"),
    "empty and no binary": ("X''", "cast(null as binary)"),
    "binary": ("X'00'", "X'0000'"),
    "false and null": ("false", "cast(null as boolean)"),
    "zero and null": ("0", "cast(null as int)"),
    "NaN and null": ("double('NaN')", "cast(null as double)"),
    "infinities": ("double('inf')", "-double('inf')"),
    "neighbouring doubles": ("1.0D", "1.0000000000000002D"),
    "the smallest double": ("0.0D", "4.9E-324D"),
    "a microsecond": ("timestamp'2024-01-01 00:00:00.000001'", "timestamp'2024-01-01 00:00:00.000002'"),
    "a microsecond, no zone": (
        "timestamp_ntz'2024-01-01 00:00:00.000001'",
        "timestamp_ntz'2024-01-01 00:00:00.000002'",
    ),
    "a microsecond, in an array": (
        "array(timestamp'2024-01-01 00:00:00.000001')",
        "array(timestamp'2024-01-01 00:00:00.000002')",
    ),
    "a microsecond of a time": ("time'12:00:00.000001'", "time'12:00:00.000002'"),
    "the last digit": ("1234567890123456789012345678901234567.1BD", "1234567890123456789012345678901234567.2BD"),
    "an interval": ("interval '1' day", "interval '2' day"),
    "an interval of months": ("interval '1' month", "interval '12' month"),
    "no, one and a null item": ("cast(array() as array<int>)", "array(cast(null as int))"),
    "no array and an empty one": ("cast(null as array<int>)", "cast(array() as array<int>)"),
    "an empty text and no item": ("array('')", "cast(array() as array<string>)"),
    "an empty text and null": ("array('')", "array(cast(null as string))"),
    "the place of a null": ("array(1, null)", "array(null, 1)"),
    "the place of a null text": ("array('x', null)", "array(null, 'x')"),
    "texts with the marks in them": ("array('a,b')", "array('a', 'b')"),
    "texts with the other marks in them": ("array('a;b')", "array('a', 'b')"),
    "the order of items": ("array(1, 2)", "array(2, 1)"),
    "where inner arrays end": ("array(array(1, 2), array(3))", "array(array(1), array(2, 3))"),
    "where inner arrays of text end": ("array(array('1', '2'), array())", "array(array('1'), array('2'))"),
    "where fields that are arrays end": (
        "named_struct('a', array(1, 2), 'b', array(3))",
        "named_struct('a', array(1), 'b', array(2, 3))",
    ),
    "which field is null": (
        "named_struct('a', cast(null as string), 'b', 'x')",
        "named_struct('a', 'x', 'b', cast(null as string))",
    ),
    "where a text ends": ("named_struct('a', 'xy', 'b', 'z')", "named_struct('a', 'x', 'b', 'yz')"),
    "texts that look like sizes": ("named_struct('a', '1:', 'b', '')", "named_struct('a', '', 'b', '1:')"),
    "no struct and one of nulls": (
        "cast(null as struct<a: int, b: string>)",
        "named_struct('a', cast(null as int), 'b', cast(null as string))",
    ),
    "no struct and one of nulls, in an array": (
        "array(cast(null as struct<a: int>))",
        "array(named_struct('a', cast(null as int)))",
    ),
    "no map and an empty one": ("cast(null as map<string, int>)", "cast(map() as map<string, int>)"),
    "no entry and a null one": ("map('a', cast(null as int))", "cast(map() as map<string, int>)"),
    "whose value is null": ("map('a', null, 'b', 1)", "map('a', 1, 'b', null)"),
    "values exchanged": ("map('a', 1, 'b', 2)", "map('a', 2, 'b', 1)"),
    "variants exchanged": (
        "map('a', parse_json('1'), 'b', parse_json('2'))",
        "map('a', parse_json('2'), 'b', parse_json('1'))",
    ),
    "a number and a text in a variant": ("parse_json('1')", "parse_json('\"1\"')"),
    "a date and a text in a variant": ("cast(date'2024-01-01' as variant)", "cast('2024-01-01' as variant)"),
    "no variant and one of null": ("cast(null as variant)", "parse_json('null')"),
    "no key and a null in a variant": ("""parse_json('{"a": null}')""", "parse_json('{}')"),
    "an array of voids": ("array(null)", "array(null, null)"),
}


@pytest.fixture(scope="module")
def session(spark):
    own = clone_session(spark)
    own.conf.set("spark.sql.timeType.enabled", "true")
    return own


@pytest.fixture(scope="module")
def compiling(spark):
    """A session that compiles its queries, for millions of rows."""
    own = clone_session(spark)
    own.conf.set("spark.sql.codegen.wholeStage", "true")
    own.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return own


def texts(session, pairs):
    """The strict texts and quick hashes of the left and right value of every pair."""
    frame = session.range(1).selectExpr(
        *(f"{one} AS l{n}" for n, (one, _) in enumerate(pairs)),
        *(f"{other} AS r{n}" for n, (_, other) in enumerate(pairs)),
    )
    kinds = {field.name: field for field in frame.schema.fields}
    found = frame.select(
        *(make([kinds[f"{side}{n}"]]) for n in range(len(pairs)) for make in (exact, quick_hash) for side in "lr")
    ).first()
    return [(found[i], found[i + 1], found[i + 2], found[i + 3]) for i in range(0, len(found), 4)]


def exact(fields):
    return F.hex(row_text(fields))


def quick_hash(fields):
    return row_hashes(fields, salts=(1,))[0]


def test_what_is_equal_has_equal_texts(session):
    for name, (one, other, quick, quick_other) in zip(SAME, texts(session, list(SAME.values())), strict=True):
        assert (one, quick) == (other, quick_other), name


def test_what_is_not_equal_has_other_texts(session):
    for name, (one, other, quick, quick_other) in zip(OTHER, texts(session, list(OTHER.values())), strict=True):
        assert None not in (one, other), name
        assert one != other, name
        assert quick != quick_other, name


@pytest.mark.parametrize("make", [exact, quick_hash])
def test_every_value_of_every_type_has_a_text_of_its_own_however_it_is_spelled(session, make):
    sizes = {name: len(pool.values) for name, pool in pools().items()}
    tables = {f"{place}": [[place % size for size in sizes.values()]] * 8 for place in range(max(sizes.values()))}
    frame = values(session, random.Random(1), tables)
    kinds = {field.name: field for field in frame.schema.fields}
    found = frame.select(*(make([kinds[name]]).alias(name) for name in sizes)).distinct().collect()
    assert {name: len({row[name] for row in found}) for name in sizes} == sizes


def base_table(rng, widths):
    """A few rows with values in a few of the columns, null (0) in the others."""
    filled = set(rng.sample(range(len(widths)), 10))
    return [[rng.randrange(w) if c in filled else 0 for c, w in enumerate(widths)] for _ in range(rng.randint(2, 4))]


def tables_with_changes(seed, changes, permutations):
    """Small random tables; variants of them with one change each, and variants that are the same but for their order.

    A row is one number per column, the place of its value in that column's pool: what is equal is known from these.
    """
    rng, widths = random.Random(seed), [len(pool.values) for pool in pools().values()]
    bases = [base_table(rng, widths) for _ in range(60)]
    variants = []
    while len(variants) < changes:
        number = rng.randrange(len(bases))
        rows = [list(row) for row in bases[number]]
        row = rng.randrange(len(rows))
        match rng.choice(["cell"] * 6 + ["doubled", "dropped", "replaced", "moved"]):
            case "cell":
                filled = [column for column, cell in enumerate(rows[row]) if cell]
                column = rng.choice(filled) if rng.random() < 0.7 else rng.randrange(len(widths))
                rows[row][column] = rng.randrange(widths[column])
            case "doubled":
                rows.append(rows[row])
            case "dropped":
                del rows[row]
            case "replaced":
                rows[row] = rng.choice(rows)
            case "moved":
                column, other = rng.randrange(len(widths)), rng.randrange(len(rows))
                rows[row][column], rows[other][column] = rows[other][column], rows[row][column]
        if Counter(map(tuple, rows)) != Counter(map(tuple, bases[number])):
            variants.append((number, rows))
    variants += [
        (number, rng.sample(bases[number], len(bases[number])))
        for number in (rng.randrange(len(bases)) for _ in range(permutations))
    ]
    return rng, bases, variants


def values(session, rng, tables):
    """One frame of many tables: every cell spelled in one of two ways, the rows in any order and any partition."""
    rows = [(group, rng.random() < 0.5, row) for group, table in tables.items() for row in table]
    rng.shuffle(rows)
    group, respelled, cells = zip(*rows, strict=True)
    table = pa.table(
        {
            "group": pa.array(group),
            "respelled": pa.array(respelled),
            "cells": pa.array(cells, pa.list_(pa.int32())),
        }
    )
    return (
        session.createDataFrame(table)
        .repartition(rng.randint(2, 7))
        .selectExpr(
            "group",
            *(
                f"element_at(array({', '.join([*pool.spelled, *pool.respelled])}),"
                f" cells[{number}] + if(respelled, {len(pool.values)}, 0) + 1) AS {name}"
                for number, (name, pool) in enumerate(pools().items())
            ),
            f"{NULLS_ONLY} AS nothing",
        )
    )


MANY = pytest.param(False, 20_000, 5_000, marks=pytest.mark.long)


@pytest.mark.parametrize(("quick", "changes", "permutations"), [(False, 4_000, 1_000), (True, 4_000, 1_000), MANY])
def test_every_change_is_found_and_no_order_matters(session, quick, changes, permutations):
    rng, bases, variants = tables_with_changes(f"seed {quick}", changes, permutations)
    missed, mistaken = [], []
    for start in range(0, len(variants), 9_000):
        chunk = dict(enumerate(variants[start : start + 9_000], start))
        tables = {f"base {n}": base for n, base in enumerate(bases)} | {f"{n}": rows for n, (_, rows) in chunk.items()}
        frame = values(session, rng, tables)
        parts = fingerprint(frame, by=["group"], exclude=["group"], quick=quick).parts
        for n, (base, _) in chunk.items():
            same = parts[json.dumps({"group": f"{n}"}, separators=(",", ":"))] == parts[f'{{"group":"base {base}"}}']
            if same and n < changes:
                missed.append(n)
            if not same and n >= changes:
                mistaken.append(n)
    assert (missed, mistaken) == ([], [])


def orders(session):
    return session.range(1000).selectExpr(
        "id", "id % 4 AS shop", "date_add(date'2024-01-01', cast(id % 3 AS int)) AS day", "concat('n', id % 10) AS note"
    )


@pytest.mark.parametrize("quick", [False, True])
def test_parts_together_are_the_whole(spark, quick):
    whole = fingerprint(orders(spark), quick=quick)
    parted = fingerprint(orders(spark).repartition(3), by=["day", "shop"], quick=quick)
    assert parted == whole
    assert parted.text == whole.text
    assert parted.rows == 1000
    assert whole.parts == {}
    assert min(parted.parts) == '{"day":"2024-01-01","shop":0}'
    assert len(parted.parts) == 12
    assert sum(part.rows for part in parted.parts.values()) == 1000
    assert tuple(sum(part.sums[lane] for part in parted.parts.values()) for lane in (0, 1)) == whole.sums


def test_the_groups_that_differ_are_named(spark):
    left = fingerprint(orders(spark), by=["shop"])
    right = fingerprint(orders(spark).where("id != 7 AND shop != 2"), by=["shop"])
    assert left != right
    assert left.differing(right) == ['{"shop":2}', '{"shop":3}']
    assert left.differing(left) == []


def test_a_row_moved_to_another_group_changes_the_whole(spark):
    moved = orders(spark).withColumn("shop", F.expr("if(id = 7, 0, shop)"))
    one, other = fingerprint(orders(spark), by=["shop"]), fingerprint(moved, by=["shop"])
    assert one != other
    assert one.differing(other) == ['{"shop":0}', '{"shop":3}']


def test_more_groups_than_can_be_told_apart_are_counted_as_one(spark):
    many = fingerprint(spark.range(MAX_PARTS + 1), by=["id"])
    assert many.parts == {}
    assert many == fingerprint(spark.range(MAX_PARTS + 1))
    assert len(fingerprint(spark.range(MAX_PARTS), by=["id"]).parts) == MAX_PARTS


def test_groups_that_are_printed_alike_are_counted_together(spark):
    frame = spark.sql("SELECT cast(b AS string) AS b FROM VALUES (X'FF'), (X'FE'), (X'61') AS t (b)")
    parted = fingerprint(frame, by=["b"])
    assert parted == fingerprint(frame)
    assert sorted(part.rows for part in parted.parts.values()) == [1, 2]


def test_the_order_of_columns_does_not_matter_but_names_and_types_do(spark):
    frame = orders(spark)
    print_ = fingerprint(frame)
    assert fingerprint(frame.select("note", "day", "shop", "id")) == print_
    assert print_.schema == "`day` date, `id` bigint, `note` string, `shop` bigint"
    assert fingerprint(frame.withColumnRenamed("note", "Note")) != print_
    assert fingerprint(frame.withColumn("shop", F.col("shop").cast("int"))) != print_
    assert fingerprint(spark.sql("SELECT map(1, 'x') AS a")) != fingerprint(spark.sql("SELECT map('1', 'x') AS a"))
    assert fingerprint(spark.sql("SELECT 1.0 AS a")) != fingerprint(spark.sql("SELECT 1.00 AS a"))


def test_names_with_any_characters_are_kept_apart(spark):
    one = spark.sql("SELECT 1 AS `a``b`, 2 AS `c.d`, named_struct('x.y', 3, 'z`', 4) AS `e f`")
    assert fingerprint(one).rows == 1
    assert fingerprint(one, by=["c.d"]).parts.keys() == {'{"c.d":2}'}
    assert fingerprint(spark.sql("SELECT named_struct('a', 1, 'b int, c', 2) AS x")).schema != (
        fingerprint(spark.sql("SELECT named_struct('a int, b', 1, 'c', 2) AS x")).schema
    )


@pytest.mark.parametrize("quick", [False, True])
def test_neither_time_zone_nor_ansi_mode_of_the_session_matters(spark, tmp_path, quick):
    frame = spark.sql(
        "SELECT timestamp'2024-03-31 01:30:00.123456Z' AS at, timestamp_ntz'2024-03-31 02:30:00' AS local,"
        " array(timestamp'2024-03-31 01:30:00Z') AS times, map('a', timestamp'2024-03-31 01:30:00Z') AS named,"
        " cast(timestamp'2024-03-31 01:30:00Z' AS variant) AS any, cast(1e-12 AS decimal(30, 20)) AS tiny,"
        " cast(1e-12 AS decimal(18, 15)) AS small, 1e-12D AS double, cast(0 AS decimal(38, 6)) AS zero"
    )
    frame.write.format("delta").save(str(tmp_path / "t"))
    found = set()
    for zone, ansi in (("UTC", "true"), ("Asia/Kolkata", "true"), ("America/New_York", "false")):
        own = clone_session(spark)
        own.conf.set("spark.sql.session.timeZone", zone)
        own.conf.set("spark.sql.ansi.enabled", ansi)
        print_ = fingerprint(own.read.format("delta").load(str(tmp_path / "t")), by=["at", "local"], quick=quick)
        found.add((print_.text, *print_.parts))
    assert len(found) == 1


def test_a_fingerprint_stays_the_same_in_every_release(session):
    frame = session.sql(
        "SELECT 1 AS id, 'x' AS name, 1.5D AS amount, array(1, null) AS tags, map('k', date'2024-01-01') AS days"
    )
    assert fingerprint(frame).text == "once1:1:cecd1bec8b8354948c816ff15bee3768"
    assert fingerprint(frame, quick=True).text == "once1q:1:30fd30d5c2ac0dc31e3307393d624cd0"


def test_rows_are_counted_and_an_empty_table_has_a_fingerprint(spark):
    empty = fingerprint(orders(spark).where("false"))
    assert (empty.rows, empty.sums) == (0, (0, 0))
    assert fingerprint(orders(spark).where("false"), by=["shop"]) == empty
    assert empty != fingerprint(spark.range(0))
    once, twice = fingerprint(spark.range(1)), fingerprint(spark.range(1).unionAll(spark.range(1)))
    assert twice.sums == (2 * once.sums[0], 2 * once.sums[1])
    assert once != twice


@pytest.mark.parametrize("quick", [False, True])
def test_sums_of_many_equal_rows_do_not_overflow(compiling, quick):
    one = fingerprint(compiling.sql("SELECT 42 AS x"), quick=quick)
    many = fingerprint(compiling.range(3_000_000).selectExpr("42 AS x"), quick=quick)
    assert many.sums == (3_000_000 * one.sums[0], 3_000_000 * one.sums[1])
    assert max(many.sums) > 2**64


def test_excluded_columns_are_left_out_and_named(spark):
    frame = orders(spark)
    audited = [frame.withColumn("Loaded_At", F.lit(n)) for n in (1, 2)]
    one, other = (fingerprint(f, exclude=["loaded_at"]) for f in audited)
    assert one == other
    assert one.excluded == ("Loaded_At",)
    assert one.document()["excluded"] == ["Loaded_At"]
    assert one != fingerprint(frame)
    assert fingerprint(audited[0]) != fingerprint(audited[1])


def test_a_frame_without_columns_is_its_number_of_rows(spark):
    assert fingerprint(spark.range(3), exclude=["id"]) != fingerprint(spark.range(4), exclude=["id"])
    assert fingerprint(spark.range(3), exclude=["id"]).rows == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"exclude": ["shpo"]}, "exclude: there is no column 'shpo' (did you mean 'shop'?)"),
        ({"by": ["region"]}, "by: there is no column 'region'"),
        ({"exclude": "shop"}, "exclude='shop' is a string"),
    ],
)
def test_names_that_are_not_there_are_refused(spark, arguments, said):
    with pytest.raises(UsageError) as refused:
        fingerprint(orders(spark), **arguments)
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "x: its type is geometry(0)"),
        ("array(named_struct('deep', make_interval(1, 2)))", "x[].deep: its type is interval"),
        ("map(1, make_interval(1, 2))", "x.value: its type is interval"),
    ],
)
@pytest.mark.parametrize("quick", [False, True])
def test_types_of_which_none_can_be_taken_are_refused_by_name(spark, sql, where, quick):
    frame = spark.sql(f"SELECT 1 AS id, {sql} AS x")
    with pytest.raises(UsageError) as refused:
        fingerprint(frame, quick=quick)
    assert where in refused.value.message
    assert fingerprint(frame, exclude=["x"], quick=quick).rows == 1


def test_groups_need_a_plain_column_and_columns_a_name_of_their_own(spark):
    with pytest.raises(UsageError, match="cannot name a group"):
        fingerprint(spark.sql("SELECT array(1) AS a"), by=["a"])
    with pytest.raises(UsageError, match="two columns are named 'a'"):
        fingerprint(spark.sql("SELECT 1 AS a, 2 AS a"))


def test_a_strict_and_a_quick_one_are_never_compared(spark):
    strict, quick = fingerprint(spark.range(3)), fingerprint(spark.range(3), quick=True)
    assert strict.text.startswith("once1:3:")
    assert quick.text.startswith("once1q:3:")
    with pytest.raises(UsageError, match="cannot be compared"):
        assert strict != quick
    with pytest.raises(UsageError, match="cannot be compared"):
        strict.differing(quick)
    assert strict != "once1"


def test_the_document_is_json_and_says_all(spark):
    found = fingerprint(orders(spark), by=["shop"])
    document = json.loads(json.dumps(found.document()))
    assert document["fingerprint"] == found.text == str(found)
    assert [int(number, 16) for number in document["sums"]] == list(found.sums)
    assert document["parts"]['{"shop":1}']["rows"] == 250
    assert len({found, replace(found, parts={})}) == 1
    assert replace(found, rows=999) != found
    assert found.parts['{"shop":1}'] == RowSums(250, found.parts['{"shop":1}'].sums)


def test_a_table_by_path_version_and_partition(spark, tmp_path):
    path = str(tmp_path / "orders")
    orders(spark).write.format("delta").partitionBy("day").save(path)
    orders(spark).limit(1).write.format("delta").mode("append").save(path)
    now, before = fingerprint_table(spark, path), fingerprint_table(spark, path, version=0)
    assert before == fingerprint(orders(spark))
    assert now.rows == 1001
    assert len(before.differing(now)) == 1
    assert before.parts.keys() == {f'{{"day":"2024-01-0{n}"}}' for n in (1, 2, 3)}
    assert fingerprint_table(spark, path, exclude=["note"], quick=True).excluded == ("note",)


def test_delta_keeps_the_fingerprint_of_what_is_written(session, tmp_path):
    names = [n for n, pool in pools().items() if not any(word in pool.kind for word in UNKNOWN_TO_DELTA)]
    assert len(names) > 40
    rng = random.Random(7)
    tables = {"t": [[rng.randrange(len(pool.values)) for pool in pools().values()] for _ in range(30)]}
    frame = values(session, rng, tables).select(*names)
    frame.write.format("delta").save(str(tmp_path / "t"))
    assert fingerprint_table(session, str(tmp_path / "t")) == fingerprint(frame)
    assert fingerprint_table(session, str(tmp_path / "t"), quick=True) == fingerprint(frame, quick=True)


def test_text_of_a_declared_length_is_text(spark, tmp_path):
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (a CHAR(3), b VARCHAR(5)) USING delta")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES ('x', 'y')")
    found = fingerprint_table(spark, f"{tmp_path}/t")
    assert found == fingerprint(spark.sql("SELECT 'x  ' AS a, 'y' AS b"))


def test_differences_are_counted_as_often_as_rows_are_there(spark):
    left = spark.createDataFrame([(1, "a"), (1, "a"), (1, "a"), (2, "b"), (3, "c")], "id int, name string")
    right = spark.createDataFrame([(3, "C"), (2, "b"), (1, "a"), (4, None), (4, None)], "id int, name string")
    found = differences(left, right)
    assert (found.only_left, found.only_right) == (3, 3)
    assert [(e.row, e.left, e.right) for e in found.examples] == [
        ({"id": 1, "name": "a"}, 3, 1),
        ({"id": 3, "name": "c"}, 1, 0),
        ({"id": 3, "name": "C"}, 0, 1),
        ({"id": 4, "name": None}, 0, 2),
    ]
    assert found
    assert not differences(left, left.repartition(3))
    assert differences(right, left).examples == tuple(
        replace(e, left=e.right, right=e.left) for e in (*found.examples[2:], *found.examples[:2])
    )
    assert [e.row["id"] for e in differences(left, right, limit=1).examples] == [1, 3]


def test_differences_of_maps_and_variants_and_values_that_json_lacks(session):
    one = """SELECT 1 AS id, map('a', 1, 'b', 2) AS m, parse_json('{"a": 1, "b": [2.5]}') AS v"""
    same = """SELECT 1 AS id, map('b', 2, 'a', 1) AS m, parse_json('{"b": [2.50], "a": 1}') AS v"""
    assert not differences(session.sql(one), session.sql(same))
    other = session.sql(
        "SELECT 2 AS id, map('a', 1) AS m, parse_json('[1]') AS v UNION ALL SELECT 3, map('a', null), null"
    )
    found = differences(session.sql(one), other)
    assert (found.only_left, found.only_right) == (1, 2)
    assert json.loads(json.dumps(found.document()))["examples"][1]["row"] == {"id": 2, "m": {"a": 1}, "v": [1]}
    odd = session.createDataFrame(
        [(Decimal("12345678901234567890.123456789"), 1.5, float("nan"), bytearray(b"\x00"), date(2024, 1, 1))],
        "d decimal(38, 9), f double, n double, b binary, day date",
    ).withColumn("at", F.lit(datetime(2024, 1, 1)).cast("timestamp_ntz"))
    (example,) = differences(odd, odd.where("false")).examples
    assert example.row == {
        "d": "12345678901234567890.123456789",
        "f": 1.5,
        "n": "NaN",
        "b": "AA==",
        "day": "2024-01-01",
        "at": "2024-01-01T00:00:00.000000",
    }


def test_differences_of_columns_are_said_instead(spark):
    left = spark.sql("SELECT 1 AS id, 'a' AS name, 2 AS load, 1 AS same")
    right = spark.sql("SELECT 1L AS id, 'b' AS title, 1 AS same")
    found = differences(left, right, exclude=["load"])
    assert found.columns == (
        "id is int in left, bigint in right",
        "name (string) is only in left",
        "title (string) is only in right",
    )
    assert (found.only_left, found.examples, found.excluded) == (None, (), ("load",))
    assert found
