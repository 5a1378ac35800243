"""The session's catalog: targets are registered by name, tables of the catalog are read by their path, pinned."""

import uuid

import pytest

import oncelake as once
from oncelake.delta.catalog import locate
from oncelake.errors import BadDeclaration, BadSettings, NotInCatalog, SourceUnreadable
from oncelake.testing import RecordingListener
from support.lakes import DAYS, ids, land_days, make_project

PIPELINES = """
import oncelake as once
from pyspark.sql import functions as F


@once.pipeline(
    every="day", start="2024-03-14",
    reads=once.files("landing/{{start:%Y-%m-%d}}/*.json", schema="id long, amount double, at string"),
    writes=once.append("{schema}.orders"),
)
def orders(files):
    return files.withColumn("at", F.to_timestamp("at"))
"""
_JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
READER = """
import oncelake as once


@once.pipeline(reads=once.table("catalog.{schema}.orders"), writes=once.overwrite("gold.copy"))
def copy(orders):
    return orders
"""


@pytest.fixture
def schema(spark):
    """A name that no other test has used in the session's catalog."""
    name = f"s{uuid.uuid4().hex[:8]}"
    yield name
    spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def orders(root, schema, register):
    make_project(root, PIPELINES.format(schema=schema), f"lake: lake\npipelines: pipelines.py\nregister: {register}\n")
    land_days(root)
    return root


@pytest.mark.parametrize("register", ["true", "['{}.orders']"])
def test_a_registered_target_is_known_by_name(tmp_path, spark, schema, register):
    project = once.open(orders(tmp_path, schema, register.format(schema)), spark=spark)
    assert project.run(date=DAYS[0]).outcome == "done"
    assert spark.table(f"{schema}.orders").count() == 3
    assert project.run(date=DAYS[1]).outcome == "done"
    assert spark.table(f"{schema}.orders").count() == 6


def test_a_target_that_is_not_named_is_not_registered(tmp_path, spark, schema):
    root = orders(tmp_path, schema, "[gold.copy]")
    (root / "pipelines.py").write_text(PIPELINES.format(schema=schema) + READER.format(schema="other"))
    assert once.open(root, spark=spark).run("orders", date=DAYS[0]).outcome == "done"
    assert not spark.catalog.databaseExists(schema)


def test_a_table_that_nobody_writes_is_not_registered_in_silence(tmp_path, schema):
    with pytest.raises(BadSettings, match=r"nope\.t.*which no pipeline writes"):
        once.open(orders(tmp_path, schema, "[nope.t]"))


@pytest.mark.parametrize("register", ["true", "['{}.orders']", "false"])
def test_a_target_of_the_project_is_not_read_by_its_name_in_the_catalog(tmp_path, spark, schema, register):
    """Its reader would not wait for its writer, and would not be restated with it."""
    root = orders(tmp_path, schema, "true")
    once.open(root, spark=spark).run(date=DAYS[0])
    text = PIPELINES.format(schema=schema) + READER.format(schema=schema)
    orders(tmp_path, schema, register.format(schema))
    (root / "pipelines.py").write_text(text)
    with pytest.raises(BadDeclaration, match=f"read it as once.table..{schema}.orders"):
        once.open(root, spark=spark).plan()


def test_an_unknown_name_stops_only_those_who_read_it(tmp_path, spark, schema):
    root = orders(tmp_path, schema, "false")
    (root / "pipelines.py").write_text(PIPELINES.format(schema=schema) + READER.format(schema="other"))
    assert once.open(root, spark=spark).run("orders", date=DAYS[0]).outcome == "done"
    with pytest.raises(NotInCatalog, match=r"other\.orders"):
        once.open(root, spark=spark).run("copy")


def test_a_catalog_that_does_not_answer_is_not_a_table_that_is_not_there(tmp_path, spark):
    """The catalog is a database that is not there."""
    gone = {"": _JDBC, ".url": "jdbc:derby:/nowhere", ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    for key, value in gone.items():
        spark.conf.set(f"spark.sql.catalog.gone{key}", value)
    with pytest.raises(SourceUnreadable, match="the catalog does not answer"):
        locate(spark, ["catalog.gone.silver.orders"], str(tmp_path))


def test_a_name_that_is_taken_is_said_and_the_write_is_not_touched(tmp_path, spark, schema):
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(f"CREATE TABLE {schema}.orders (id BIGINT) USING delta LOCATION '{tmp_path / 'theirs'}'")
    listener = RecordingListener()
    report = once.open(orders(tmp_path, schema, "true"), spark=spark).run(date=DAYS[0], listener=listener)
    assert report.outcome == "done"
    assert len(ids(tmp_path, f"{schema}.orders")) == 3
    assert any(f"{schema}.orders is not registered" in str(event) for event in listener.events)


def test_a_table_of_the_catalog_is_read_by_its_path_which_is_asked_for_once(tmp_path, spark, schema):
    once.open(orders(tmp_path / "a", schema, "true"), spark=spark).run(date=DAYS[0])
    root = make_project(tmp_path / "b", READER.format(schema=schema))
    assert once.open(root, spark=spark).run().outcome == "done"
    assert ids(root, "gold.copy") == ids(tmp_path / "a", f"{schema}.orders")
    spark.sql(f"DROP TABLE {schema}.orders")  # the files of a registered table stay
    planned = once.open(root).plan()
    assert [work.action for work in planned.works] == ["skip"]


def test_what_the_catalog_does_not_have_is_refused(tmp_path, spark, schema):
    root = make_project(tmp_path, READER.format(schema=schema))
    with pytest.raises(NotInCatalog) as refused:
        once.open(root, spark=spark).plan()
    assert refused.value.facts["table"] == f"catalog.{schema}.orders"


def test_a_target_is_not_named_by_the_catalog():
    with pytest.raises(BadDeclaration):
        once.append("catalog.silver.orders")
