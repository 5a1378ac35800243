"""Proofs: every pattern holds on a sample of its states; verdicts are told in every form; nothing is touched or left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import oncelake as once
from oncelake.errors import NothingToProve, UsageError
from oncelake.model.failpoints import FAILPOINTS
from oncelake.proving.calls import compiler
from support.lakes import DAYS, expected_ids, make_project, orders_project
from support.processes import ONCELAKE, all_files
from support.variants import number_of, sampled, variants

needs_calls = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
SPAN = {"start": DAYS[0], "end": DAYS[2]}
PROVE = [ONCELAKE, "prove"]


# Of each variant, chosen by the commit: successive commits try different states. `make prove` tries all of them.
STATES, KEYED_STATES = 6, 3
# Every pattern is crashed; the other scenarios are shared among them here, and all tried on all by `make prove`.
SHARED = {
    "replace_interval": ("twice", "recovery"),
    "replace_interval, partitioned": ("order", "reader"),
    "replace_partitions": ("layout", "late", "combine_intervals"),
    "overwrite": ("lost", "order"),
    "append": ("fault", "race"),
    "merge": ("order",),
    "merge, partitioned": ("late",),
    "scd2": ("order",),
    "aggregate": ("restate",),
    "aggregate, adding": ("lost",),
}
# Of one proof that looks at more of the states, in the long tier.
MANY = 22


def proven(root, prover, variant, states, faults=2, recoveries=1):
    """Prove a variant on some of its states, and check that nothing of the project was touched."""
    before = all_files(root)
    selected = ("crash", *SHARED[variant.name])
    effort = {"points": states, "faults": faults, "recoveries": recoveries, "threads": (2,), "scenarios": selected}
    verdict = prover.prove(root, "orders", seed=number_of(variant.name), **effort, **SPAN)
    assert verdict.violation is None
    assert set(verdict.counts) == set(selected)
    assert (verdict.level, verdict.states) == ("calls", states)
    assert verdict.counts["crash"].there > states
    assert verdict.fingerprints["silver.orders"]["rows"] == len(expected_ids(variant, DAYS[:2]))
    assert all_files(root) == before


@needs_calls
@pytest.mark.parametrize("variant", variants())
def test_a_pattern_is_proven_on_a_sample_of_its_states(tmp_path, prover, variant):
    proven(orders_project(tmp_path, variant), prover, variant, KEYED_STATES if variant.keyed else STATES)


@needs_calls
@pytest.mark.long
@pytest.mark.parametrize("variant", variants())
def test_a_pattern_is_proven_on_many_of_its_states(tmp_path, prover, variant):
    proven(orders_project(tmp_path, variant), prover, variant, MANY, faults=3, recoveries=2)


RESTATEMENTS = [f"restate:step-{number}" for number in range(1, len(FAILPOINTS) + 1)]


@pytest.mark.parametrize("case", ["restate", *sampled(RESTATEMENTS, 1, "restate")])
def test_a_restatement_is_proven_also_if_it_was_stopped(tmp_path, prover, case):
    root = orders_project(tmp_path, "replace_interval")
    verdict = prover.prove(root, "orders", case=case, scenarios=("restate",), **SPAN)
    assert verdict.violation is None
    assert verdict.counts["restate"].tried == 1
    assert verdict.counts["restate"].there == 1 + len(RESTATEMENTS)


@needs_calls
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_real_kills_and_a_zombie_leave_what_the_images_show(tmp_path, prover, kills):
    root, tried = orders_project(tmp_path, "append"), []
    effort = {"points": 1, "kills": kills, "zombies": 1, "scenarios": ("crash", "kill", "zombie"), "date": DAYS[0]}
    told = lambda case, *_: tried.append(case.id)  # noqa: E731
    verdict = prover.prove(root, "orders", told=told, seed=number_of("kills"), **effort)
    assert verdict.violation is None
    assert (verdict.counts["kill"].tried, verdict.counts["zombie"].tried) == (kills, 1)
    # Only where both processes are killed at one call is there one state that must be found.
    both = sum(case.startswith("kill:both:") for case in tried)
    assert verdict.confirmed == f"{both} of {both}"


@pytest.mark.long
def test_steps_are_proven_without_a_compiler(tmp_path):
    root = orders_project(tmp_path, "replace_interval")
    verdict = once.prove(root, "orders", level="steps", scenarios=("step",), date=DAYS[0])
    assert verdict.violation is None
    assert (verdict.level, verdict.states, verdict.counts["step"].tried) == ("steps", 9, 9)


LOADED = """
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline(
    every="day", start="2024-03-14",
    reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at string"),
    writes=once.append("silver.orders"),
)
def orders(files):
    return files.withColumn("loaded_at", F.current_timestamp())
"""


def test_a_violation_is_a_story_in_every_form_and_can_be_excluded_by_name(tmp_path):
    root = orders_project(tmp_path, "append")
    make_project(root, LOADED)
    files = ["--certificate", str(tmp_path / "proof.json"), "--junit", str(tmp_path / "junit.xml")]
    command = [*PROVE, "orders", "--date", DAYS[0], "--points", "2", "--kills", "0", "--faults", "0", "-p", str(root)]
    done = subprocess.run([*command, "--json", *files], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["seed"]) == (3, "violated", 0)
    assert document["violation"]["case"] == "clean"
    assert (document["violation"]["surplus"], document["violation"]["missing"]) == (3, 3)
    assert "VIOLATED" in done.stderr
    assert "silver.orders" in done.stderr
    assert document["reproduce"] == f"oncelake prove orders --date {DAYS[0]} --seed 0 --case clean"
    assert json.loads((tmp_path / "proof.json").read_text())["violation"] == document["violation"]
    failed = ET.parse(tmp_path / "junit.xml").getroot().findall("testcase[failure]")
    assert [case.get("name") for case in failed] == ["clean"]

    again = [*command, "--json", "--case", "clean", "--exclude", "loaded_at"]
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["states"]) == (0, "proven", 0)
    assert document["excluded"] == {"silver.orders": ["loaded_at"]}
    assert document["fingerprints"]["silver.orders"]["excluded"] == ["loaded_at"]


@needs_calls
@pytest.mark.parametrize(
    "sign", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL], ids=lambda sign: sign.name
)
def test_an_interrupted_proof_leaves_no_process_and_no_folder(tmp_path, sign):
    root = orders_project(tmp_path / "project", "append")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [*PROVE, "orders", "--date", DAYS[0], "-p", str(root)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    subjects = children(process.pid)
    assert len(subjects) >= 2, "a Python and its JVM"
    process.send_signal(sign)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9}.get(sign, 130)
    for subject in subjects:
        wait_for_the_end_of(subject)
    if sign == signal.SIGKILL:
        # Nobody could clean up; the next proof does.
        code = "from oncelake.proving.proof import sandbox\nwith sandbox():\n    pass"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert list(temporary.glob("oncelake-proof-*")) == []


def children(pid):
    """The processes below a process."""
    own = [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]
    return own + [grandchild for child in own for grandchild in children(child)]


def wait_for_the_end_of(pid):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    assert select.select([descriptor], [], [], 30)[0], f"process {pid} is still there"
    os.close(descriptor)


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
    verdict = prover.prove(root, "orders", told=told, minutes=0.1, threads=(2,), kills=0, zombies=0, **SPAN)
    assert verdict.sampled
    assert verdict.counts["crash"].tried < verdict.counts["crash"].there
    assert len(set(seen[:6])) == min(6, len(seen))
