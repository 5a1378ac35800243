"""The fingerprint of a pipeline: the same for every version of Python and every layout, another for another declaration."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import oncelake as once
from oncelake.declare import code_fingerprint as module
from oncelake.declare.code_fingerprint import code_fingerprint, pipeline_fingerprint

CODE = '''
import oncelake as once


def helper(value):
    """Double it."""
    return value * 2


def other(value):
    return value


@decorated("x")
def load(frame, *, limit=3):
    """Say what this does."""
    # a comment
    name = f"{helper(limit)!r:>{limit}} of " "it"
    found = [other(value) for value in range(limit) if value]
    if found:
        frame = frame.where(lambda row: helper(row), (name,), [1, 2.5, None, True, b"x", ...])
    return frame
'''
# As another formatter would write it, with other comments.
RELAID = """
import oncelake as once

def helper(value):
    return (
        value * 2  # twice
    )

def other(value): return value

@decorated('x')
def load(
    frame,
    *,
    limit = 3,
):
    name = (f'{helper(limit)!r:>{limit}} of '
            'it')
    found = [
        other(value) for value in range(limit) if value
    ]


    if (found):
            frame = frame.where(
                lambda row: helper(row), (name,), [1, 2.5, None, True, b'x', ...],
            )
    return (frame)
"""
EXPECTED = "8ddc5f22872527ba"


def load(text, folder, name="load"):
    file = folder / f"m{abs(hash(text))}.py"
    file.write_text(text.replace("import oncelake as once", "def decorated(name): return lambda function: function"))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


def test_comments_layout_and_docstrings_do_not_count(tmp_path):
    assert code_fingerprint(load(CODE, tmp_path)) == code_fingerprint(load(RELAID, tmp_path)) == EXPECTED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value * 2", "value * 3"),
        ("return value\n", "return value + 0\n"),
        ('@decorated("x")', '@decorated("y")'),
        ("(name,)", "(name)"),
        ("None, True", "None, 1"),
        ("2.5", "2.50001"),
        (" of ", " off "),
        ("!r:", "!s:"),
        ("limit=3", "limit=4"),
        ("        frame = frame.where", "        pass\n    frame = frame.where"),
    ],
)
def test_code_counts(tmp_path, old, new):
    assert old in CODE
    assert code_fingerprint(load(CODE.replace(old, new), tmp_path)) != EXPECTED


# This one, and whatever else a developer's machine has.
PYTHONS = [Path(sys.executable), *sorted(Path("~/.pyenv/versions").expanduser().glob("3.1[1-9]*/bin/python3"))]
SCRIPT = """
import importlib.util, sys

def load(path):
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded

module = load(sys.argv[1])
print(module.code_fingerprint(load(sys.argv[2]).load))
"""


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_the_version_of_python_does_not_count(tmp_path, python):
    load(CODE, tmp_path)
    (file,) = tmp_path.glob("m*.py")
    command = [str(python), "-c", SCRIPT, module.__file__, str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == EXPECTED


def test_functions_of_a_closure_count(tmp_path):
    text = "def make():\n    def inner(v):\n        return v + 1\n    def load(v):\n        return inner(v)\n    return load\n"
    found = [code_fingerprint(load(code, tmp_path, "make")()) for code in (text, text.replace("v + 1", "v + 2"))]
    assert found[0] != found[1]


def test_code_without_a_source_has_no_fingerprint():
    assert code_fingerprint(len) is None
    assert code_fingerprint(eval("lambda frame: frame")) is None


def fingerprint(writes, reads=None):
    @once.pipeline(every="day", start="2024-03-14", reads=reads or once.table("raw", time="at"), writes=writes)
    def orders(raw):
        return raw

    return pipeline_fingerprint(orders, orders.writes[0])


def test_the_declaration_counts():
    declared = [
        fingerprint(once.replace_interval("t", time="at")),
        fingerprint(once.replace_interval("t", time="at", within={"region": "EU"})),
        fingerprint(once.replace_interval("t", time="at", within={"region": ["EU", "US"]})),
        fingerprint(once.replace_interval("t", time="day")),
        fingerprint(once.replace_interval("t", time="at"), once.table("raw", time="other")),
        fingerprint(once.replace_interval("t", time="at"), once.table("raw2", time="at")),
        fingerprint(once.replace_interval("t", time="at"), once.table("raw", time="at", latest={"keys": "id"})),
        fingerprint(once.append("t")),
        fingerprint(once.merge("t", keys="id")),
        fingerprint(once.merge("t", keys=["id", "day"])),
        fingerprint(once.merge("t", keys="id", latest_by="at")),
        fingerprint(once.merge("t", keys="id", delete_when="op = 'D'")),
    ]
    assert len(set(declared)) == len(declared)


def test_what_changes_no_row_does_not_count():
    assert fingerprint(once.replace_interval("t", time="at")) == fingerprint(
        once.replace_interval("t", time="at", partition_by="at")
    )
    assert fingerprint(once.merge("t", keys="id")) == fingerprint(once.merge("t", keys="id", deletion_vectors=True))
    both = {"a": 1, "b": 2}
    assert fingerprint(once.replace_interval("t", time="at", within=both)) == fingerprint(
        once.replace_interval("t", time="at", within={"b": 2, "a": 1})
    )


def test_another_target_does_not_count():
    both = [once.replace_interval("t", time="at"), once.append("log")]
    assert fingerprint(both) == fingerprint(both[:1])


def test_the_name_of_the_pipelines_own_function_does_not_count(tmp_path):
    text = "def load(v):\n    return v + 1\n"
    renamed = text.replace("def load", "def load_orders")
    assert code_fingerprint(load(text, tmp_path, "load")) == code_fingerprint(load(renamed, tmp_path, "load_orders"))


USES = """
import functools
import re
from dataclasses import dataclass
from math import pi

LIMIT = 5
RATES = {"EU": 1.0, "US": 1.1}
RATES["UK"] = 1.2
NAMES = ["a"]
NAMES.append("b")
if LIMIT:
    SIGN = 1
else:
    SIGN = -1
BASE = 7
DERIVED = BASE * 2
DEFAULT = 11
UNUSED = 12
WORDS = re.compile("x+")
FILLED = {}


def by_rule(value):
    return value + 21


RULES = {"one": by_rule}


@dataclass
class Row:
    \"\"\"A row.\"\"\"

    name: str = "n"

    def doubled(self):
        return FACTOR * 2


FACTOR = 31


@functools.lru_cache
def cached(value):
    return value + 41


def helper(value):
    return value + SIGN


def load(frame, limit=DEFAULT):
    FILLED[len(FILLED)] = object()
    UNUSED = frame.where
    found = [RATES[name] for name in NAMES if helper(LIMIT)]
    return found, (lambda: DERIVED), RULES, Row(), cached(1), WORDS, pi, UNUSED
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 5", "LIMIT = 6"),
        ('"US": 1.1', '"US": 1.15'),
        ("1.2", "1.25"),
        ('append("b")', 'append("c")'),
        ("SIGN = -1", "SIGN = -2"),
        ("BASE = 7", "BASE = 8"),
        ("DEFAULT = 11", "DEFAULT = 12"),
        ("x+", "y+"),
        ("value + 21", "value + 22"),
        ('"one"', '"two"'),
        ('"n"', '"m"'),
        ("FACTOR * 2", "FACTOR * 3"),
        ("FACTOR = 31", "FACTOR = 32"),
        ("value + 41", "value + 42"),
    ],
)
def test_constants_and_classes_of_the_module_count(tmp_path, old, new):
    assert USES.count(old) == 1
    found = [code_fingerprint(load(text, tmp_path)) for text in (USES, USES.replace(old, new))]
    assert None not in found
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UNUSED = 12", "UNUSED = 13"),
        ("LIMIT = 5", "LIMIT = (5)  # days"),
        ("A row.", "One row."),
        ("import re", "import json\nimport re"),
        ("BASE = 7", "OTHER = 1\n\nBASE = 7"),
    ],
)
def test_what_the_function_does_not_use_of_its_module_does_not_count(tmp_path, old, new):
    assert code_fingerprint(load(USES, tmp_path)) == code_fingerprint(load(USES.replace(old, new, 1), tmp_path))


def test_a_value_that_is_filled_at_run_time_does_not_count(tmp_path):
    found = load(USES, tmp_path)
    before = code_fingerprint(found)
    found.__globals__["FILLED"]["x"] = object()
    assert code_fingerprint(found) == before


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_constants_count_alike_in_every_version_of_python(tmp_path, python):
    expected = code_fingerprint(load(USES, tmp_path))
    (file,) = tmp_path.glob("m*.py")
    command = [str(python), "-c", SCRIPT, module.__file__, str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


def test_constants_of_a_decorated_helper_count(tmp_path):
    text = """
import functools

N = 1


def twice(function):
    @functools.wraps(function)
    def wrapper(value):
        return function(value) * 2

    return wrapper


@twice
def helper(value):
    return value + N


def load(frame):
    return helper(frame)
"""
    found = {
        code_fingerprint(load(text.replace(*each), tmp_path)) for each in (("", ""), ("N = 1", "N = 2"), ("* 2", "* 3"))
    }
    assert len(found) == 3
