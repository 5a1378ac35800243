"""One warm Spark session for every test that needs one, and nothing of the developer's own set-up."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from oncelake.model import failpoints
from support.places import PLACE, lake_of, started
from support.tiers import file_of, outside_sample
from support.variants import SEED

# On a loaded machine an example may take any time.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")
pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
TIERS = ("proofs", "processes", "model", "spark", "unit", "places")
# For the processes that tests start, too. A few rows are done before code for them is compiled, so Spark compiles none
# and the JVM only quickly; its default heap and code cache are too small for that, and a third of the time went to the
# collector and the sweeper. Not in a SPARK_CONF_DIR: a folder on the class path makes the JVM ignore the class archive.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(
    [*(f"--conf {key}={value}" for key, value in INTERPRETED.items()), "pyspark-shell"]
)
os.environ["SPARK_SUBMIT_OPTS"] = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xms1g -Xmn500m -XX:MetaspaceSize=256m"
)


# Files whose tests share no fixtures and are distributed one by one.
ONE_BY_ONE = ("proofs/behaviours_test.py",)


def pytest_addoption(parser):
    parser.addoption("--sample", action="store_true", help="run a sample of large files, chosen by the commit")


def pytest_collection_modifyitems(config, items):
    """Order the tests by tier; what is distributed one by one comes last and fills the gaps."""
    if PLACE != "local":
        return  # as they were named
    items.sort(key=lambda item: (file_of(item.nodeid) in ONE_BY_ONE, TIERS.index(file_of(item.nodeid).split("/")[0])))
    if config.getoption("--sample"):
        left_out = set(outside_sample(items))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file in one process, which has their fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = file_of(nodeid)
            return nodeid if file in ONE_BY_ONE else file

    return ByFile(config, log)


def pytest_report_header():
    return f"samples: by commit {SEED[:12]} (ONCELAKE_TEST_SEED)"


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch):
    for name in [
        name
        for name in os.environ
        if name.startswith("ONCELAKE_") and name not in ("ONCELAKE_JARS", "ONCELAKE_TEST_PLACE", "ONCELAKE_TEST_BUCKET")
    ]:
        monkeypatch.delenv(name)


class Stopped(BaseException):
    """The process ends here: nothing in the product may catch it."""


@contextmanager
def _stopped_at(point, *, reached=True):
    came = []

    def stop(at):
        if at == point:
            came.append(at)
            raise Stopped

    failpoints.watch(stop if point else None)
    try:
        yield
    except Stopped:
        pass
    finally:
        failpoints.watch(None)
    assert came or not reached, f"{point} was never reached"


@pytest.fixture
def stopped_at():
    """End what is run in `with stopped_at(point):` at a failpoint, as if its process ended there."""
    return _stopped_at


@pytest.fixture(scope="session")
def spark(request):
    """The session that our own plugin makes for tests; or one at another place, see `processes/places_test.py`."""
    if PLACE == "local":
        yield request.getfixturevalue("once_spark")
        return
    from oncelake.delta.lake_session import open_lake_session

    settings = request.getfixturevalue("place").settings
    session = open_lake_session(lake_of("/any"), settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """The cluster or server at which tests run; started once, stopped after them."""
    made = started(PLACE, tmp_path_factory.mktemp(PLACE))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """A Kafka broker of this test process, started for the first test that needs one. Take a new topic for each test."""
    from support.kafka import started_kafka

    with started_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started
