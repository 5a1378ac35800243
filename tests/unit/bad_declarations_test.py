"""Settings and names that cannot be used are refused before anything is read."""

import pytest

import oncelake as once
from support.lakes import make_project

PIPELINE = """
import oncelake as once

@once.pipeline(reads=once.table("a"), writes=once.overwrite("b"))
def orders(source):
    return source
"""


@pytest.mark.parametrize(
    "settings",
    ["lake: [1]\n", "lake: lake\nlkae: x\n", "lake: 'x\n", "pipelines: nowhere\n", "lake: a\nlake: b\n", "- 1\n"],
)
def test_an_oncelake_yaml_that_cannot_be_used(tmp_path, settings):
    make_project(tmp_path, PIPELINE, settings)
    with pytest.raises(once.OncelakeError) as error:
        once.open(tmp_path)
    assert (error.value.code, error.value.exit_code) == ("bad_settings", 2)


@pytest.mark.parametrize("name", ["../outside", "a/b", "/etc/x", "a..b", "_oncelake.x", "x\ny", "", "s3://x/y"])
def test_table_names_stay_in_the_lake(name):
    for declare in (once.table, once.append, once.overwrite):
        with pytest.raises(once.OncelakeError) as error:
            declare(name)
        assert error.value.exit_code == 2
