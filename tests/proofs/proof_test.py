"""Proofs: every pattern holds on a sample of its states; verdicts are told in every form; nothing is touched or left."""

import pytest

from oncelake.errors import NothingToProve, UsageError
from oncelake.model.failpoints import FAILPOINTS
from oncelake.proving.calls import compiler
from support.lakes import DAYS, expected_ids, orders_project, table_project
from support.processes import ONCELAKE, all_files
from support.variants import number_of, sample, sampled, some_variants, variants

needs_calls = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
SPAN = {"start": DAYS[0], "end": DAYS[2]}
PROVE = [ONCELAKE, "prove"]


# Of each variant, chosen by the commit: successive commits try different states. `make prove` tries all of them.
STATES, KEYED_STATES = 4, 2
# Every pattern is crashed. Of the other scenarios each has one here, and those below in the long tier; `make prove` tries all on all.
SHARED = {
    "replace_interval": ("twice", "recovery", "second_target", "lost_jvm"),
    "replace_interval, partitioned": ("order", "reader", "restored", "no_lock"),
    "replace_partitions": ("layout", "late", "combine_intervals", "corrected", "no_lock"),
    "overwrite": ("lost", "order", "restored", "renamed", "no_lock"),
    "append": ("fault", "race", "renamed", "second_target", "lost_jvm"),
    "merge": ("order", "corrected", "no_lock"),
    "merge, partitioned": ("late", "restored", "no_lock"),
    "scd2": ("order", "restored", "corrected", "no_lock", "lost_jvm"),
    "aggregate": ("restate", "renamed", "no_lock"),
    "aggregate, adding": ("lost", "corrected", "renamed", "no_lock"),
}
# Of one proof that looks at more of the states, in the long tier.
MANY = 22


def proven(root, prover, variant, states, scenarios, **more):
    """Prove a variant on some of its states, and check that nothing of the project was touched."""
    before = all_files(root)
    selected = ("crash", *scenarios)
    effort = {"points": states, "faults": 2, "recoveries": 1, "changes": 2, "lost_jvms": 1, "threads": (2,), **more}
    effort["scenarios"] = selected
    verdict = prover.prove(root, "orders", seed=number_of(variant.name), **effort, **SPAN)
    assert verdict.violation is None
    assert set(verdict.counts) == set(selected)
    assert (verdict.level, verdict.states) == ("calls", states)
    assert verdict.counts["crash"].there > states
    assert verdict.fingerprints["silver.orders"]["rows"] == len(expected_ids(variant, DAYS[:2]))
    assert all_files(root) == before


@needs_calls
@pytest.mark.parametrize("variant", some_variants(2, 2, "proof"))
def test_a_pattern_is_proven_on_a_sample_of_its_states(tmp_path, prover, variant):
    states = KEYED_STATES if variant.keyed else STATES
    scenarios = sample(SHARED[variant.name], 1, variant.name)
    proven(orders_project(tmp_path, variant), prover, variant, states, scenarios)


@needs_calls
@pytest.mark.long
@pytest.mark.parametrize("variant", variants())
def test_a_pattern_is_proven_on_many_of_its_states(tmp_path, prover, variant):
    root = orders_project(tmp_path, variant)
    proven(root, prover, variant, MANY, SHARED[variant.name], faults=3, recoveries=2, changes=None)


# Only where the input is a table can an upstream cut it by another column, and the grid be another.
OF_TABLES = ("other_time", "grid_changed")


@pytest.mark.parametrize("variant", some_variants(1, 0, "tables"))
def test_a_pattern_that_reads_a_table_is_proven_by_another_time_and_grid(tmp_path, prover, variant):
    root = table_project(tmp_path, variant)
    before = all_files(root)
    verdict = prover.prove(root, "orders", seed=number_of(variant.name), scenarios=OF_TABLES, **SPAN)
    assert verdict.violation is None
    assert set(verdict.counts) == set(OF_TABLES)
    assert all(count.tried == count.there for count in verdict.counts.values())
    assert all_files(root) == before


RESTATEMENTS = [f"restate:step-{number}" for number in range(1, len(FAILPOINTS) + 1)]


@pytest.mark.parametrize("case", ["restate", *sampled(RESTATEMENTS, 1, "restate")])
def test_a_restatement_is_proven_also_if_it_was_stopped(tmp_path, prover, case):
    root = orders_project(tmp_path, "replace_interval")
    verdict = prover.prove(root, "orders", case=case, scenarios=("restate",), **SPAN)
    assert verdict.violation is None
    assert verdict.counts["restate"].tried == 1
    assert verdict.counts["restate"].there == 1 + len(RESTATEMENTS)


REAL = {
    "a kill": {"kills": 1, "scenarios": ("crash", "kill")},
    "a stalled writer": {"zombies": 1, "scenarios": ("crash", "zombie")},
}
THREE_KILLS = {"kills": 3, "scenarios": ("crash", "kill")}


@needs_calls
@pytest.mark.parametrize("real", sampled(list(REAL), 1, "real"))
def test_real_kills_and_a_zombie_leave_what_the_images_show(tmp_path, prover, real):
    leaves_what_the_images_show(orders_project(tmp_path, "append"), prover, REAL[real])


@needs_calls
@pytest.mark.long
def test_three_real_kills_leave_what_the_images_show(tmp_path, prover):
    leaves_what_the_images_show(orders_project(tmp_path, "append"), prover, THREE_KILLS)


def leaves_what_the_images_show(root, prover, effort):
    tried = []
    told = lambda case, *_: tried.append(case.id)  # noqa: E731
    verdict = prover.prove(root, "orders", on_case=told, seed=number_of("kills"), points=1, date=DAYS[0], **effort)
    assert verdict.violation is None
    assert verdict.counts[effort["scenarios"][1]].tried == effort.get("kills", 1)
    # Only where both processes are killed at one call is there one state that must be found.
    both = sum(case.startswith("kill:both:") for case in tried)
    assert verdict.confirmed == f"{both} of {both}"


def test_a_job_whose_clean_run_fails_has_nothing_to_prove(tmp_path, prover):
    root = orders_project(tmp_path, "append")
    (root / "landing" / DAYS[0] / "orders.json").unlink()
    with pytest.raises(NothingToProve) as refused:
        prover.prove(root, "orders", date=DAYS[0])
    assert refused.value.facts["job"] == "orders"


def test_a_case_that_is_not_there_is_refused(tmp_path, prover):
    with pytest.raises(UsageError):
        prover.prove(orders_project(tmp_path, "append"), "orders", date=DAYS[0], case="crash:nothing")


@needs_calls
def test_minutes_are_shared_by_the_scenarios_and_it_is_said(tmp_path, prover):
    root = orders_project(tmp_path, "append")
    seen = []
    told = lambda case, index, total: seen.append(case.scenario)  # noqa: E731
    verdict = prover.prove(root, "orders", on_case=told, minutes=0.1, threads=(2,), kills=0, zombies=0, **SPAN)
    assert verdict.sampled
    assert verdict.counts["crash"].tried < verdict.counts["crash"].there
    assert len(set(seen[:6])) == min(6, len(seen))
