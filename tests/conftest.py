"""One warm Spark session for every test that needs one, and nothing of the developer's own set-up."""

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
sys.path.insert(0, str(Path(__file__).parent))
# Short sessions are bound by start-up and compilation: the quick compiler halves their cost.
FAST = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ONCELAKE_") and name != "ONCELAKE_JARS"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def spark():
    from oncelake.lake.session import open_session

    session = open_session({"spark.master": "local[2]", **FAST})
    yield session
    session.stop()
