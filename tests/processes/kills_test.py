"""Real processes, really killed: Python, the JVM, or both, before, during and after the commit; then run again."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import oncelake as once
from support.lakes import DAYS, commits, expected_ids, ids, orders_project
from support.processes import ONCELAKE
from support.variants import sampled

KILLED = str(Path(__file__).parents[1] / "support" / "killed.py")
# At moments of time; the prover kills at numbered file calls.
KILLS = {
    "replace_interval, python killed during the write": ("replace_interval", "python", "during"),
    "replace_partitions, the JVM killed during the write": ("replace_partitions", "jvm", "during"),
    "overwrite, both killed during the write": ("overwrite", "both", "during"),
    "append, python killed after the commit": ("append", "python", "written"),
}


@pytest.mark.parametrize("kill", sampled(list(KILLS), 2, "kills"))
def test_killed_and_run_again_is_once(tmp_path, spark, kill):
    name, mode, point = KILLS[kill]
    root = orders_project(tmp_path, name)
    command = [sys.executable, KILLED, str(root), DAYS[0], mode, point]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if mode == "jvm":
        # Python lives on and says what the log says: committed, or failed with nothing written.
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() in ("committed", "failed")
    else:
        assert done.returncode == -signal.SIGKILL
    # At once, while the old JVM may still be dying.
    assert once.open(root, spark=spark).run("orders", date=DAYS[0]).outcome == "done"
    assert ids(root) == expected_ids(name, DAYS[:1])
    assert commits(root) == 1


def test_two_processes_that_create_the_table_at_once_both_end_well_and_leave_no_jvm_behind(tmp_path):
    root = orders_project(tmp_path, "replace_interval")
    command = [ONCELAKE, "run", "orders", "--date", DAYS[0], "--json", "-p", str(root)]
    # Each in a session of its own, in which its JVM is too.
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) for _ in range(2)]
    answers = [process.communicate(timeout=300)[0] for process in running]
    assert all(process.returncode in (0, 4) for process in running)
    outcomes = sorted(json.loads(answer)["works"][0]["outcome"] for answer in answers)
    assert outcomes in (["already_done", "committed"], ["busy", "committed"])
    assert ids(root) == expected_ids("replace_interval", DAYS[:1])
    assert commits(root) == 1
    deadline = 200
    while any(session_has_a_process(process.pid) for process in running) and deadline:
        deadline -= 1
        subprocess.run(["sleep", "0.1"], check=True)
    assert deadline


def session_has_a_process(number):
    """Return whether a process of a session is left."""
    for file in list(Path("/proc").glob("[0-9]*/stat")):
        with contextlib.suppress(OSError):
            if int(file.read_text().rpartition(")")[2].split()[3]) == number:
                return True
    return False


def test_ctrl_c_says_what_is_committed_and_running_again_goes_on(tmp_path, spark):
    root = orders_project(tmp_path, "append")
    command = [
        ONCELAKE,
        "run",
        "--from",
        DAYS[0],
        "--to",
        "2024-03-17",
        "--json",
    ]
    process = subprocess.Popen([*command, "-p", str(root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("committed"):
            process.send_signal(signal.SIGINT)
            break
    answer, _ = process.communicate(timeout=120)
    report = json.loads(answer)
    assert (process.returncode, report["outcome"]) == (130, "interrupted")
    landed = commits(root)
    assert landed == sum(work["outcome"] == "committed" for work in report["works"])
    assert once.open(root, spark=spark).run("orders", start=DAYS[0], end="2024-03-17").outcome == "done"
    assert ids(root) == expected_ids("append")


def test_an_interrupt_that_a_library_swallows_still_ends_the_run_between_two_commits(tmp_path, spark, monkeypatch):
    from oncelake.listeners import ledger

    def swallows(path, rows):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ledger, "_append", swallows)
    root = orders_project(tmp_path, "append")
    report = once.open(root, spark=spark).run("orders", start=DAYS[0], end="2024-03-17")
    assert (report.outcome, [work.outcome for work in report.works]) == ("interrupted", ["committed"])
    assert ids(root) == expected_ids("append", DAYS[:1])
