"""Loading a project: its settings and every pipeline its files declare. Nothing is read, written or started."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from oncelake.declare.graph import ordered
from oncelake.declare.pipelines import Pipeline, Schedule, build, collecting
from oncelake.declare.settings import FILE, Settings, read_settings
from oncelake.declare.yaml_lines import read_yaml
from oncelake.errors import BadSettings, LoadFailed, OncelakeError
from oncelake.errors.base import did_you_mean

Vocabulary = Mapping[str, Callable[..., Any]]
_DEFAULT = ("pipelines.py", "pipelines")
# Loading swaps modules of the whole process.
_one_at_a_time = threading.RLock()
_SCHEDULE = ("every", "start", "timezone", "combine_intervals", "late", "lookback")
_PIPELINE_KEYS = (*_SCHEDULE, "reads", "writes", "transform")


@dataclass(frozen=True)
class Project:
    """A loaded project: its settings and its pipelines, upstream first."""

    settings: Settings
    pipelines: Mapping[str, Pipeline]


@dataclass(frozen=True)
class _Sheet:
    """A YAML file that declares pipelines, and the words it may use."""

    shown: str
    lines: Mapping[tuple[Any, ...], int]
    sources: Vocabulary
    patterns: Vocabulary

    def at(self, *path: Any) -> str:
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.shown}:{self.lines.get(path, 1)}"


@dataclass
class _Loading:
    root: Path
    sources: Vocabulary
    patterns: Vocabulary
    found: list[Pipeline] = field(default_factory=list)


def load_project(root: Path, profile: str | None, sources: Vocabulary, patterns: Vocabulary) -> Project:
    """Load the project in a folder. The vocabularies are the sources and patterns that YAML may name."""
    root = root.resolve()
    settings = read_settings(root, profile)
    loading = _Loading(root, sources, patterns)
    with _one_at_a_time, _importing_from(root):
        _load_entries(settings, loading)
    if not loading.found:
        raise BadSettings(where=settings.at("pipelines"), problem="no pipelines are declared")
    return Project(settings, ordered(loading.found))


def _load_entries(settings: Settings, loading: _Loading) -> None:
    entries = settings.pipelines
    sheet = _Sheet(FILE, settings.lines, loading.sources, loading.patterns)
    if entries is None:
        entries = [name for name in _DEFAULT if (settings.root / name).exists()]
    if isinstance(entries, dict):
        loading.found += _from_yaml(sheet, ("pipelines",), entries)
        return
    if not isinstance(entries, str | list):
        raise BadSettings(where=settings.at("pipelines"), problem=f"pipelines names files or folders, not {entries!r}")
    for index, entry in enumerate([entries] if isinstance(entries, str) else entries):
        where = settings.at("pipelines", index) if isinstance(entries, list) else settings.at("pipelines")
        if isinstance(entry, dict):
            loading.found += _from_yaml(sheet, ("pipelines", index), entry)
        elif isinstance(entry, str):
            for path in _files(settings.root, entry, where):
                _load_file(path, loading)
        else:
            raise BadSettings(where=where, problem=f"pipelines names files or folders, not {entry!r}")


def _files(root: Path, entry: str, where: str) -> list[Path]:
    path = (root / entry).resolve()
    if not path.is_relative_to(root):
        raise BadSettings(where=where, problem=f"{entry} lies outside the project")
    if path.is_dir():
        found = (p for p in path.rglob("*") if p.suffix in (".py", ".yaml", ".yml"))
        return sorted(p for p in found if not any(part[0] in "._" for part in p.relative_to(path).parts))
    if not path.is_file():
        raise BadSettings(where=where, problem=f"there is no file or folder {entry}")
    return [path]


def _load_file(path: Path, loading: _Loading) -> None:
    shown = str(path.relative_to(loading.root))
    if path.suffix == ".py":
        with collecting() as found:
            _import(path, loading.root)
        loading.found += found
        return
    document, lines = read_yaml(path, shown)
    for key in document:
        if key != "pipelines":
            where = f"{shown}:{lines.get((key,), 1)}"
            raise BadSettings(where=where, problem=f"unknown key {key!r}{did_you_mean(str(key), ('pipelines',))}")
    sheet = _Sheet(shown, lines, loading.sources, loading.patterns)
    loading.found += _from_yaml(sheet, ("pipelines",), document.get("pipelines", {}))


def _import(path: Path, root: Path) -> None:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    if all(part.isidentifier() for part in name.split(".")):
        _guarded(lambda: importlib.import_module(name), root, path)
        return
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", name), path)
    if spec is None or spec.loader is None:
        raise LoadFailed(where=str(path), problem="not a Python file")
    module = importlib.util.module_from_spec(spec)
    _guarded(lambda: spec.loader.exec_module(module), root, path)  # type: ignore[union-attr]


def _guarded(load: Callable[[], Any], root: Path, path: Path) -> None:
    try:
        load()
    except OncelakeError:
        raise
    except SyntaxError as error:
        where = f"{_shown(error.filename or str(path), root)}:{error.lineno}"
        raise LoadFailed(where=where, problem=f"SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        where = _shown(str(path), root)
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).is_relative_to(root):
                where = f"{_shown(frame.filename, root)}:{frame.lineno}"
        raise LoadFailed(where=where, problem=f"{type(error).__name__}: {error}") from error


def _shown(filename: str, root: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(root)) if path.is_relative_to(root) else filename


@contextmanager
def _importing_from(root: Path) -> Iterator[None]:
    """Put the root on `sys.path`, and keep this project's modules apart from every other's.

    Modules of the project are taken out of `sys.modules` again: two projects in one process may both have a
    `jobs.py`, a second load must run the decorators again, and functions whose module cannot be imported by name
    travel to Spark's workers by value, which is the only way that works there.
    """
    own = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    before = {name: module for name, module in list(sys.modules.items()) if _belongs(name, module, root, own)}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name, module in list(sys.modules.items()) if _belongs(name, module, root, set())]:
            del sys.modules[name]
        sys.modules.update(before)


def _belongs(name: str, module: ModuleType | None, root: Path, own: set[str]) -> bool:
    if name == "__main__" or name.split(".", maxsplit=1)[0] == "oncelake":
        return False
    if name.split(".", maxsplit=1)[0] in own:
        return True
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    # As text: there are thousands of modules, and paths are slow.
    inside = [place for place in places if place and str(place).startswith(f"{root}{os.sep}")]
    return any(not {"site-packages", "dist-packages"} & set(Path(place).parts) for place in inside)


def _from_yaml(sheet: _Sheet, path: tuple[Any, ...], bodies: Any) -> list[Pipeline]:
    if not isinstance(bodies, dict):
        raise BadSettings(
            where=sheet.at(*path), problem=f"pipelines are a mapping of names to pipelines, not {bodies!r}"
        )
    return [_yaml_pipeline(sheet, (*path, name), str(name), body) for name, body in bodies.items()]


def _yaml_pipeline(sheet: _Sheet, path: tuple[Any, ...], name: str, body: Any) -> Pipeline:
    if not isinstance(body, dict):
        raise BadSettings(where=sheet.at(*path), problem=f"pipeline {name} is a mapping, not {body!r}")
    for key in body:
        if key not in _PIPELINE_KEYS:
            problem = f"pipeline {name}: unknown key {key!r}{did_you_mean(str(key), _PIPELINE_KEYS)}"
            raise BadSettings(where=sheet.at(*path, key), problem=problem)
    for key in ("reads", "writes"):
        if key not in body:
            raise BadSettings(where=sheet.at(*path), problem=f"pipeline {name} does not say what it {key}")
    schedule = Schedule(
        **{"every": None, "start": None, "timezone": "UTC"} | {k: body[k] for k in _SCHEDULE if k in body}
    )
    function = _transform(sheet, (*path, "transform"), body.get("transform"))
    writes = body["writes"] if isinstance(body["writes"], list) else [body["writes"]]
    patterns = [_part(sheet, (*path, "writes"), "pattern", one) for one in writes]
    reads = _reads(sheet, (*path, "reads"), body["reads"])
    return build(function, reads, patterns, schedule, name=name, where=sheet.at(*path))


def _reads(sheet: _Sheet, path: tuple[Any, ...], body: Any) -> Any:
    if isinstance(body, dict) and not set(body) & set(sheet.sources):
        return {name: _part(sheet, (*path, name), "source", one) for name, one in body.items()}
    return _part(sheet, path, "source", body)


def _part(sheet: _Sheet, path: tuple[Any, ...], what: str, body: Any) -> Any:
    """`{replace_interval: silver.orders, time: day}` is `replace_interval("silver.orders", time="day")`."""
    words = sheet.sources if what == "source" else sheet.patterns
    named = [key for key in body if key in words] if isinstance(body, dict) else []
    if len(named) != 1:
        raise BadSettings(where=sheet.at(*path), problem=f"a {what} names one of {', '.join(words)}; found {body!r}")
    options = {key: value for key, value in body.items() if key != named[0]}
    try:
        return words[named[0]](body[named[0]], **options)
    except OncelakeError as error:
        raise BadSettings(where=sheet.at(*path), problem=error.facts.get("problem", error.message)) from error
    except (TypeError, ValueError) as error:
        raise BadSettings(where=sheet.at(*path), problem=f"{named[0]}: {error}") from error


def _transform(sheet: _Sheet, path: tuple[Any, ...], spelled: Any) -> Callable[..., Any]:
    if spelled is None:
        return _as_it_is
    module_name, _, function_name = str(spelled).partition(":")
    if not function_name:
        raise BadSettings(where=sheet.at(*path), problem=f"transform is 'module:function', not {spelled!r}")
    try:
        with collecting():
            module = importlib.import_module(module_name)
        function: Callable[..., Any] = getattr(module, function_name)
    except OncelakeError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"transform {spelled!r} cannot be loaded: {type(error).__name__}: {error}"
        raise BadSettings(where=sheet.at(*path), problem=problem) from error
    return function


def _as_it_is(frame: Any) -> Any:
    return frame
