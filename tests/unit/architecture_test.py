"""Budgets: growth is a decision, not an accident."""

import ast
import re
from pathlib import Path

import pytest

from oncelake.model.failpoints import FAILPOINTS, OF_ARRIVALS, OF_OPERATIONS, OF_STREAMS

PACKAGE = Path(__file__).parents[2] / "src/oncelake"
FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path):
    source = path.read_text()
    assert source.count("\n") <= 400
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 50, node.name


def test_file_names_say_what_is_inside():
    assert {path.stem for path in FILES}.isdisjoint({"utils", "util", "common", "helpers", "helper", "misc", "core"})


def test_every_failpoint_is_listed():
    reached = {name for path in FILES for name in re.findall(r'failpoint\("(\w+)"\)', path.read_text())}
    assert reached == {*FAILPOINTS, *OF_OPERATIONS, *OF_STREAMS, *OF_ARRIVALS}
