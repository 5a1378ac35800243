"""Fingerprint a pipeline: it changes with the code and the declaration, not with comments, layout or the Python version."""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelake.declare.pipelines import Pipeline
    from oncelake.model.contracts import Pattern

# Fields of the syntax tree without a meaning of their own, and fields of a declaration that change no row.
_NO_CODE = ("ctx", "kind", "type_comment", "type_ignores")
_NO_ROWS = ("layout", "any_order", "null_time")
_WITH_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Instructions that read a name of the module, in a function and in the body of a class.
_READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


def pipeline_fingerprint(pipeline: Pipeline, pattern: Pattern) -> str:
    """Return a digest of what decides the rows of one target: the function, the sources and the pattern."""
    return _digest(f"{code_fingerprint(pipeline.function)} {declaration_fingerprint(pipeline, pattern)}")


def declaration_fingerprint(pipeline: Pipeline, pattern: Pattern) -> str:
    """Return a digest of the declared sources and of the pattern of one target; options with default values do not count."""
    sources = [f"{name}={_declared(source)}" for name, source in sorted(pipeline.reads.items())]
    return _digest("\n".join([*sources, f"{pattern.kind}={_declared(pattern)}"]))


def code_fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of the function and of what it uses of its module; None if there is no source.

    That are the functions it calls, and the statements that assign the constants or define the classes it refers to. The
    statements count, not their values: a value may be filled at run time, and differ from process to process.
    """
    try:
        own = inspect.unwrap(function)
        reached, statements = _reached(own)
        spelled = {_source_tree(one, nameless=one is own) for one in reached}
        return _digest("\n".join(sorted(spelled.union(map(_tree, statements)))))
    except (OSError, TypeError, SyntaxError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reached(function: Any) -> tuple[set[FunctionType], list[ast.stmt]]:
    """Return the functions that a function calls, itself included, and the other statements of the module that they use."""
    found: set[FunctionType] = set()
    used: dict[ast.stmt, None] = {}
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in found:
            continue
        found.add(one)
        statements, names = _statements(one)
        used |= dict.fromkeys(statements)
        called = [one.__globals__.get(name) for name in (*_names(one.__code__), *names)]
        called += [getattr(one, "__wrapped__", None), *_closure(one)]
        waiting += [other for other in called if getattr(other, "__module__", None) == one.__module__]
    if not found:
        raise TypeError("no Python function")
    return found, list(used)


def _statements(function: FunctionType) -> tuple[list[ast.stmt], set[str]]:
    """Return the statements of the module that a function depends on, and the names that they refer to."""
    if function.__globals__.get("__name__") != function.__module__:
        return [], set()  # the wrapper of a decorator that another module defines
    defined = _module_statements("".join(inspect.findsource(function)[0]))
    found: dict[ast.stmt, None] = {}
    seen: set[str] = set()
    waiting = [*_global_names(function.__code__), *_names_in_signature(function)]
    while waiting:
        name = waiting.pop()
        is_function = isinstance(function.__globals__.get(name), FunctionType)
        new = () if is_function or name in seen else defined.get(name, ())
        seen.add(name)
        for statement in new:
            found[statement] = None
            waiting += _names_read(statement)
    return list(found), seen


@lru_cache(maxsize=64)
def _module_statements(source: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module by the names that they bind or change; imports bind what is another module's."""
    found: dict[str, list[ast.stmt]] = {}
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a cell of a notebook with commands that are no Python
        return found
    for statement in body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            for name in dict.fromkeys(_bound(statement)):
                found.setdefault(name, []).append(statement)
    return found


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module assigns, defines, or changes as in `x[1] = 2` and `x.update(…)`."""
    if isinstance(statement, _WITH_DOCSTRING):
        yield statement.name
        return
    for node in ast.walk(statement):
        changed: ast.AST | None = None
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            changed = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changed = node.value.func if isinstance(node.value.func, ast.Attribute) else None
        while isinstance(changed, ast.Subscript | ast.Attribute):
            changed = changed.value
        if isinstance(changed, ast.Name):
            yield changed.id


def _names_read(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement refers to, without those of a declaration."""
    for part in ast.iter_child_nodes(node):
        if not (part in getattr(node, "decorator_list", ()) and _is_declaration(part)):
            yield from _names_read(part)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id


def _names_in_signature(function: FunctionType) -> Iterator[str]:
    """Yield the names in the decorators and in the default arguments of a function, which are no part of its code."""
    (tree, *_) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = [decorator for decorator in tree.decorator_list if not _is_declaration(decorator)]
        for node in (*decorators, *tree.args.defaults, *filter(None, tree.args.kw_defaults)):
            yield from _names_read(node)


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of the module that a function reads, also in its lambdas, comprehensions and classes."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS_GLOBAL:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


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


def _is_declaration(decorator: ast.AST) -> bool:
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
