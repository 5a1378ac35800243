"""Unit tests start no JVM: importing pyspark, py4j or delta fails while they are collected and while they run."""

import sys
from contextlib import contextmanager

import pytest

from oncelake.storage import options

SPARK = {"pyspark", "py4j", "delta"}


@contextmanager
def no_spark():
    """Make every import of Spark fail, also of the modules that tests of another tier have loaded in this process."""
    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in SPARK}
    absent = dict.fromkeys(SPARK | loaded.keys())
    sys.modules.update(absent)
    yield
    for name in absent:
        del sys.modules[name]
    sys.modules.update(loaded)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    with no_spark():
        return (yield)


@pytest.fixture(autouse=True)
def _no_spark():
    with no_spark():
        yield


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    """A store's settings are kept for the process: those of the test before may name a server that has stopped."""
    monkeypatch.setattr(options, "_settings", {})
