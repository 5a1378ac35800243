"""`oncelake doctor` and `restart` on a real stream: what is found and fixed, Spark goes on from."""

import json
import shutil

import pytest
from click.testing import CliRunner

import oncelake as once
from oncelake.cli.main import cli

PIPELINES = """
import oncelake as once

@once.pipeline(
    name="payments",
    reads=once.kafka("{topic}", servers="{servers}", max_messages=2),
    writes=[once.append("bronze"), once.merge("silver", keys="value")],
)
def payments(messages):
    rows = messages.select("value")
    return {{"bronze": rows, "silver": rows}}

@once.pipeline(name="copies", reads=once.kafka("{topic}", servers="{servers}"), writes=once.append("copied"))
def copies(messages):
    return messages.select("value")
"""


class Lake:
    """A project folder with a stream of payments."""

    def __init__(self, root, spark, kafka):
        self.root, self.spark, self.kafka = root, spark, kafka
        self.topic = kafka.new_topic()
        (root / "oncelake.yaml").write_text("lake: lake\n")
        (root / "pipelines.py").write_text(PIPELINES.format(topic=self.topic, servers=kafka.servers))

    def run(self, *values):
        self.kafka.produce(self.topic, *values)
        report = once.open(self.root, spark=self.spark).run("payments")
        assert report.outcome == "done", [work.error for work in report.works]
        return report

    def values(self, target="bronze"):
        rows = self.spark.read.format("delta").load(str(self.root / "lake" / target)).collect()
        return sorted(row["value"] for row in rows)

    def checkpoint(self, name="payments"):
        return self.root / "lake/_oncelake/streams" / name / "1/checkpoint"

    def call(self, *arguments):
        """Return the exit code and the JSON document of a command."""
        result = CliRunner().invoke(cli, [*arguments, "--project", str(self.root), "--json"], prog_name="oncelake")
        return result.exit_code, json.loads(result.stdout)

    def doctor(self, *options):
        code, document = self.call("doctor", "--streams", "payments", *options)
        return code, [(each["code"], each["fixed"]) for each in document["findings"]]


@pytest.fixture
def lake(tmp_path, spark, kafka):
    return Lake(tmp_path, spark, kafka)


def test_what_doctor_fixes_spark_goes_on_from(lake):
    lake.run("a", "b", "c", "d", "e")
    assert lake.doctor() == (0, [])
    checkpoint = lake.checkpoint()
    (checkpoint / "offsets/2").write_text("v1\n{")
    (checkpoint / "offsets/1").unlink()
    (checkpoint / "commits/2").write_text("")
    (checkpoint / "offsets/.3.6a.tmp").write_text("")
    (checkpoint / "metadata").unlink()
    codes = ["temporary_files", "torn_offsets", "torn_commit", "offsets_missing"]
    code, found = lake.doctor()
    assert (code, [each for each, _ in found][:4]) == (3, codes)
    code, found = lake.doctor("--fix")
    assert code == 0
    assert {each for each, fixed in found if fixed} == {*codes, "missing_metadata"}
    assert lake.doctor() == (0, [])
    assert [(work.slice, work.outcome) for work in lake.run("f").works] == [
        ("batch 2", "already_done"),
        ("batch 2", "already_done"),
        ("batch 3", "committed"),
        ("batch 3", "committed"),
    ]
    assert (lake.values(), lake.values("silver")) == (list("abcdef"),) * 2


def test_lost_copied_and_outlived_checkpoints_are_found(lake):
    lake.run("a", "b", "c")
    # Copied to a stream that has not begun: found by the id of the query.
    shutil.copytree(lake.checkpoint(), lake.checkpoint("copies"))
    code, document = lake.call("doctor", "--streams", "copies", "--fix")
    (finding,) = document["findings"]
    assert (code, finding["code"], finding["fixed"]) == (3, "checkpoint_copied", False)
    assert "from payments" in finding["message"]
    # Beyond the retention of the topic: counted, and never fixed.
    lake.kafka.produce(lake.topic, "d", "e")
    lake.kafka.delete_before(lake.topic, {0: 5})
    code, document = lake.call("doctor", "--streams", "payments", "--fix")
    (finding,) = document["findings"]
    assert (code, finding["code"], finding["fix"]) == (3, "beyond_retention", "")
    assert f"2 offsets of {lake.topic}/0 (3 to 4)" in finding["message"]
    # Lost, and adopted by the command.
    shutil.rmtree(lake.checkpoint())
    assert lake.doctor() == (3, [("checkpoint_lost", False)])
    code, document = lake.call("restart", "payments", "--adopt", "--dry-run")
    assert (code, document["outcome"], document["next_batch"]) == (0, "planned", 2)
    assert lake.call("restart", "payments", "--adopt")[0] == 2  # nobody to ask
    code, document = lake.call("restart", "payments", "--adopt", "--yes")
    assert (code, document["outcome"], document["how"]) == (0, "done", "adopt")
    assert lake.doctor() == (3, [("beyond_retention", False)])
