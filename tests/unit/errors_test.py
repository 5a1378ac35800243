"""The tree of errors: the docstring, the classes and their codes say the same."""

import inspect
import re
import string

import pytest

from oncelake import errors
from oncelake.errors import OncelakeError, Retry

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, OncelakeError)]
DRAWN = re.compile(r"^    ([│├└─ ]*)(\w+)(?: {2,}(?:exit (\d))?.*)?$", re.MULTILINE)


def drawn():
    """Name, parent and exit code of every line of the tree in the docstring."""
    above = {}
    for lead, name, exit_code in DRAWN.findall(errors.__doc__):
        depth = len(lead) // 4
        above[depth] = name
        yield name, above.get(depth - 1) if depth else None, exit_code


def placeholders(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    assert sorted(name for name, _, _ in drawn()) == sorted(one.__name__ for one in CLASSES)
    for name, parent, _ in drawn():
        assert parent is None or getattr(errors, name).__bases__[0].__name__ == parent


def test_the_exit_codes_in_the_docstring_are_those_of_the_classes():
    said = {name: int(code) for name, _, code in drawn() if code}
    assert said
    assert said == {name: getattr(errors, name).exit_code for name in said}


def test_every_error_has_a_code_of_its_own():
    codes = [one.code for one in CLASSES]
    assert sorted(set(codes)) == sorted(codes)


def test_a_code_is_the_classs_own_and_not_inherited():
    assert all("code" in vars(one) for one in CLASSES)


@pytest.mark.parametrize("error", CLASSES)
def test_what_an_error_says_and_hints_is_made_from_its_facts(error):
    facts = {name: f"<{name}>" for name in placeholders(error.says) | placeholders(error.hint)}
    raised = error(**facts)
    assert raised.facts == facts
    assert all(f"<{name}>" in raised.message for name in placeholders(error.says))
    assert all(f"<{name}>" in raised.next for name in placeholders(error.hint))
    assert str(raised).startswith(raised.message)


@pytest.mark.parametrize("error", CLASSES)
def test_braces_in_facts_are_left_alone(error):
    facts = dict.fromkeys(placeholders(error.says) | placeholders(error.hint), "{start:%Y} {0} {")
    assert "{start:%Y}" in str(error(**facts))


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_says_whether_trying_again_helps(error):
    assert isinstance(error.retry, Retry)


def test_every_misuse_exits_with_2():
    assert {one.exit_code for one in CLASSES if issubclass(one, errors.UsageError)} == {2}


def test_a_lost_work_exits_with_4_and_may_be_tried_again():
    assert (errors.TableBusy.exit_code, errors.TableBusy.retry) == (4, Retry.HELPS)
