"""The model of many runners, explored in every order of steps and kills; and what it sees if a rule is missing."""

import pytest

from support.runner_model import GROUNDS, LARGE, LOCK, NO_LOCK, SCENES, Broken, Model, explore


@pytest.mark.parametrize("rules", GROUNDS.values(), ids=GROUNDS)
@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=[pytest.mark.long] if name in LARGE else [], id=name) for name in SCENES]
)
def test_in_every_order_of_steps_and_kills_each_slice_is_written_once(scene, rules):
    assert explore(Model(rules), *SCENES[scene])


@pytest.mark.parametrize("rules", GROUNDS.values(), ids=GROUNDS)
@pytest.mark.parametrize("scene", ["a range and a day", "a range and both its days"])
def test_in_every_order_of_steps_and_kills_each_slice_is_added_once(scene, rules):
    assert explore(Model(rules._replace(adds=True)), *SCENES[scene])


@pytest.mark.parametrize("scene", ["a range and a day", "a range and both its days", "the same range three times"])
def test_without_a_lock_only_a_restatement_needs_commits_to_be_bound(scene):
    """A marker keeps the writes of its own slice apart, and where slices overlap an equal generation is equal rows."""
    assert explore(Model(NO_LOCK._replace(by_cell=True)), *SCENES[scene])


# What would go wrong if one of the things that everything rests on were missing: the rule, the runners, what is seen.
TEETH = {
    "nobody asks the log under the lock": (LOCK._replace(settles=False), "a range, a day and its restatement", "holds"),
    "two win the same version": (NO_LOCK._replace(put_if_absent=False, adds=True), "a range and a day", "added twice"),
    "two win, and one is older": (
        NO_LOCK._replace(put_if_absent=False, bound=True),
        "a range, a day and its restatement",
        "holds",
    ),
    "a commit is not bound to what was settled": (NO_LOCK, "a range, a day and its restatement", "holds"),
    "a range is written in two commits": (LOCK._replace(atomic=False), "a range and a day", "half a slice"),
    "rows first, marker later": (LOCK._replace(atomic=False, adds=True), "a range and a day", "added twice"),
}


@pytest.mark.parametrize(("rules", "scene", "seen"), TEETH.values(), ids=TEETH)
def test_the_model_sees_what_is_missing(rules, scene, seen):
    with pytest.raises(Broken, match=seen):
        explore(Model(rules), *SCENES[scene])


class Forgetful(Model):
    """Nobody lets go of the lock."""

    def _go(self, world, me, held=True):
        return super()._go(world, me)._replace(holder=world.holder)


def test_the_model_sees_a_lock_that_is_never_free():
    with pytest.raises(Broken, match="nobody can go on"):
        explore(Forgetful(LOCK), *SCENES["a range and a day"])
