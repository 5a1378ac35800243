"""One warm prover for all proofs of a test process: starting one costs as much as several proofs."""

import os

import pytest

from oncelake.proving.proof import Prover

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def _prover():
    with Prover() as made:
        yield made


@pytest.fixture
def prover(_prover, monkeypatch):
    """The prover. Its worker is started by the first proof, and lives long enough for code to be compiled well."""
    if _prover._main is None:
        options = os.environ["SPARK_SUBMIT_OPTS"].replace(QUICK_COMPILER, "")
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", options)
    return _prover


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep everything that uses the prover in one process."""
    for item in items:
        if "prover" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("prover"))
