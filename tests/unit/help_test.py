"""Help texts: complete sentences at 80 columns, and exactly the exit codes that exist."""

import re

import click
import pytest
from click.testing import CliRunner

from oncelake import errors
from oncelake.cli.main import EXIT_CODES, cli
from oncelake.cli.prove import LABELS
from oncelake.model.work import EXIT_CODES as RUN_EXIT_CODES
from oncelake.proving.proof import SCENARIOS
from oncelake.proving.verdict import Verdict, Violation

COMMANDS = ["", *cli.commands]
OPTIONS = [
    pytest.param(option, id=f"{name} {option.opts[0]}")
    for name, command in {"oncelake": cli, **cli.commands}.items()
    for option in command.params
    if isinstance(option, click.Option)
]


def help_of(command):
    result = CliRunner().invoke(cli, [*command.split(), "--help"], prog_name="oncelake", env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def verdict(violation):
    facts = {"job": "", "scope": "", "level": "", "seed": 0, "points": 0, "states": 0, "confirmed": "0 of 0"}
    return Verdict(**facts, counts={}, fingerprints={}, seconds=0.0, reproduce="", violation=violation)


def test_help_lists_the_exit_codes_of_errors_and_outcomes():
    documented = {int(code) for code in re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)}
    raised = {error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")}
    proofs = {verdict(violation).exit_code for violation in (None, Violation("", "", ""))}
    assert documented == raised | set(RUN_EXIT_CODES.values()) | proofs


def test_help_prints_the_exit_codes():
    assert all(line in help_of("") for line in EXIT_CODES.removeprefix("\b\n").splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_truncates_nothing(command):
    usage, _, text = help_of(command).partition("\n\n")
    assert usage.startswith("Usage: oncelake")
    for line in text.splitlines():
        assert len(line) <= 80, line
        assert not line.endswith(("...", "…")), line
        assert "\\b" not in line, line


@pytest.mark.parametrize("command", cli.commands.values(), ids=cli.commands)
def test_every_command_has_a_help_text_of_whole_sentences(command):
    short = command.get_short_help_str(limit=61)  # what fits beside the longest name at 80 columns
    assert short.endswith(".")
    assert not short.endswith("...")
    assert command.help is not None
    assert command.help.rstrip().endswith((".", '"'))


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_has_a_help_text_of_whole_sentences(option):
    assert option.help is not None
    assert option.help.endswith(".")
    assert not option.help.endswith("...")


def test_every_scenario_of_a_proof_has_a_label():
    assert set(LABELS) == set(SCENARIOS)
