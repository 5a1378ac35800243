"""One warm Spark session for every test that needs one, and nothing of the developer's own set-up."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelake.model import failpoints
from support.variants import SEED

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
TIERS = ("proofs", "processes", "model", "spark", "unit")
# For the processes that tests start, too: most of what they compile would run once. With Spark's default heap, which
# starts small, a fifth of the time went to the garbage collector.
os.environ["SPARK_CONF_DIR"] = str(HERE / "spark_conf")
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -Xms1g -Xmn500m -XX:MetaspaceSize=256m"


ONE_BY_ONE = HERE / "proofs" / "behaviours_test.py"


def pytest_collection_modifyitems(items):
    """Keep the tests of a file in one process, which has their fixtures. Files come by tier, the many small tests last."""
    items.sort(key=lambda item: (item.path == ONE_BY_ONE, TIERS.index(item.path.relative_to(HERE).parts[0])))
    for item in items:
        if item.path != ONE_BY_ONE and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))


def pytest_report_header():
    return f"samples: by commit {SEED[:12]} (ONCELAKE_TEST_SEED)"


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ONCELAKE_") and name != "ONCELAKE_JARS"]:
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
def spark(once_spark):
    """The session that our own plugin makes for tests."""
    return once_spark
