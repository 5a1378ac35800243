"""`oncelake doctor` without streams: the set-up, quickly and without a JVM."""

import json

import pytest
from click.testing import CliRunner

from oncelake.cli.main import cli


@pytest.fixture
def project(tmp_path):
    (tmp_path / "oncelake.yaml").write_text("lake: lake\n")
    (tmp_path / "pipelines.py").write_text(
        "import oncelake as once\n"
        "reads = once.table('raw', time='at')\n"
        "writes = once.append('bronze')\n"
        "@once.pipeline(every='day', start='2024-01-01', reads=reads, writes=writes)\n"
        "def orders(raw):\n    return raw\n"
    )
    return tmp_path


def doctor(project, *options):
    arguments = ["doctor", *options, "--project", str(project), "--json"]
    result = CliRunner().invoke(cli, arguments, prog_name="oncelake")
    return result.exit_code, json.loads(result.stdout)


def test_a_sound_set_up_has_no_errors(project):
    code, document = doctor(project)
    assert code == 0
    assert document["examined"] == ["set-up"]
    assert not any(each["severity"] == "error" for each in document["findings"])


def test_a_missing_java_is_an_error(project, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(project))
    code, document = doctor(project)
    assert (code, [each["code"] for each in document["findings"]]) == (3, ["java"])


def test_a_lake_that_is_a_file_is_an_error(project):
    (project / "lake").write_text("a file")
    code, document = doctor(project)
    assert (code, [each["code"] for each in document["findings"]]) == (3, ["lake"])


def test_a_project_without_streams_has_none_to_examine(project):
    assert doctor(project, "--streams") == (0, {"examined": [], "findings": []})


def test_fix_is_for_streams(project):
    assert doctor(project, "--fix")[0] == 2


def test_restart_is_for_streams(project):
    result = CliRunner().invoke(cli, ["restart", "orders", "--adopt", "--yes", "-p", str(project)])
    assert result.exit_code == 2
    assert "does not read a stream" in result.stderr


@pytest.mark.parametrize("options", [[], ["--adopt", "--from-beginning"], ["--adopt", "--accept-loss"]])
def test_restart_takes_one_way(project, options):
    assert CliRunner().invoke(cli, ["restart", "orders", *options, "-p", str(project)]).exit_code == 2
