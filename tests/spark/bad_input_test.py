"""Bad input: each case a clear error, exit 1 or 2, and nothing half written."""

import json

import pytest

import oncelake as once
from support.lakes import DAYS, ids, land, make_project, orders_project

HEAD = "import oncelake as once\nfrom pyspark.sql import functions as F\n"
DAILY = 'every="day", start="2024-03-14", '


def pipeline(body="return source", reads='once.table("bronze.orders", time="day")', writes=None, driven=DAILY):
    writes = writes or 'once.replace_interval("silver.orders", time="day")'
    return f"{HEAD}\n@once.pipeline({driven}reads={reads}, writes={writes})\ndef orders(source):\n    {body}\n"


def bronze(tmp_path, spark, select="1 AS id, DATE'2024-03-14' AS day"):
    spark.sql(f"SELECT {select}").write.format("delta").save(str(tmp_path / "lake/bronze/orders"))


def failed(tmp_path, spark, text, day="2024-03-14"):
    project = once.open(make_project(tmp_path, text), spark=spark)
    report = project.run("orders", date=day)
    assert (report.outcome, report.exit_code) == ("failed", 1)
    assert not (tmp_path / "lake/silver/orders/_delta_log/00000000000000000001.json").exists()
    return report.works[0]


def test_an_unknown_table(tmp_path, spark):
    work = failed(tmp_path, spark, pipeline())
    assert (work.code, "bronze.orders" in work.error) == ("table_missing", True)


def test_a_table_that_is_not_delta(tmp_path, spark):
    folder = tmp_path / "lake/bronze/orders"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"PAR1")
    assert failed(tmp_path, spark, pipeline()).code == "not_delta"


def test_a_target_that_is_not_delta_is_left_alone(tmp_path, spark):
    bronze(tmp_path, spark)
    folder = tmp_path / "lake/silver/orders"
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("a\n1\n")
    with pytest.raises(once.OncelakeError) as error:
        once.open(make_project(tmp_path, pipeline()), spark=spark).run("orders", date="2024-03-14")
    assert error.value.code == "not_delta"
    assert [file.name for file in folder.iterdir()] == ["data.csv"]


def test_a_corrupt_log_entry(tmp_path, spark):
    for _ in range(2):
        spark.sql("SELECT 1 AS id, DATE'2024-03-14' AS day").write.format("delta").mode("append").save(
            str(tmp_path / "lake/bronze/orders")
        )
    entry = tmp_path / "lake/bronze/orders/_delta_log/00000000000000000001.json"
    entry.write_text('{"commitInfo": {"timest\n')
    work = failed(tmp_path, spark, pipeline())
    assert (work.code, entry.name in work.error) == ("corrupt_log", True)


@pytest.mark.parametrize(
    "text",
    [
        pipeline(reads='once.table("bronze.orders", time="dya")'),
        pipeline(writes='once.replace_interval("silver.orders", time="dya")'),
        pipeline(writes='once.replace_partitions("silver.orders", by="dya")'),
    ],
    ids=["source", "replace_interval", "replace_partitions"],
)
def test_a_missing_column(tmp_path, spark, text):
    bronze(tmp_path, spark)
    work = failed(tmp_path, spark, text)
    assert (work.code, "did you mean 'day'" in work.error) == ("column_missing", True)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("'2024-03-14' AS day", pipeline()),
        ("20240314 AS day", pipeline()),
        ("DATE'2024-03-14' AS day", pipeline(driven='every="hour", start="2024-03-14", ')),
        ("DATE'2024-03-14' AS day", pipeline(body='return source.withColumn("day", F.lit("x"))')),
        ("DATE'2024-03-14' AS day", pipeline(writes='once.replace_partitions("silver.orders", by="id")')),
    ],
    ids=["text", "number", "a date for hours", "the function's result", "partitions without time"],
)
def test_a_wrong_time_type(tmp_path, spark, column, text):
    bronze(tmp_path, spark, f"1 AS id, {column}")
    assert (
        failed(tmp_path, spark, text, "2024-03-14T05:00" if "hour" in text else "2024-03-14").code == "wrong_time_type"
    )


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "empty"])
def test_files_that_have_not_arrived(tmp_path, spark, absent):
    project = once.open(orders_project(tmp_path, "append"), spark=spark)
    (tmp_path / "landing" / DAYS[1] / "orders.json").unlink()
    if absent:
        (tmp_path / "landing" / DAYS[1]).rmdir()
    report = project.run("orders", start=DAYS[0], end="2024-03-17")
    assert [w.outcome for w in report.works] == ["committed", "failed", "committed"]
    assert report.works[1].code == "source_missing"
    assert report.exit_code == 1


def test_missing_files_without_a_schema_take_their_columns_from_other_days(tmp_path, spark):
    reads = 'once.files("landing/{start:%Y-%m-%d}/*.json", missing="empty")'
    text = pipeline('return source.selectExpr("id", "DATE(at) AS day")', reads)
    project = once.open(make_project(tmp_path, text), spark=spark)
    land(tmp_path, DAYS[1], [{"id": 1, "at": DAYS[1]}])
    report = project.run("orders", start=DAYS[0], end=DAYS[2])
    assert [(w.outcome, w.rows.written) for w in report.works] == [("committed", 1)]


def test_a_line_that_does_not_parse_is_not_loaded_as_nulls(tmp_path, spark):
    project = once.open(orders_project(tmp_path, "append"), spark=spark)
    (tmp_path / "landing" / DAYS[0] / "orders.json").write_text('{"id": 1}\n{"id": \n')
    assert project.run("orders", date=DAYS[0]).outcome == "failed"
    assert ids(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return None", "wrong_return_type"),
        ("return [1]", "wrong_return_type"),
        ('return {"other": source}', "wrong_return_type"),
        ("return source.nothing", "function_failed"),
        ("return 1 / 0", "function_failed"),
        ('return source.where("no_such_column > 1")', "function_failed"),
    ],
)
def test_a_function_that_returns_no_frame_or_raises(tmp_path, spark, body, code):
    bronze(tmp_path, spark)
    work = failed(tmp_path, spark, pipeline(body))
    assert (work.code, "pipelines.py:" in work.error) == (code, True)


def test_a_function_that_fails_while_spark_runs_it(tmp_path, spark):
    bronze(tmp_path, spark)
    body = 'return source.withColumn("id", F.udf(lambda v: 1 // 0, "int")("id"))'
    work = failed(tmp_path, spark, pipeline(body))
    assert (work.code, "ZeroDivisionError" in work.error) == ("write_failed", True), work.error


@pytest.mark.parametrize(
    "settings",
    ["lake: [1]\n", "lake: lake\nlkae: x\n", "lake: 'x\n", "pipelines: nowhere\n", "lake: a\nlake: b\n", "- 1\n"],
)
def test_an_oncelake_yaml_that_cannot_be_used(tmp_path, settings):
    make_project(tmp_path, pipeline(), settings)
    with pytest.raises(once.OncelakeError) as error:
        once.open(tmp_path)
    assert (error.value.code, error.value.exit_code) == ("bad_settings", 2)


@pytest.mark.parametrize("name", ["../outside", "a/b", "/etc/x", "a..b", "_oncelake.x", "x\ny", "", "s3://x/y"])
def test_table_names_stay_in_the_lake(name):
    for declare in (once.table, once.append, once.overwrite):
        with pytest.raises(once.OncelakeError) as error:
            declare(name)
        assert error.value.exit_code == 2


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
    (root / "oncelake.yaml").write_text('lake: lake\nspark: {spark.hadoop.fs.s3a.secret.key: "hunter2-secret"}\n')
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
    }
