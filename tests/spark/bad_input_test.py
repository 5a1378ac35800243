"""Bad input: each case a clear error, exit 1 or 2, and nothing half written."""

import json
from datetime import date

import pytest
from pyspark.sql import functions as F

import oncelake as once
from support.lakes import DAYS, land, orders_project, write_table
from support.orders import FILES, open_orders

BRONZE = once.table("bronze.orders", time="day")
REPLACE = once.replace_interval("silver.orders", time="day")


def declared(function=lambda source: source, reads=BRONZE, writes=REPLACE, every="day"):
    return once.pipeline(name="orders", every=every, start="2024-03-14", reads=reads, writes=writes)(function)


def bronze(root, day=date(2024, 3, 14)):
    write_table(root, "bronze.orders", {"id": [1], "day": [day]})


def opened(root, spark, pipeline):
    return once.Project.of(pipeline, lake=root / "lake", root=root, spark=spark)


def failed(root, spark, pipeline, day="2024-03-14"):
    report = opened(root, spark, pipeline).run("orders", date=day)
    assert (report.outcome, report.exit_code) == ("failed", 1)
    assert not (root / "lake/silver/orders/_delta_log/00000000000000000001.json").exists()
    return report.works[0]


def test_an_unknown_table(tmp_path, spark):
    work = failed(tmp_path, spark, declared())
    assert (work.code, "bronze.orders" in work.error) == ("table_missing", True)


def test_a_table_that_is_not_delta(tmp_path, spark):
    folder = tmp_path / "lake/bronze/orders"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"PAR1")
    assert failed(tmp_path, spark, declared()).code == "not_delta"


def test_a_target_that_is_not_delta_is_left_alone(tmp_path, spark):
    bronze(tmp_path)
    folder = tmp_path / "lake/silver/orders"
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("a\n1\n")
    with pytest.raises(once.OncelakeError) as error:
        opened(tmp_path, spark, declared()).run("orders", date="2024-03-14")
    assert error.value.code == "not_delta"
    assert [file.name for file in folder.iterdir()] == ["data.csv"]


def test_a_corrupt_log_entry(tmp_path, spark):
    for _ in range(2):
        bronze(tmp_path)
    entry = tmp_path / "lake/bronze/orders/_delta_log/00000000000000000001.json"
    entry.write_text('{"commitInfo": {"timest\n')
    work = failed(tmp_path, spark, declared())
    assert (work.code, entry.name in work.error) == ("corrupt_log", True)


@pytest.mark.parametrize(
    "pipeline",
    [
        declared(reads=once.table("bronze.orders", time="dya")),
        declared(writes=once.replace_interval("silver.orders", time="dya")),
        declared(writes=once.replace_partitions("silver.orders", by="dya")),
    ],
    ids=["source", "replace_interval", "replace_partitions"],
)
def test_a_missing_column(tmp_path, spark, pipeline):
    bronze(tmp_path)
    work = failed(tmp_path, spark, pipeline)
    assert (work.code, "did you mean 'day'" in work.error) == ("column_missing", True)


@pytest.mark.parametrize(
    ("value", "pipeline", "day"),
    [
        ("2024-03-14", declared(), DAYS[0]),
        (20240314, declared(), DAYS[0]),
        (date(2024, 3, 14), declared(every="hour"), "2024-03-14T05:00"),
        (date(2024, 3, 14), declared(lambda source: source.withColumn("day", F.lit("x"))), DAYS[0]),
        (date(2024, 3, 14), declared(writes=once.replace_partitions("silver.orders", by="id")), DAYS[0]),
    ],
    ids=["text", "number", "a date for hours", "the function's result", "partitions without time"],
)
def test_a_wrong_time_type(tmp_path, spark, value, pipeline, day):
    bronze(tmp_path, value)
    assert failed(tmp_path, spark, pipeline, day).code == "wrong_time_type"


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "empty"])
def test_files_that_have_not_arrived(tmp_path, spark, absent):
    project = open_orders(tmp_path, spark, "append")
    (tmp_path / "landing" / DAYS[1] / "orders.json").unlink()
    if absent:
        (tmp_path / "landing" / DAYS[1]).rmdir()
    report = project.run("orders", start=DAYS[0], end="2024-03-17")
    assert [w.outcome for w in report.works] == ["committed", "failed", "committed"]
    assert report.works[1].code == "source_missing"
    assert report.exit_code == 1


def test_missing_files_without_a_schema_take_their_columns_from_other_days(tmp_path, spark):
    pipeline = declared(lambda source: source.selectExpr("id", "DATE(at) AS day"), once.files(FILES, missing="empty"))
    land(tmp_path, DAYS[1], [{"id": 1, "at": DAYS[1]}])
    report = opened(tmp_path, spark, pipeline).run("orders", start=DAYS[0], end=DAYS[2])
    assert [(w.outcome, w.rows.written) for w in report.works] == [("committed", 1)]


def test_a_line_that_does_not_parse_is_not_loaded_as_nulls(tmp_path, spark):
    project = open_orders(tmp_path, spark, "append")
    (tmp_path / "landing" / DAYS[0] / "orders.json").write_text('{"id": 1}\n{"id": \n')
    assert project.run("orders", date=DAYS[0]).outcome == "failed"
    assert not (tmp_path / "lake" / "silver").exists()


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda source: None, "wrong_return_type"),
        (lambda source: [1], "wrong_return_type"),
        (lambda source: {"other": source}, "wrong_return_type"),
        (lambda source: source.nothing, "function_failed"),
        (lambda source: 1 / 0, "function_failed"),
        (lambda source: source.where("no_such_column > 1"), "function_failed"),
    ],
    ids=["nothing", "a list", "another target", "no such attribute", "raises", "no such column"],
)
def test_a_function_that_returns_no_frame_or_raises(tmp_path, spark, function, code):
    bronze(tmp_path)
    work = failed(tmp_path, spark, declared(function))
    assert (work.code, "bad_input_test.py:" in work.error) == (code, True)


def test_a_function_that_fails_while_spark_runs_it(tmp_path, spark):
    bronze(tmp_path)
    function = lambda source: source.withColumn("id", F.udf(lambda v: 1 // 0, "int")("id"))  # noqa: E731
    work = failed(tmp_path, spark, declared(function))
    assert (work.code, "ZeroDivisionError" in work.error) == ("write_failed", True), work.error


@pytest.mark.parametrize("name", ["we`ird.o'r\"d;e--rs", "ünï.雪 table", "a b.c"])
def test_odd_table_and_column_names_work(tmp_path, spark, name):
    lake = str(tmp_path / "la'ke `x` 100")
    frame = spark.sql("SELECT 1 AS id, DATE'2024-03-15' AS `d'a``y--`")
    pattern = once.replace_interval(name, time="d'a`y--", cluster_by="id")
    span = ("2024-03-15", "2024-03-16")
    outcomes = [once.write(frame, pattern, work="a/b'; --`", lake=lake, interval=span).outcome for _ in range(2)]
    assert outcomes == ["committed", "already_done"]
    assert {path.name for path in tmp_path.iterdir()} == {"la'ke `x` 100"}


def test_nothing_secret_is_in_the_commit(tmp_path, spark):
    root = orders_project(tmp_path, "append")
    (root / "oncelake.yaml").write_text('lake: lake\nspark: {spark.my.listener.password: "hunter2-secret"}\n')
    once.open(root, spark=spark).run("orders", date=DAYS[0])
    found = [file for file in (tmp_path / "lake").rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]
    assert found == []
    facts = json.loads(
        (tmp_path / "lake/silver/orders/_delta_log/00000000000000000001.json").read_text().splitlines()[0]
    )
    assert set(json.loads(facts["commitInfo"]["userMetadata"])["oncelake"]) == {
        "pipeline",
        "pattern",
        "invocation",
        "target",
        "slice",
        "generation",
        "run",
        "attempt",
        "pins",
        "code",
        "siblings",
        "as_of",
    }
