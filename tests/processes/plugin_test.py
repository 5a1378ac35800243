"""The pytest plugin, as a user's pytest runs it: real inner runs, one session for many tests."""

import pytest

from oncelake.spark.jars import cache_folder
from support.lakes import orders_project
from support.processes import HEAVY, loaded_by

CACHE = str(cache_folder().parent)

JOBS = '''
import unittest
from pathlib import Path

import pytest
from oncelake.spark.session import open_session
from oncelake_pytest import assert_idempotent as asserted
from pyspark.sql import functions as F

ORDERS = [(1, "2024-03-14"), (2, "2024-03-14"), (3, "2024-03-15")]


@pytest.fixture
def lake(tmp_path):
    return [tmp_path / "orders"]


@pytest.fixture
def write(once_spark, lake):
    runs = []

    def write(mode, by=(), **columns):
        """Write three orders. A column is made from the number of the run."""
        runs.append(mode)
        frame = once_spark.createDataFrame(ORDERS, "id int, day string")
        for name, make in columns.items():
            frame = frame.withColumn(name, F.lit(make(len(runs))))
        writer = frame.write.format("delta").mode(mode).option("overwriteSchema", mode == "overwrite")
        writer.save(str(lake[0]), partitionBy=by)

    return write


def test_append(assert_idempotent, write, lake):
    assert_idempotent(lambda: write("append", by=["day"]), tables=lake)


def test_overwrite(write, lake):
    asserted(lambda: write("overwrite"), lake[0], times=3)


def test_same_count_other_content(assert_idempotent, write, lake):
    assert_idempotent(lambda: write("overwrite", amount=lambda run: run), lake)


def test_exclude(assert_idempotent, write, lake, once_spark):
    tables = [str(lake[0]), lambda: once_spark.range(2)]
    assert_idempotent(lambda: write("overwrite", loaded=lambda run: run), tables, exclude=["LOADED"])


def test_exclude_misspelt(assert_idempotent, once_spark):
    assert_idempotent(lambda: None, lambda: once_spark.range(2), exclude=["di"])


def test_no_table(assert_idempotent, once_spark, tmp_path):
    assert_idempotent(lambda: None, [lambda: once_spark.range(2), tmp_path / "elsewhere"])


def test_frame(assert_idempotent, write, lake, once_spark):
    def total():
        return once_spark.read.format("delta").load(str(lake[0])).groupBy("id").count()

    assert_idempotent(lambda: write("append"), [total])


def test_other_columns(assert_idempotent, write, lake):
    assert_idempotent(lambda: write("overwrite", amount=lambda run: run if run == 1 else str(run)), lake)


def test_table_made_anew(assert_idempotent, write, lake):
    def job():
        import shutil

        shutil.rmtree(lake[0], ignore_errors=True)
        write("overwrite", amount=lambda run: run)

    assert_idempotent(job, lake)


def test_second_run_fails(assert_idempotent, once_spark, tmp_path):
    assert_idempotent((tmp_path / "made").mkdir, lambda: once_spark.range(2))


@pytest.mark.exactly_once("lake", exclude=["loaded"])
def test_marked(write):
    write("overwrite", loaded=lambda run: run)


@pytest.mark.exactly_once(tables=lambda: Case.frame)
class Case(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def session(self, once_spark):
        self.spark = once_spark

    def test_method(self):
        Case.frame = self.spark.range(1)

    def test_method_of_a_case(self):
        Case.frame = self.spark.range(1).select(F.expr("uuid()").alias("id"))


@pytest.mark.exactly_once
def test_project(once_project, tmp_path):
    report = once_project.run("orders", date="2024-03-15")
    assert report.outcome == "done"
    assert (tmp_path / "once_lake/silver/orders/_delta_log").is_dir()
    assert not Path("shop/lake").exists()


@pytest.mark.exactly_once
def test_project_another_day_each_time(once_project, days=["2024-03-14", "2024-03-15"]):
    assert once_project.run("orders", date=days.pop()).outcome == "done"


@pytest.mark.exactly_once
def test_project_not_run(once_project):
    pass


def test_settings(once_spark):
    assert once_spark.sparkContext.appName == "shop"
    assert once_spark.sparkContext.master == "local[2]"


def test_session_stopped(tmp_path):
    def job():
        session = open_session({})
        session.range(1).write.format("delta").mode("append").save(str(tmp_path / "numbers"))
        session.stop()

    asserted(job, tmp_path / "numbers")
'''
# What is said of the jobs that fail. Brackets are patterns to fnmatch, so they are left out.
TOLD = {
    "append": [
        "append0/orders: 3 rows after run 1, 6 rows after run 2",
        "  3 rows too many",
        "(day=2024-03-14, id=1) 2 × instead of 1 ×",
        'in {"day":"2024-03-14"}, {"day":"2024-03-15"}',
    ],
    "same_count_other_content": [
        "orders: 3 rows after run 1, 3 rows after run 2",
        "  3 rows too many and 3 rows missing",
        "(amount=2, day=2024-03-14, id=1) 1 × instead of 0 ×",
        "(amount=1, day=2024-03-14, id=1) 0 × instead of 1 ×",
    ],
    "exclude_misspelt": ["exclude: no table has a column 'di'"],
    "no_table": ["after the first run there is no Delta table */elsewhere"],
    "frame": ["total(): 3 rows after run 1, 3 rows after run 2", "(count=2, id=1) 1 × instead of 0 ×"],
    "other_columns": ["other columns", "amount is string in left, int in right"],
    "table_made_anew": ["its content differs, but the table was recreated"],
    "second_run_fails": ["FileExistsError", "this was run 2 of 2 of the same job"],
    "method_of_a_case": ["1 row too many and 1 row missing"],
    "project_another_day_each_time": [
        "silver.orders: 3 rows after run 1, 6 rows after run 2",
        "(amount=0.0, customer=0, day=2024-03-14, id=0, * 1 × instead of 0 ×",
        'in {"day":"2024-03-14"}',
    ],
    "project_not_run": ["after the first run there is no Delta table silver.orders"],
    "session_stopped": ["numbers: 1 row after run 1, 2 rows after run 2", "(id=0) 2 × instead of 1 ×"],
}
SETTINGS = """
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider
once_project = shop
once_spark_settings =
    spark.app.name = shop
"""

OWN = """
from oncelake.spark.session import open_session
from oncelake.testing.idempotency import FAST


def pytest_configure(config):
    config.mine = open_session(FAST)


def pytest_unconfigure(config):
    print("still there:", config.mine.range(3).count())
"""
OWN_TEST = """
def test_it_is_the_active_session(once_spark, pytestconfig):
    assert once_spark is pytestconfig.mine
"""

LIGHT = """
import sys
import unittest

import pytest


def test_nothing_is_loaded():
    assert not {"oncelake", "pyspark", "py4j"} & set(sys.modules)


@pytest.mark.exactly_once("lake/orders")
def test_path_without_list():
    pass


@pytest.mark.exactly_once("no_such_fixture")
def test_unknown_fixture():
    pass


@pytest.mark.exactly_once
def test_neither_tables_nor_project():
    pass


@pytest.mark.exactly_once(tables=["orders"])
async def test_async():
    pass


def test_nothing_to_compare(assert_idempotent):
    assert_idempotent(lambda: None, [])


def test_no_project(prove):
    prove("orders")
"""

PROOFS = """
import oncelake as once


def test_good(prove):
    verdict = prove("orders", date="2024-03-15", case="twice", scenarios=("twice",), level="steps", seed=7)
    assert (verdict.verdict, verdict.seed, verdict.counts["twice"].tried) == ("proven", 7, 1)


def test_random(prove):
    project = once.open("random")
    prove(project.pipelines["orders"], project=project, date="2024-03-15", scenarios=("clean",), level="steps")
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """Run pytest as a user would, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)

    def run(tests, *options, **files):
        pytester.makepyfile(test_inner=tests, **files)
        return pytester.runpytest_subprocess("-p", "no:randomly", *options)

    return run


def named(result, outcome):
    """The inner tests that ended so, in their order."""
    found = [line.split()[1] for line in result.outlines if line.startswith(f"{outcome} ")]
    return [name.rpartition("::test_")[2] for name in found]


def test_importing_it_loads_neither_oncelake_nor_spark():
    assert not loaded_by("import oncelake_pytest") & {*HEAVY, "oncelake"}


def test_what_a_mark_cannot_mean_is_said_without_spark(inner):
    result = inner(LIGHT, "--strict-markers")
    result.assert_outcomes(passed=1, failed=3, errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "*'lake/orders' is not a fixture name; pass paths in a list*",
            "*fixture 'no_such_fixture' not found*",
            "*name the tables, or let the test use once_project*",
            "*plain test functions*",
            "*ValueError: nothing would be compared*",
            "*there is no oncelake.yaml in *--once-project*",
        ]
    )


def test_the_marker_and_the_options_are_listed(pytester):
    pytester.runpytest("--markers").stdout.fnmatch_lines(["@pytest.mark.exactly_once(*"])
    pytester.runpytest("--help").stdout.fnmatch_lines(["*--once-project=DIR*", "*once_spark_settings*"])


def test_jobs_are_told_apart_by_what_they_write(inner, pytester):
    orders_project(pytester.path / "shop", "replace_interval, partitioned")
    pytester.makefile(".ini", pytest=SETTINGS)
    result = inner(JOBS, "-rA")
    assert named(result, "PASSED") == ["overwrite", "exclude", "marked", "method", "project", "settings"]
    assert named(result, "FAILED") == list(TOLD)
    for name, lines in TOLD.items():
        result.stdout.fnmatch_lines([f"*_ *test_{name} _*", *(f"*{line}*" for line in lines)])


def test_a_session_that_is_there_is_used_and_left(inner):
    result = inner(OWN_TEST, "-s", conftest=OWN)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["still there: 3"])


def test_a_pipeline_is_proven_or_its_story_told(inner, pytester):
    orders_project(pytester.path / "shop", "replace_interval")
    random = orders_project(pytester.path / "random", "replace_interval")
    pipelines = (random / "pipelines.py").read_text()
    (random / "pipelines.py").write_text(pipelines.replace('"amount"', 'F.rand().alias("amount")'))
    result = inner(PROOFS, "-rA", "--once-project=shop")
    assert (named(result, "PASSED"), named(result, "FAILED")) == (["good"], ["random"])
    result.stdout.fnmatch_lines(
        ["orders is not proven. * in silver.orders*", "reproduce, in */random: oncelake prove orders --date *"]
    )
