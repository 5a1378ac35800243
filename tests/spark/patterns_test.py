"""What is particular to each pattern, on real tables."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as F

import oncelake as once
from oncelake.errors import BadDeclaration, EmptyOverwrite, NotPartitioned, RowsOutsideSlice, WorkFailed, WrongColumns
from support.lakes import (
    DAYS,
    commits,
    expected_ids,
    ids,
    land,
    make_project,
    orders_of,
    settings_of,
)
from support.orders import open_orders, reopen_orders
from support.variants import VARIANTS


def project_of(tmp_path, spark, writes, function="return source", reads='once.table("bronze.orders")', driven=""):
    make_project(
        tmp_path,
        f"""
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline({driven} reads={reads}, writes={writes})
def orders(source):
    {function}
""",
    )
    return once.open(tmp_path, spark=spark)


def bronze(tmp_path, spark, rows="(1, DATE'2024-03-14', 'EU'), (2, DATE'2024-03-15', 'US')"):
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, day, region)")
    frame.write.format("delta").mode("append").save(str(tmp_path / "lake" / "bronze" / "orders"))


def only(report):
    assert len(report.works) == 1
    return report.works[0]


STRAY = [
    pytest.param(variant, existing, id=f"{variant.name}, {'existing' if existing else 'new'} table")
    for variant in VARIANTS.values()
    if variant.sets_slice
    for existing in (False, True)
]


@pytest.mark.parametrize(("variant", "existing"), STRAY)
def test_a_stray_row_is_refused_with_its_value_and_nothing_is_written(tmp_path, spark, variant, existing):
    project = open_orders(tmp_path, spark, variant)
    if existing:
        project.run("orders", date=DAYS[0])
    before = ids(tmp_path) if existing else []
    stray = {"id": 999, "amount": 1.0, "at": "2024-03-20T10:00:00Z"}
    land(tmp_path, DAYS[1], [*orders_of(DAYS[1]), stray])
    work = only(project.run("orders", date=DAYS[1]))
    assert (work.outcome, work.code) == ("failed", RowsOutsideSlice.code)
    assert "2024-03-20" in work.error
    assert "nothing of [2024-03-15, 2024-03-16) was written" in work.error
    assert ids(tmp_path) == before


def test_a_row_without_a_time_is_a_stray(tmp_path, spark):
    project = open_orders(tmp_path, spark, "replace_interval")
    land(tmp_path, DAYS[0], [{"id": 1, "amount": 1.0, "at": None}])
    assert only(project.run("orders", date=DAYS[0])).code == RowsOutsideSlice.code


def test_a_reload_without_rows_is_refused_unless_allowed(tmp_path, spark):
    project = open_orders(tmp_path, spark, "overwrite")
    project.run("orders", date=DAYS[0])
    land(tmp_path, DAYS[1], [])
    work = only(project.run("orders", date=DAYS[1]))
    assert (work.outcome, work.code) == ("failed", EmptyOverwrite.code)
    assert ids(tmp_path) == expected_ids("append", DAYS[:1])

    allowed = reopen_orders(tmp_path, spark, replace(VARIANTS["overwrite"], options={"allow_empty": True}))
    assert only(allowed.run("orders", date=DAYS[1])).outcome == "committed"
    assert ids(tmp_path) == []


def test_an_older_reload_never_replaces_a_newer_one(tmp_path, spark):
    project = open_orders(tmp_path, spark, "overwrite")
    project.run("orders", date=DAYS[2])
    assert only(project.run("orders", date=DAYS[0])).outcome == "already_done"
    assert ids(tmp_path) == expected_ids("append", DAYS[2:])


def test_a_pipeline_without_intervals_runs_again_only_when_its_inputs_changed(tmp_path, spark):
    bronze(tmp_path, spark)
    project = project_of(tmp_path, spark, 'once.overwrite("silver.orders")')
    assert (only(project.run()).outcome, only(project.run()).outcome) == ("committed", "already_done")
    bronze(tmp_path, spark, "(3, DATE'2024-03-16', 'EU')")
    again = only(project.run())
    assert (again.outcome, again.work.generation) == ("committed", 2)
    assert ids(tmp_path) == [1, 2, 3]


def test_replace_partitions_replaces_the_partitions_the_result_has_rows_for(tmp_path, spark):
    bronze(tmp_path, spark)
    pattern = 'once.replace_partitions("silver.orders", by=["region"])'
    project = project_of(tmp_path, spark, pattern)
    project.run()
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/bronze/orders`")
    bronze(tmp_path, spark, "(7, DATE'2024-03-16', 'EU'), (8, DATE'2024-03-16', NULL)")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == [2, 7, 8]
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/bronze/orders`")
    assert only(project.run()).rows.written == 0
    assert ids(tmp_path) == [2, 7, 8]


def test_replace_partitions_clears_declared_partitions_that_became_empty(tmp_path, spark):
    bronze(tmp_path, spark)
    pattern = 'once.replace_partitions("silver.orders", by="region", values=["EU", "US"])'
    project = project_of(tmp_path, spark, pattern)
    project.run()
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/bronze/orders` WHERE region = 'US'")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == [1]
    bronze(tmp_path, spark, "(9, DATE'2024-03-16', 'ASIA')")
    work = only(project.run())
    assert (work.code, "ASIA" in work.error) == (RowsOutsideSlice.code, True)
    assert ids(tmp_path) == [1]


def test_replace_partitions_refuses_a_table_that_is_not_partitioned_so(tmp_path, spark):
    bronze(tmp_path, spark)
    spark.read.format("delta").load(str(tmp_path / "lake/bronze/orders")).write.format("delta").save(
        str(tmp_path / "lake/silver/orders")
    )
    project = project_of(tmp_path, spark, 'once.replace_partitions("silver.orders", by="region")')
    assert only(project.run()).code == NotPartitioned.code
    assert ids(tmp_path) == [1, 2]


NASTY = [
    "O'Neil",
    'say "hi"',
    "`tick`",
    "'; DROP TABLE x; --",
    "../../etc",
    "ünïcode 雪",
    "' OR 1=1 --",
    "back\\slash",
    "%41",
]


def test_partition_values_that_look_like_sql_touch_only_their_own_partition(tmp_path, spark):
    frame = spark.createDataFrame([(i, value) for i, value in enumerate(NASTY)], "id long, region string")
    frame.withColumn("day", F.lit("2024-03-14").cast("date")).write.format("delta").save(
        str(tmp_path / "lake/bronze/orders")
    )
    project = project_of(tmp_path, spark, 'once.replace_partitions("silver.orders", by="region")')
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == list(range(len(NASTY)))
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/bronze/orders` WHERE id <> 6")
    spark.sql(f"UPDATE delta.`{tmp_path}/lake/bronze/orders` SET id = 600")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == sorted([*(i for i in range(len(NASTY)) if i != 6), 600])
    assert not (tmp_path / "etc").exists()


def test_a_share_keeps_to_its_own_rows(tmp_path, spark):
    bronze(tmp_path, spark, "(1, DATE'2024-03-14', 'EU'), (2, DATE'2024-03-14', 'US')")
    make_project(
        tmp_path,
        "import oncelake as once\n"
        + "".join(
            f"""
@once.pipeline(every="day", start="2024-03-14", reads=once.table("bronze.orders", time="day"),
               writes=once.replace_interval("silver.orders", time="day", within={{"region": {region!r}}}))
def {region.lower()}(source):
    return source.where("region = {region!r}")
"""
            for region in ("EU", "US")
        ),
    )
    project = once.open(tmp_path, spark=spark)
    assert project.run(date="2024-03-14").outcome == "done"
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("layout", "action"),
    [({"partition_by": "day"}, '"partitionColumns":["day"]'), ({"cluster_by": ["day"]}, "clusteringColumns")],
    ids=["partitioned", "clustered"],
)
def test_a_table_is_created_as_declared(tmp_path, spark, layout, action):
    open_orders(tmp_path, spark, replace(VARIANTS["append"], options=layout)).run("orders", date=DAYS[0])
    log = tmp_path / "lake/silver/orders/_delta_log"
    assert any(action in file.read_text() for file in log.glob("*.json"))
    assert ids(tmp_path) == expected_ids("append", DAYS[:1])


def test_several_targets_are_written_from_the_same_pins(tmp_path, spark, monkeypatch):
    bronze(tmp_path, spark)
    function = 'return {"silver.a": source, "silver.b": source}'
    writes, reads = '[once.append("silver.a"), once.append("silver.b")]', 'once.table("bronze.orders", time="day")'
    project = project_of(tmp_path, spark, writes, function, reads, 'every="day", start="2024-03-14",')
    from oncelake.patterns.append import Append

    real = Append.write

    def fails_for_b(self, frame, writing):
        if self.target == "silver.b":
            raise RuntimeError("no b today")
        real(self, frame, writing)

    monkeypatch.setattr(Append, "write", fails_for_b)
    assert [w.outcome for w in project.run(date="2024-03-14").works] == ["committed", "failed"]
    monkeypatch.undo()
    bronze(tmp_path, spark, "(3, DATE'2024-03-14', 'EU')")
    # The run finishes what was begun, from the version the first target was written from.
    assert [w.outcome for w in project.run(date="2024-03-14").works] == ["already_done", "committed"]
    assert (ids(tmp_path, "silver.a"), ids(tmp_path, "silver.b")) == ([1], [1])


@pytest.mark.parametrize("columns", ['source.drop("region")', 'source.withColumn("new", F.lit(1))'])
def test_other_columns_than_the_table_has_are_refused(tmp_path, spark, columns):
    bronze(tmp_path, spark)
    project_of(tmp_path, spark, 'once.overwrite("silver.orders")').run()
    bronze(tmp_path, spark, "(3, DATE'2024-03-16', 'EU')")
    work = only(project_of(tmp_path, spark, 'once.overwrite("silver.orders")', f"return {columns}").run())
    assert work.code == WrongColumns.code
    assert ids(tmp_path) == [1, 2]


def test_another_type_than_the_table_has_is_refused(tmp_path, spark):
    bronze(tmp_path, spark)
    project_of(tmp_path, spark, 'once.overwrite("silver.orders")').run()
    bronze(tmp_path, spark, "(3, DATE'2024-03-16', 'EU')")
    function = 'return source.withColumn("id", F.lit("x"))'
    work = only(project_of(tmp_path, spark, 'once.overwrite("silver.orders")', function).run())
    assert work.outcome == "failed"
    assert ids(tmp_path) == [1, 2]


class TestWrite:
    def test_the_same_work_is_written_once(self, tmp_path, spark):
        frame = spark.range(3)
        lake = str(tmp_path / "lake")
        outcomes = [
            once.write(frame, once.append("silver.orders"), work="nightly/2024-03-15", lake=lake).outcome
            for _ in range(2)
        ]
        once.write(frame, once.append("silver.orders"), work="nightly/2024-03-16", lake=lake)
        assert outcomes == ["committed", "already_done"]
        assert ids(tmp_path) == [0, 0, 1, 1, 2, 2]
        assert commits(tmp_path) == 2

    def test_the_next_generation_is_written_again(self, tmp_path, spark):
        lake = str(tmp_path / "lake")
        for generation in (1, 2):
            once.write(spark.range(generation), once.overwrite("t"), work="job/x", lake=lake, generation=generation)
        assert ids(tmp_path, "t") == [0, 1]

    def test_an_interval_can_be_replaced(self, tmp_path, spark):
        lake = str(tmp_path / "lake")
        frame = spark.sql("SELECT 1 AS id, DATE'2024-03-15' AS day")
        pattern = once.replace_interval("silver.orders", time="day")
        done = once.write(frame, pattern, work="job", lake=lake, interval=("2024-03-15", "2024-03-16"))
        assert (done.outcome, done.rows.written) == ("committed", 1)
        with pytest.raises(RowsOutsideSlice):
            once.write(frame, pattern, work="job", lake=lake, interval=("2024-03-16", "2024-03-17"))

    def test_two_names_are_two_works_also_for_one_interval(self, tmp_path, spark):
        span, lake = ("2024-03-15", "2024-03-16"), str(tmp_path / "lake")
        for region in ("EU", "US"):
            pattern = once.replace_interval("silver.orders", time="day", within={"region": region})
            frame = spark.sql(f"SELECT {len(region)} AS id, DATE'2024-03-15' AS day, '{region}' AS region")
            assert once.write(frame, pattern, work=f"job/{region}", lake=lake, interval=span).outcome == "committed"
        assert ids(tmp_path) == [2, 2]

    @pytest.mark.parametrize("bad", [{"work": ""}, {"work": "x", "interval": ("2024-03-16", "2024-03-15")}])
    def test_what_cannot_be_meant_is_refused(self, tmp_path, spark, bad):
        with pytest.raises(BadDeclaration):
            once.write(spark.range(1), once.append("t"), lake=str(tmp_path), **bad)

    def test_the_users_session_is_left_as_it_was(self, tmp_path, spark):
        before = settings_of(spark, tmp_path)
        once.write(spark.range(1), once.append("t"), work="job/1", lake=str(tmp_path / "lake"))
        assert settings_of(spark, tmp_path) == before


def test_errors_of_works_are_one_family():
    assert all(
        issubclass(error, WorkFailed) for error in (RowsOutsideSlice, EmptyOverwrite, NotPartitioned, WrongColumns)
    )
