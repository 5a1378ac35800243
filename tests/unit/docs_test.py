"""The reference knows every command, setting, error code and public name."""

import re
from pathlib import Path

import pytest

import oncelake as once
from oncelake import errors
from oncelake.cli.main import cli
from oncelake.declare import settings

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference.md").read_text()
ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.OncelakeError)]


@pytest.mark.parametrize("error", [e for e in ERRORS if e is not errors.OncelakeError], ids=lambda e: e.code)
def test_every_error_has_its_row(error):
    assert f"| `{error.code}` | {error.exit_code} | {error.retry.value} |" in REFERENCE


@pytest.mark.parametrize("command", cli.commands)
def test_every_command_has_its_heading(command):
    assert f"### `oncelake {command}" in REFERENCE


@pytest.mark.parametrize("key", settings._KEYS)
def test_every_setting_has_its_row(key):
    assert f"| `{key}` |" in REFERENCE


@pytest.mark.parametrize("name", [n for n in once.__all__ if not n.startswith("_") and n != "Project"])
def test_every_public_name_is_there(name):
    assert f"once.{name}" in REFERENCE


def test_the_changelog_and_the_version_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert not released or released[0] == once.__version__


def test_every_module_is_in_the_tree_of_the_architecture():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    tree, proof = page.split("```")[1], page.split("## The proof")[1].split("## ")[0]
    folders = dict(re.findall(r"^  (\w+)/?( .*(?:\n {4}.*)*)", tree, re.MULTILINE))
    package = ROOT / "src/oncelake"
    missing = []
    for path in package.rglob("*.py"):
        folder, *inside = path.relative_to(package).with_suffix("").parts
        said = folders.get(folder, "") + (proof if folder == "proving" else "")
        if folder != "__init__" and (
            not said or (inside[-1:] not in ([], ["__init__"]) and not re.search(rf"\b{inside[-1]}\b", said))
        ):
            missing.append(str(path.relative_to(package)))
    assert missing == []
