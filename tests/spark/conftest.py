"""Lakes that are made once by a test process and copied by the tests that start from them."""

import shutil

import pytest

import oncelake as once
from support.arrivals import events
from support.lakes import DAYS
from support.orders import open_orders, reopen_orders

SPAN = {"start": DAYS[0], "end": "2024-03-17"}


@pytest.fixture(scope="session")
def _completed(spark, tmp_path_factory):
    made = {}

    def completed(variant):
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp("completed")
            assert open_orders(made[variant], spark, variant).run("orders", **SPAN).outcome == "done"
        return made[variant]

    return completed


@pytest.fixture
def completed_orders(spark, tmp_path, _completed):
    """Return a project over a copy of a lake in which the three days of orders were completed by one run."""

    def copied(variant="replace_interval"):
        shutil.copytree(_completed(variant), tmp_path, dirs_exist_ok=True)
        return reopen_orders(tmp_path, spark, variant)

    return copied


@pytest.fixture
def landing(tmp_path):
    """Return the folder in which files arrive."""
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def arriving(tmp_path, spark):
    """Return a function that makes a project of pipelines that are driven by arrivals."""

    def make(*pipelines):
        return once.Project.of(*(pipelines or (events(),)), lake=tmp_path / "lake", spark=spark, root=tmp_path)

    return make
