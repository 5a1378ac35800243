"""Proofs as a user starts them: the verdict in every form; nothing is left behind by one that is interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import oncelake as once
from oncelake.proving.calls import compiler
from oncelake.spark.session import log_folder
from support.lakes import DAYS, make_project, orders_project
from support.processes import ONCELAKE

needs_calls = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
PROVE = [ONCELAKE, "prove"]


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


STORAGE = """
lake: lake
pipelines: pipelines.py
storage: {endpoint: "http://127.0.0.1:9", allow_http: true, access_key: "${PLANTED_KEY}", secret_key: "${PLANTED_SECRET}"}
"""
PLANTED = {"PLANTED_KEY": "AKIA-planted-in-a-proof", "PLANTED_SECRET": "planted/secret+of-a-proof"}


def test_a_violation_is_a_story_in_every_form_and_can_be_excluded_by_name_and_no_certificate_has_a_credential(tmp_path):
    root = orders_project(tmp_path, "append")
    make_project(root, LOADED, STORAGE)
    env = {**os.environ, **PLANTED}
    files = ["--certificate", str(tmp_path / "proof.json"), "--junit", str(tmp_path / "junit.xml")]
    command = [*PROVE, "orders", "--date", DAYS[0], "--points", "2", "--kills", "0", "--faults", "0", "-p", str(root)]
    done = subprocess.run([*command, "--json", *files], capture_output=True, text=True, check=False, env=env)
    texts = {"stdout": done.stdout, "stderr": done.stderr}
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

    proven = ["--certificate", str(tmp_path / "proven.json")]
    again = [*command, "--json", "--case", "clean", "--exclude", "loaded_at", *proven]
    done = subprocess.run(again, capture_output=True, text=True, check=False, env=env)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["states"]) == (0, "proven", 0)
    assert document["excluded"] == {"silver.orders": ["loaded_at"]}
    assert document["fingerprints"]["silver.orders"]["excluded"] == ["loaded_at"]

    texts |= {"stdout, proven": done.stdout, "stderr, proven": done.stderr}
    written = [path for path in [*tmp_path.rglob("*"), *log_folder().rglob("*")] if path.is_file()]
    assert {"proof.json", "junit.xml", "proven.json"} <= {path.name for path in written}
    texts |= {str(path): path.read_text(errors="replace") for path in written}
    assert [name for name, text in texts.items() if any(secret in text for secret in PLANTED.values())] == []


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
