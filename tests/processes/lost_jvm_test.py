"""A JVM that dies in the middle of a backfill: it is started once more; if it dies again the run ends at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.lakes import DAYS, ids, land, make_project, orders_of

PIPELINES = """
import os
import signal
from pathlib import Path

import oncelake as once

CALLS = Path(__file__).with_name("calls.txt")


def kill_the_jvm():
    children = [p.read_text().split() for p in Path("/proc/self/task").glob("*/children")]
    for pid in {pid for found in children for pid in found}:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


@once.pipeline(
    every="day", start="2024-03-14", combine_intervals=False,
    reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at timestamp"),
    writes=once.replace_interval("silver.orders", time="at"),
)
def orders(files, interval):
    with CALLS.open("a") as calls:
        calls.write(f"{interval.start:%d}\\n")
    if interval.start.day == 15 and CALLS.read_text().split().count("15") <= TIMES:
        kill_the_jvm()
    return files
"""


def run(root):
    command = [str(Path(sys.executable).with_name("oncelake")), "run", "--to", "2024-03-17", "--json", "-p", str(root)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def project(tmp_path):
    def make(times):
        make_project(tmp_path, PIPELINES.replace("TIMES", str(times)))
        for day in DAYS:
            land(tmp_path, day, orders_of(day))
        return tmp_path

    return make


def calls(root):
    return (root / "calls.txt").read_text().split()


def test_a_jvm_that_dies_once_is_started_again_and_the_work_repeated(project):
    root = project(times=1)
    code, document, said = run(root)
    assert (code, document["outcome"]) == (0, "done"), said
    assert [work["outcome"] for work in document["works"]] == ["committed"] * 3
    assert calls(root) == ["14", "15", "15", "16"]
    assert ids(root) == sorted(order["id"] for day in DAYS for order in orders_of(day))
    assert "JVM died" in said


def test_a_jvm_that_dies_twice_ends_the_run_with_what_is_committed(project):
    root = project(times=99)
    code, document, said = run(root)
    assert (code, document["outcome"]) == (1, "failed"), said
    assert [(work["outcome"], work["code"]) for work in document["works"]] == [
        ("committed", None),
        ("failed", "spark_lost"),
    ]
    assert "committed: nothing of [2024-03-15, 2024-03-16) was written" in document["works"][-1]["error"]
    assert "/logs" in document["works"][-1]["error"]
    assert calls(root) == ["14", "15", "15"], "no retries, no bisecting, no further days"
    assert ids(root) == sorted(order["id"] for order in orders_of(DAYS[0]))
