"""The page of promises: every row names tests that exist, and only the two last sections may have rows without a test."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/promises.md").read_text()
WITHOUT_TESTS = ["Promised, not yet tested", "Not promised"]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
MOST = 3


def sections_of(page):
    """Return the lines of each section of a page, by its heading."""
    titles = re.findall(r"^## (.*)$", page, re.MULTILINE)
    bodies = re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]
    return {title: body.strip().splitlines() for title, body in zip(titles, bodies, strict=True)}


def rows_of(lines):
    """Return the rows of a table, without its heading and the line below it."""
    return [line for line in lines if line.startswith("|")][2:]


@cache
def functions_in(path):
    """Return the functions and methods of a file; none if there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing_tests(page):
    """Return the tests that a page names and that do not exist."""
    return sorted({f"{path}::{name}" for path, name in NAMED.findall(page) if name not in functions_in(path)})


def rows_without_a_test(page):
    """Return the promises of a page that name no test, or too many, outside the sections that may."""
    tested = {title: lines for title, lines in sections_of(page).items() if title not in WITHOUT_TESTS}
    rows = [row for lines in tested.values() for row in rows_of(lines)]
    return [row for row in rows if not 1 <= len(NAMED.findall(row.split("|")[2])) <= MOST]


def test_every_named_test_exists():
    assert missing_tests(PAGE) == []


def test_every_promise_names_one_to_three_tests():
    assert rows_without_a_test(PAGE) == []


def test_everything_that_looks_like_a_test_is_checked():
    assert len(NAMED.findall(PAGE)) == PAGE.count("::")


def test_every_section_says_something_and_the_two_without_tests_are_the_last():
    sections = sections_of(PAGE)
    assert list(sections)[-2:] == WITHOUT_TESTS
    assert all(rows_of(lines) for title, lines in sections.items() if title != WITHOUT_TESTS[-1])
    assert any(line.startswith("- ") for line in sections[WITHOUT_TESTS[-1]])


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_the_page_is_linked(page):
    assert "promises.md)" in (ROOT / page).read_text()


BROKEN = """
## Exactly once

| promise | tested in | limit |
| --- | --- | --- |
| Kept. | `tests/unit/promises_test.py::test_the_page_is_linked` | |
| Renamed. | `tests/unit/promises_test.py::test_nobody_wrote` | |
| Moved. | `tests/unit/nowhere_test.py::test_the_page_is_linked` | |
| Untested. | | `tests/unit/promises_test.py::test_the_page_is_linked` |

## Promised, not yet tested

| promise | said in |
| --- | --- |
| Soon. | README |
"""


def test_a_missing_test_and_a_row_without_one_are_found():
    assert missing_tests(BROKEN) == [
        "tests/unit/nowhere_test.py::test_the_page_is_linked",
        "tests/unit/promises_test.py::test_nobody_wrote",
    ]
    assert [row.split("|")[1] for row in rows_without_a_test(BROKEN)] == [" Untested. "]
