"""Whose pins the rest of an interrupted attempt is written from, without a table."""

from datetime import UTC, datetime

import pytest

from oncelake.model.intervals import Interval
from oncelake.model.markers import app_id, marker, requested_work, restate_app_id
from oncelake.model.slices import Named
from oncelake.model.work import Commit, Rows, Work
from oncelake.running.attempt import recorded_pins, was_sibling
from oncelake.running.commit_state import CommitState
from oncelake.testing.memory_log import MemoryLog

DAY = Interval(datetime(2024, 3, 14, tzinfo=UTC), datetime(2024, 3, 15, tzinfo=UTC))
NEXT = Interval(datetime(2024, 3, 15, tzinfo=UTC), datetime(2024, 3, 16, tzinfo=UTC))


def work(target, generation):
    return Work("copy", target, DAY, generation, marker("copy", target, DAY, generation))


def done(**facts):
    made = {"slice": DAY.text, "pins": {"raw": {"version": 3}}, **facts}
    return CommitState(done=True, commit=Commit(1, None, Rows(), made))


@pytest.mark.parametrize(
    ("facts", "lent"),
    [
        ({"generation": 1, "siblings": ["a", "b"]}, True),
        ({"generation": 2, "siblings": ["a", "b"]}, False),
        ({"generation": 2, "siblings": ["a", "b"], "generations": {"a": 2, "b": 1}}, True),
        ({"generation": 1, "siblings": ["a", "b"], "generations": {"a": 1, "b": 2}}, False),
        ({"generation": 1, "siblings": ["a"]}, False),
        ({"generation": 1, "siblings": None}, False),
    ],
)
def test_pins_are_lent_to_the_generation_that_the_attempt_was_to_write(facts, lent):
    assert (recorded_pins([work("b", 1)], [done(**facts)]) is not None) == lent


@pytest.mark.parametrize(
    ("left", "finished", "siblings", "expected"),
    [
        (1, 1, ["a", "b"], True),
        (1, 2, ["a", "b"], True),
        (2, 2, ["a", "b"], True),
        # A redo of the second target alone.
        (2, 1, ["a", "b"], False),
        # It was added after the oldest commit that is known.
        (1, 1, ["a"], False),
        (1, 1, None, False),
    ],
)
def test_a_target_may_be_the_sibling_of_one_whose_commit_was_cleaned_up(left, finished, siblings, expected):
    log = MemoryLog().add(marker("other", "a", NEXT, 1), pipeline="other", siblings=["a", "b"])
    log.add(marker("copy", "a", NEXT, 1), pipeline="copy", siblings=siblings)
    assert was_sibling(work("b", left), work("a", finished), log) == expected


@pytest.mark.parametrize("slice_", [DAY, Named("2024/03/14")])
def test_a_request_names_its_work(slice_):
    name = app_id("restate it", "t", slice_)
    assert requested_work(restate_app_id("restate it", "t", slice_)) == name
    assert requested_work(name) == name
