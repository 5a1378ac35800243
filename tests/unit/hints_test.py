"""Commands that an output recommends work on the project and the profile of the command that printed them."""

import json

import pytest
from click.testing import CliRunner

from oncelake.cli.hints import add_options, chosen_options
from oncelake.cli.main import cli

PIPELINES = """
import oncelake as once

@once.pipeline(every="day", start="2024-03-01", reads=once.table("raw", time="at"), writes=once.append("app"))
def appending(raw):
    return raw
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "oncelake.yaml").write_text("lake: lake\nprofiles: {prod: {lake: other}}\n")
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    return tmp_path


@pytest.mark.parametrize("before", [True, False])
def test_the_next_command_has_the_profile_and_the_project(root, before):
    chosen = ["--profile", "prod", "--project", str(root)]
    command = ["restore", "app", "--to", "1", "--yes", "--json"]
    ended = CliRunner().invoke(cli, [*chosen, *command] if before else [*command, *chosen])
    expected = f"oncelake --project {root} --profile prod status"
    assert json.loads(ended.stdout)["error"]["next"] == expected
    assert f"next: {expected}\n" in ended.stderr


def test_without_options_the_next_command_has_none(root, monkeypatch):
    monkeypatch.chdir(root)
    # Whoever copies the command has the same environment.
    monkeypatch.setenv("ONCELAKE_PROFILE", "prod")
    ended = CliRunner().invoke(cli, ["restore", "app", "--to", "1", "--yes", "--json"])
    assert json.loads(ended.stdout)["error"]["next"] == "oncelake status"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fix it, then run: oncelake run a", "fix it, then run: oncelake --profile 'a b' run a"),
        (
            "oncelake restate a, or oncelake run a",
            "oncelake --profile 'a b' restate a, or oncelake --profile 'a b' run a",
        ),
        ("elsewhere: oncelake run a --profile …", "elsewhere: oncelake run a --profile …"),
        ("python -m oncelake.spark.prepare", "python -m oncelake.spark.prepare"),
        ("oncelake.yaml:3: oncelake does not write", "oncelake.yaml:3: oncelake does not write"),
    ],
)
def test_only_commands_of_ours_get_the_options(text, expected):
    assert add_options(text, chosen_options(None, "a b")) == expected
    assert add_options(text, chosen_options(None, None)) == text
