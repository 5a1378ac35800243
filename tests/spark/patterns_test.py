"""What is particular to each pattern, on real tables."""

import shutil
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once
from oncelake.errors import BadDeclaration, EmptyOverwrite, NotPartitioned, RowsOutsideSlice, WorkFailed, WrongColumns
from support.lakes import (
    DAYS,
    commits,
    expected_ids,
    ids,
    land,
    orders_of,
    settings_of,
    write_table,
)
from support.orders import open_orders, reopen_orders
from support.variants import VARIANTS

REGIONS = once.replace_partitions("silver.orders", by="region")
RELOAD = once.overwrite("silver.orders")


def opened(root, spark, writes, function=lambda source: source, reads=once.table("bronze.orders"), **driven):  # noqa: B008
    pipeline = once.pipeline(name="orders", reads=reads, writes=writes, **driven)(function)
    return once.Project.of(pipeline, lake=root / "lake", root=root, spark=spark)


def bronze(root, *rows, mode="append"):
    """Add rows of an id, a day of March and a region to the source; by default one of each region."""
    rows = rows or ((1, 14, "EU"), (2, 15, "US"))
    ids, days, regions = zip(*rows, strict=True)
    days = [date(2024, 3, day) for day in days]
    columns = {"id": pa.array(ids, pa.int64()), "day": days, "region": pa.array(regions, pa.string())}
    write_table(root, "bronze.orders", columns, mode)


def delete(root, rows=None):
    DeltaTable(str(root / "lake/bronze/orders")).delete(rows)


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
    bronze(tmp_path)
    project = opened(tmp_path, spark, RELOAD)
    assert (only(project.run()).outcome, only(project.run()).outcome) == ("committed", "already_done")
    bronze(tmp_path, (3, 16, "EU"))
    again = only(project.run())
    assert (again.outcome, again.work.generation) == ("committed", 2)
    assert ids(tmp_path) == [1, 2, 3]


def test_replace_partitions_replaces_the_partitions_the_result_has_rows_for(tmp_path, spark):
    bronze(tmp_path)
    project = opened(tmp_path, spark, REGIONS)
    project.run()
    bronze(tmp_path, (7, 16, "EU"), (8, 16, None), mode="overwrite")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == [2, 7, 8]
    delete(tmp_path)
    assert only(project.run()).rows.written == 0
    assert ids(tmp_path) == [2, 7, 8]


def test_replace_partitions_clears_declared_partitions_that_became_empty(tmp_path, spark):
    bronze(tmp_path)
    pattern = once.replace_partitions("silver.orders", by="region", values=["EU", "US"])
    project = opened(tmp_path, spark, pattern)
    project.run()
    delete(tmp_path, "region = 'US'")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == [1]
    bronze(tmp_path, (9, 16, "ASIA"))
    work = only(project.run())
    assert (work.code, "ASIA" in work.error) == (RowsOutsideSlice.code, True)
    assert ids(tmp_path) == [1]


def test_replace_partitions_refuses_a_table_that_is_not_partitioned_so(tmp_path, spark):
    bronze(tmp_path)
    shutil.copytree(tmp_path / "lake/bronze/orders", tmp_path / "lake/silver/orders")
    project = opened(tmp_path, spark, REGIONS)
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
    bronze(tmp_path, *((number, 14, value) for number, value in enumerate(NASTY)))
    project = opened(tmp_path, spark, REGIONS)
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == list(range(len(NASTY)))
    bronze(tmp_path, (600, 14, NASTY[6]), mode="overwrite")
    assert only(project.run()).outcome == "committed"
    assert ids(tmp_path) == sorted([*(i for i in range(len(NASTY)) if i != 6), 600])
    assert not (tmp_path / "etc").exists()


def test_pipelines_within_a_region_keep_to_their_own_rows(tmp_path, spark):
    bronze(tmp_path, (1, 14, "EU"), (2, 14, "US"))
    reads = once.table("bronze.orders", time="day")

    def within(region):
        pattern = once.replace_interval("silver.orders", time="day", within={"region": region})
        declared = once.pipeline(name=region, every="day", start="2024-03-14", reads=reads, writes=pattern)
        return declared(lambda source: source.where(F.col("region") == region))

    project = once.Project.of(within("EU"), within("US"), lake=tmp_path / "lake", spark=spark)
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
    bronze(tmp_path)
    writes, reads = [once.append("silver.a"), once.append("silver.b")], once.table("bronze.orders", time="day")
    both = lambda source: {"silver.a": source, "silver.b": source}  # noqa: E731
    project = opened(tmp_path, spark, writes, both, reads, every="day", start="2024-03-14")
    from oncelake.patterns.append import Append

    real = Append.write

    def fails_for_b(self, frame, writing):
        if self.target == "silver.b":
            raise RuntimeError("no b today")
        real(self, frame, writing)

    monkeypatch.setattr(Append, "write", fails_for_b)
    assert [w.outcome for w in project.run(date="2024-03-14").works] == ["committed", "failed"]
    monkeypatch.undo()
    bronze(tmp_path, (3, 14, "EU"))
    # The run finishes what was begun, from the version the first target was written from.
    assert [w.outcome for w in project.run(date="2024-03-14").works] == ["already_done", "committed"]
    assert (ids(tmp_path, "silver.a"), ids(tmp_path, "silver.b")) == ([1], [1])


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda source: source.drop("region"), WrongColumns.code),
        (lambda source: source.withColumn("new", F.lit(1)), WrongColumns.code),
        (lambda source: source.withColumn("id", F.lit("x")), None),
    ],
    ids=["a column less", "a column more", "another type"],
)
def test_other_columns_or_types_than_the_table_has_are_refused(tmp_path, spark, function, code):
    bronze(tmp_path)
    opened(tmp_path, spark, RELOAD).run()
    bronze(tmp_path, (3, 16, "EU"))
    work = only(opened(tmp_path, spark, RELOAD, function).run())
    assert work.outcome == "failed"
    assert code is None or work.code == code
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
