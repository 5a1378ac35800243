"""One warm Spark session for every test that needs one, and nothing of the developer's own set-up."""

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# For the processes that tests start, too: most of what they compile would run once.
os.environ["SPARK_CONF_DIR"] = str(HERE / "spark")
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"


def pytest_collection_modifyitems(items):
    """What takes long first: so none of the workers is left with it when the others are done."""
    items.sort(key=lambda item: item.path.parent == HERE)


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ONCELAKE_") and name != "ONCELAKE_JARS"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def spark(once_spark):
    """The session that our own plugin makes for tests."""
    return once_spark
