"""Errors of `once.write` name it as the next step: there is no pipeline to run."""

from types import SimpleNamespace

import pytest

from oncelake.delta.writes import Layout
from oncelake.errors import FunctionFailed, NullKeys, OncelakeError, WriteFailed, WrongColumns
from oncelake.patterns.append import Append
from oncelake.running.write import write

FACTS = {"target": "t", "pipeline": "m2", "where": "job.py:3"}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (WrongColumns(difference="x", **FACTS), "fix job.py:3, then call once.write again"),
        (NullKeys(keys="id", examples="", **FACTS), "filter these rows in job.py:3"),
        (WriteFailed(problem="x", **FACTS), "call once.write again"),
    ],
)
def test_the_next_step_is_to_call_once_write_again(tmp_path, raised, expected):
    class Failing(Append):
        def write(self, frame, writing):
            raise raised

    with pytest.raises(OncelakeError) as found:
        write(SimpleNamespace(sparkSession=None), Failing("t", Layout()), work="m2", lake=str(tmp_path))
    assert found.value.next.startswith(expected)
    assert "call once.write again" in found.value.next
    assert "oncelake run" not in str(found.value)


def test_the_next_step_of_a_pipeline_stays(tmp_path):
    error = FunctionFailed(problem="x", **FACTS)
    assert error.next == "fix job.py:3, then run: oncelake run m2"
