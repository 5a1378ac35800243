"""Lakes that are made once by a test process and copied by the tests that start from them."""

import shutil

import pytest

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
