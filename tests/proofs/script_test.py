"""Any PySpark script is proven or refuted, with no line of oncelake in it and no real table written."""

import json
import subprocess

import pytest

from oncelake.proving.calls import compiler
from support.processes import ONCELAKE, all_files

pytestmark = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("nightly").getOrCreate()
orders = spark.read.json("landing").selectExpr("id", "id * 2 AS amount")
orders.write.format("delta").mode(sys.argv[1]).save("lake/orders")
spark.stop()
"""


@pytest.fixture
def job(tmp_path, spark):
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "orders.json").write_text("".join(json.dumps({"id": i}) + "\n" for i in range(10)))
    (tmp_path / "lake").mkdir()
    spark.range(5).selectExpr("id", "id AS amount").write.format("delta").save(str(tmp_path / "lake" / "orders"))
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def prove(job, mode, *options):
    command = [ONCELAKE, "prove", "--script", "job.py", "--table", "lake/orders", "--json", *options, "--", mode]
    before = all_files(job)
    done = subprocess.run(command, cwd=job, capture_output=True, text=True, check=False)
    assert all_files(job) == before
    return done.returncode, json.loads(done.stdout)


@pytest.mark.long
def test_a_reload_is_proven(job):
    tried = [option for name in ("twice", "crash", "kill", "fault") for option in ("--scenario", name)]
    code, document = prove(job, "overwrite", "--points", "5", "--kills", "1", "--faults", "2", *tried)
    assert (code, document["verdict"], document["violation"]) == (0, "proven", None)
    assert document["fingerprints"]["lake/orders"]["rows"] == 10
    assert document["states"] == 5


def test_an_append_is_refuted_with_the_rows_it_doubles(job):
    code, document = prove(job, "append", "--points", "5")
    assert (code, document["verdict"], document["violation"]["case"]) == (3, "violated", "twice")
    assert document["violation"]["surplus"] == 10
    assert document["reproduce"].endswith("--case twice -- append")
