"""A session that the program has started itself, without Delta."""

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import oncelake as once

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

@once.pipeline(reads={}, writes=once.overwrite("made"))
def made():
    return spark.range(3)

try:
    once.write(spark.range(3), once.append("written"), work="job/1", lake=sys.argv[1])
except once.OncelakeError as error:
    print(error.code, error.next)
for work in once.Project.of(made, lake=sys.argv[1]).run().works:
    print(work.code)
print(*Path(sys.argv[1]).glob("*/_delta_log"))
"""


def test_a_session_without_delta_is_named_as_the_cause(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    written, run, tables = done.stdout.splitlines()
    assert written.startswith("delta_missing")
    assert written.endswith("call once.write again")
    assert run == "delta_missing"
    assert tables == ""  # delta-rs could have created them
