"""What is public stays public, and nothing heavy is imported for it."""

import pytest

import oncelake as once
from support.processes import HEAVY, loaded_by

PUBLIC = [
    "Fingerprint",
    "Interval",
    "OncelakeError",
    "Outcome",
    "Plan",
    "Project",
    "Report",
    "Verdict",
    "__version__",
    "aggregate",
    "append",
    "changes",
    "differences",
    "each_batch",
    "files",
    "fingerprint",
    "kafka",
    "key",
    "latest",
    "merge",
    "open",
    "overwrite",
    "pipeline",
    "prove",
    "prove_script",
    "replace_interval",
    "replace_partitions",
    "scd2",
    "table",
    "write",
]
LIGHT = [
    "oncelake",
    "oncelake.cli.main",
    "oncelake.api",
    "oncelake.patterns",
    "oncelake.sources",
    "oncelake.planning.plan",
    "oncelake.running.write",
    "oncelake.delta.log",
]


def test_the_public_names_are_these():
    assert sorted(once.__all__) == PUBLIC
    assert dir(once) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name):
    assert getattr(once, name) is not None


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError):
        once.nothing  # noqa: B018  looking it up is the test


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_nothing_heavy(module):
    assert not loaded_by(f"import {module}") & HEAVY


def test_resolving_every_public_name_loads_nothing_heavy():
    assert not loaded_by("import oncelake\n[getattr(oncelake, name) for name in oncelake.__all__]") & HEAVY


def test_help_loads_nothing_heavy():
    code = "from oncelake.cli.main import cli\ncli(['--help'], standalone_mode=False)"
    assert not loaded_by(code) & HEAVY
