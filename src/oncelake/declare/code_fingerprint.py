"""Fingerprint a pipeline: it changes with the code and the declaration, not with comments, layout or the Python version."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelake.declare.pipelines import Pipeline
    from oncelake.model.contracts import Pattern

# Fields of the syntax tree without a meaning of their own, and fields of a declaration that change no row.
_NO_CODE = ("ctx", "kind", "type_comment", "type_ignores")
_NO_ROWS = ("layout", "any_order", "null_time")
_WITH_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def pipeline_fingerprint(pipeline: Pipeline, pattern: Pattern) -> str:
    """Return a digest of what decides the rows of one target: the function, the sources and the pattern."""
    return _digest(f"{code_fingerprint(pipeline.function)} {declaration_fingerprint(pipeline, pattern)}")


def declaration_fingerprint(pipeline: Pipeline, pattern: Pattern) -> str:
    """Return a digest of the declared sources and of the pattern of one target; options with default values do not count."""
    sources = [f"{name}={_declared(source)}" for name, source in sorted(pipeline.reads.items())]
    return _digest("\n".join([*sources, f"{pattern.kind}={_declared(pattern)}"]))


def code_fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of the function and of the functions of its module that it calls; None if there is no source."""
    try:
        own = inspect.unwrap(function)
        return _digest("\n".join(sorted(_source_tree(one, nameless=one is own) for one in _reached(own))))
    except (OSError, TypeError, SyntaxError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reached(function: Any) -> set[FunctionType]:
    found: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in found:
            continue
        found.add(one)
        called = [one.__globals__.get(name) for name in _names(one.__code__)]
        called += _closure(one)
        waiting += [other for other in called if getattr(other, "__module__", None) == one.__module__]
    if not found:
        raise TypeError("no Python function")
    return found


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, also in its lambdas and comprehensions, whose code is apart in some versions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a variable that is not set yet
            yield cell.cell_contents


def _source_tree(function: FunctionType, nameless: bool) -> str:
    """Spell the source of a function; the pipeline's own name does not count, because `formerly=` may have changed it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    if nameless and isinstance(tree.body[0], ast.FunctionDef):
        tree.body[0].name = ""
    return _tree(tree)


def _tree(node: Any) -> str:
    """Spell a syntax tree without empty fields: `ast.dump` spells those that a version of Python has."""
    if isinstance(node, list):
        return f"[{' '.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, _meaning(node, name, value)) for name, value in ast.iter_fields(node) if name not in _NO_CODE)
    spelled = [f"{name}={_tree(value)}" for name, value in fields if value or not isinstance(value, list | None)]
    return f"{type(node).__name__}({' '.join(spelled)})"


def _meaning(node: ast.AST, name: str, value: Any) -> Any:
    """Return a field of the tree without docstrings, the declaration, and empty parts of f-strings, which 3.12 adds."""
    if name == "decorator_list":
        return [decorator for decorator in value if not _is_declaration(decorator)]
    if isinstance(node, ast.JoinedStr):
        return [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
    if name == "body" and isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
        return value[1:]
    return value


def _is_declaration(decorator: ast.expr) -> bool:
    """Return whether a decorator is `once.pipeline(…)`, which has a fingerprint of its own."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)) == "pipeline"


def _default(field: Field[Any]) -> str | None:
    if field.default is not MISSING:
        return _declared(field.default)
    return None if field.default_factory is MISSING else _declared(field.default_factory())


def _declared(value: Any) -> str:
    """Spell a declaration: the fields of its dataclasses that differ from their default, collections in a fixed order."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {f: _declared(getattr(value, f.name)) for f in fields(value) if f.name not in _NO_ROWS}
        return f"{type(value).__name__}({', '.join(f'{f.name}={text}' for f, text in given.items() if text != _default(f))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{key!r}: {_declared(item)}" for key, item in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_declared, value))) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_declared, value))}]"
    return str(value) if type(value).__name__ == "Column" else repr(value)
