"""`run --watch`: files are ingested as they arrive, and SIGTERM ends the run between two commits."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PIPELINES = """
import oncelake as once

@once.pipeline(reads=once.files("landing", format="json"), writes=once.append("bronze.events"))
def events(rows):
    return rows
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watch_ingests_what_arrives_and_stops_cleanly(tmp_path, number):
    (tmp_path / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/a.json").write_text('{"id": 1}\n')
    command = [BIN / "oncelake", "run", "--watch", "0.2", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith("waiting: nothing new"):
                if (tmp_path / "landing/b.json").exists():
                    break
                (tmp_path / ".b").write_text('{"id": 2}\n')
                os.replace(tmp_path / ".b", tmp_path / "landing/b.json")
                # The next line that waits may be of a look before the file came: wait for its commit.
                for later in process.stderr:
                    seen.append(later)
                    if "batch 1" in later and later.startswith("committed"):
                        break
        process.send_signal(number)
        output, errors = process.communicate()
    document = json.loads(output)
    assert process.returncode == 0, "".join(seen) + errors
    assert [(work["slice"], work["outcome"]) for work in document["works"]] == [
        ("batch 0", "committed"),
        ("batch 1", "committed"),
    ]
