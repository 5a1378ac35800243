"""A fingerprint of a pipeline's function: it changes when the code does, not when its comments or layout do."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any


def code_fingerprint(function: Callable[..., Any]) -> str | None:
    """A digest of the function and of the functions of its module that it calls; None where there is no source."""
    try:
        parts = sorted(_shape(one) for one in _reached(inspect.unwrap(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _reached(function: Any) -> set[FunctionType]:
    found: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in found:
            continue
        found.add(one)
        names = (one.__globals__.get(name) for name in one.__code__.co_names)
        waiting += [called for called in names if getattr(called, "__module__", None) == one.__module__]
    if not found:
        raise TypeError("no Python function")
    return found


def _shape(function: FunctionType) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    return ast.dump(tree)
