"""A store that refuses every request: each command ends with `lake_unreachable` and its JSON document, without Spark."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from oncelake.cli.main import cli
from oncelake.storage.lock import table_lock
from oncelake.storage.object_store import store_problem
from support.s3 import REGION, Fault, proxy

PIPELINES = """
import oncelake as once

@once.pipeline(every="day", start="2024-03-01", reads=once.table("raw", time="at"), writes=once.merge("app", keys="id"))
def merging(raw):
    return raw
"""
COMMANDS = [
    "status",
    "plan merging",
    "history app",
    "run merging --date 2024-03-01",
    "restore app --to 1 --yes",
    "fingerprint app",
    "restate merging --date 2024-03-01 --yes",
]
# These import pyspark before they read a log.
WITH_PYSPARK = ["repair app --keys id --dry-run", "rebuild app --yes"]


@pytest.fixture(scope="module")
def refusing():
    with proxy("http://127.0.0.1:1") as front:
        front.fault = lambda *_: Fault(404, "NoSuchBucket")
        yield front


@pytest.fixture
def invoke(refusing, tmp_path, monkeypatch):
    storage = f"{{endpoint: '{refusing.address}', allow_http: true, region: {REGION}}}"
    (tmp_path / "oncelake.yaml").write_text(f"lake: s3a://absent/lake\nstorage: {storage}\n")
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    def run(command):
        return CliRunner().invoke(cli, [*command.split(), "--json", "-p", str(tmp_path)])

    return run


@pytest.mark.filterwarnings("ignore:.*could not acquire a lease")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_that_the_lake_cannot_be_reached(invoke, command):
    ended = invoke(command)
    assert ended.stdout, ended.exception
    assert_unreachable(ended.exit_code, ended.stdout)


@pytest.mark.parametrize("command", WITH_PYSPARK)
def test_commands_that_start_spark_say_it_before(invoke, tmp_path, command):
    program = [sys.executable, "-c", "from oncelake.cli.main import main; main()", *command.split(), "--json"]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert_unreachable(ended.returncode, ended.stdout)


def assert_unreachable(code, output):
    assert code == 1
    error = json.loads(output)["error"]
    assert error["code"] == "lake_unreachable"
    # The reason is the code of the store's own answer.
    assert error["message"].endswith("NoSuchBucket")
    assert "\n" not in error["message"]


def test_doctor_finds_a_lake_that_cannot_be_reached(invoke):
    ended = invoke("doctor")
    findings = json.loads(ended.stdout)["findings"]
    assert ("lake_unreachable", "error") in [(each["code"], each["severity"]) for each in findings]
    assert ended.exit_code == 3


def test_a_lease_that_cannot_be_acquired_is_a_warning_of_one_line(invoke):
    invoke("status")
    lock = table_lock("s3a://absent/lake", "app", 1, lambda: False)
    with pytest.warns(UserWarning, match="could not acquire a lease") as warned, lock:
        pass
    assert "\n" not in str(warned[0].message)
    assert "NoSuchBucket" in str(warned[0].message)


def test_what_a_store_says_is_one_line_with_its_code():
    answer = (
        '404 Not Found: <?xml version="1.0"?>\n<Error>\n<Code>NoSuchBucket</Code></Error>\n\nDebug source:\nGeneric {'
    )
    assert store_problem(OSError(answer)) == "404 Not Found: NoSuchBucket"
    assert store_problem(OSError("error sending request\n\nDebug source:\n{")) == "error sending request"
