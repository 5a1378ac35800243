"""One warm Spark session for every test that needs one, and nothing of the developer's own set-up."""

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
# For the processes that tests start, too: most of what they compile would run once.
os.environ["SPARK_CONF_DIR"] = str(HERE / "spark_conf")
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ONCELAKE_") and name != "ONCELAKE_JARS"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def spark(once_spark):
    """The session that our own plugin makes for tests."""
    return once_spark
