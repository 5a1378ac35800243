"""The stream of the example, killed with its JVM again and again: the tables are what was sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "payments" / "demo.py"
KILLS = int(os.environ.get("ONCELAKE_STREAM_KILLS", "10"))


def play(folder, *options):
    played = subprocess.run([sys.executable, DEMO, folder, *options], check=False, capture_output=True, text=True)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "no message lost, none doubled" in played.stdout
    assert (folder / "totals.svg").exists()
    return played.stdout


def test_a_stream_that_is_killed_between_two_targets_stores_what_was_sent(tmp_path):
    play(tmp_path / "demo", "--kills", "1", "--no-plain")


@pytest.mark.long
def test_plain_foreach_batch_doubles_where_the_pipelines_do_not(tmp_path):
    assert "messages are in bronze twice" in play(tmp_path / "demo", "--kills", "2")


@pytest.mark.long
def test_a_stream_that_is_killed_often_stores_what_was_sent(tmp_path):
    assert f"killed {KILLS} times, no message lost" in play(tmp_path / "demo", "--kills", str(KILLS), "--no-plain")
