"""Load a project: its settings and every pipeline that its files declare. No data is read or written."""

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

from oncelake.declare.catalog_tables import check_registered
from oncelake.declare.graph import sort_upstream_first
from oncelake.declare.pipelines import Pipeline, Schedule, build, collect_pipelines
from oncelake.declare.settings import FILE, Settings, read_settings
from oncelake.declare.yaml_lines import read_yaml
from oncelake.errors import BadSettings, LoadFailed, OncelakeError
from oncelake.errors.base import did_you_mean

Vocabulary = Mapping[str, Callable[..., Any]]
_DEFAULT = ("pipelines.py", "pipelines")
# A project is loaded without Spark.
_NEEDS_SESSION = '; there is no session yet when a project is loaded: use it inside the function, and give UDFs their type as LongType(), not as "long"'
# Loading replaces modules of the whole process.
_import_lock = threading.RLock()
_SCHEDULE = ("every", "start", "timezone", "combine_intervals", "late", "lookback")
_PIPELINE_KEYS = (*_SCHEDULE, "formerly", "reads", "writes", "transform")


@dataclass(frozen=True)
class LoadedProject:
    """A loaded project: its settings and its pipelines, upstream first."""

    settings: Settings
    pipelines: Mapping[str, Pipeline]


@dataclass(frozen=True)
class _YamlFile:
    """A YAML file that declares pipelines, and the sources and patterns it may name."""

    path: str
    lines: Mapping[tuple[Any, ...], int]
    sources: Vocabulary
    patterns: Vocabulary

    def at(self, *path: Any) -> str:
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.path}:{self.lines.get(path, 1)}"


@dataclass
class _Loading:
    root: Path
    sources: Vocabulary
    patterns: Vocabulary
    found: list[Pipeline] = field(default_factory=list)


def load_project(root: Path, profile: str | None, sources: Vocabulary, patterns: Vocabulary) -> LoadedProject:
    """Load the project in a folder. The vocabularies are the sources and patterns that YAML may name."""
    root = root.resolve()
    settings = read_settings(root, profile)
    if "spark.remote" in settings.spark:
        # Functions of pyspark are made when the files are loaded, before there is a session: they must be Connect's.
        os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
    loading = _Loading(root, sources, patterns)
    with _import_lock, _import_path(root):
        _load_entries(settings, loading)
    if not loading.found:
        raise BadSettings(where=settings.at("pipelines"), problem="no pipelines are declared")
    check_registered(loading.found, settings.register, settings.at("register"))
    return LoadedProject(settings, sort_upstream_first(loading.found))


def _load_entries(settings: Settings, loading: _Loading) -> None:
    entries = settings.pipelines
    yaml_file = _YamlFile(FILE, settings.lines, loading.sources, loading.patterns)
    if entries is None:
        entries = [name for name in _DEFAULT if (settings.root / name).exists()]
    if isinstance(entries, dict):
        loading.found += _from_yaml(yaml_file, ("pipelines",), entries)
        return
    if not isinstance(entries, str | list):
        raise BadSettings(
            where=settings.at("pipelines"), problem=f"pipelines must be files or folders, not {entries!r}"
        )
    for index, entry in enumerate([entries] if isinstance(entries, str) else entries):
        where = settings.at("pipelines", index) if isinstance(entries, list) else settings.at("pipelines")
        if isinstance(entry, dict):
            loading.found += _from_yaml(yaml_file, ("pipelines", index), entry)
        elif isinstance(entry, str):
            for path in _files(settings.root, entry, where):
                _load_file(path, loading)
        else:
            raise BadSettings(where=where, problem=f"pipelines must be files or folders, not {entry!r}")


def _files(root: Path, entry: str, where: str) -> list[Path]:
    path = (root / entry).resolve()
    if not path.is_relative_to(root):
        raise BadSettings(where=where, problem=f"{entry} is outside the project")
    if path.is_dir():
        found = (p for p in path.rglob("*") if p.suffix in (".py", ".yaml", ".yml"))
        return sorted(p for p in found if not any(part[0] in "._" for part in p.relative_to(path).parts))
    if not path.is_file():
        raise BadSettings(where=where, problem=f"there is no file or folder {entry}")
    return [path]


def _load_file(path: Path, loading: _Loading) -> None:
    relative = str(path.relative_to(loading.root))
    if path.suffix == ".py":
        with collect_pipelines() as found:
            _import_file(path, loading.root)
        loading.found += found
        return
    document, lines = read_yaml(path, relative)
    for key in document:
        if key != "pipelines":
            where = f"{relative}:{lines.get((key,), 1)}"
            raise BadSettings(where=where, problem=f"unknown key {key!r}{did_you_mean(str(key), ('pipelines',))}")
    yaml_file = _YamlFile(relative, lines, loading.sources, loading.patterns)
    loading.found += _from_yaml(yaml_file, ("pipelines",), document.get("pipelines", {}))


def _import_file(path: Path, root: Path) -> None:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    if all(part.isidentifier() for part in name.split(".")):
        _run_user_code(lambda: importlib.import_module(name), root, path)
        return
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", name), path)
    if spec is None or spec.loader is None:
        raise LoadFailed(where=str(path), problem="not a Python file")
    module = importlib.util.module_from_spec(spec)
    _run_user_code(lambda: spec.loader.exec_module(module), root, path)  # type: ignore[union-attr]


def _run_user_code(load: Callable[[], Any], root: Path, path: Path) -> None:
    """Import a user's file; raise LoadFailed with the last line inside the project if that fails."""
    try:
        load()
    except OncelakeError:
        raise
    except SyntaxError as error:
        where = f"{_relative(error.filename or str(path), root)}:{error.lineno}"
        raise LoadFailed(where=where, problem=f"SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        where = _relative(str(path), root)
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).is_relative_to(root):
                where = f"{_relative(frame.filename, root)}:{frame.lineno}"
        hint = _NEEDS_SESSION if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) else ""
        raise LoadFailed(where=where, problem=f"{type(error).__name__}: {error}{hint}") from error


def _relative(filename: str, root: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(root)) if path.is_relative_to(root) else filename


@contextmanager
def _import_path(root: Path) -> Iterator[None]:
    """Put the root on `sys.path`, and isolate this project's modules from those of other projects.

    The project's modules are removed from `sys.modules` afterwards: two projects in one process may both have a
    `jobs.py`, a second load must run the decorators again, and Spark pickles functions by value only if their module
    cannot be imported by name, which is the only way that works on its workers.
    """
    top_level = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    saved = {
        name: module for name, module in list(sys.modules.items()) if _is_in_project(name, module, root, top_level)
    }
    for name in saved:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name, module in list(sys.modules.items()) if _is_in_project(name, module, root, set())]:
            del sys.modules[name]
        sys.modules.update(saved)


def _is_in_project(name: str, module: ModuleType | None, root: Path, top_level: set[str]) -> bool:
    if name == "__main__" or name.split(".", maxsplit=1)[0] == "oncelake":
        return False
    if name.split(".", maxsplit=1)[0] in top_level:
        return True
    paths = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    # Compared as strings: there are thousands of modules, and pathlib is slow.
    inside = [path for path in paths if path and str(path).startswith(f"{root}{os.sep}")]
    return any(not {"site-packages", "dist-packages"} & set(Path(path).parts) for path in inside)


def _from_yaml(yaml_file: _YamlFile, path: tuple[Any, ...], bodies: Any) -> list[Pipeline]:
    if not isinstance(bodies, dict):
        raise BadSettings(
            where=yaml_file.at(*path), problem=f"pipelines must be a mapping of names to pipelines, not {bodies!r}"
        )
    return [_yaml_pipeline(yaml_file, (*path, name), str(name), body) for name, body in bodies.items()]


def _yaml_pipeline(yaml_file: _YamlFile, path: tuple[Any, ...], name: str, body: Any) -> Pipeline:
    if not isinstance(body, dict):
        raise BadSettings(where=yaml_file.at(*path), problem=f"pipeline {name} must be a mapping, not {body!r}")
    for key in body:
        if key not in _PIPELINE_KEYS:
            problem = f"pipeline {name}: unknown key {key!r}{did_you_mean(str(key), _PIPELINE_KEYS)}"
            raise BadSettings(where=yaml_file.at(*path, key), problem=problem)
    for key in ("reads", "writes"):
        if key not in body:
            raise BadSettings(where=yaml_file.at(*path), problem=f"pipeline {name} has no {key}:")
    schedule = Schedule(
        **{"every": None, "start": None, "timezone": "UTC"} | {k: body[k] for k in _SCHEDULE if k in body}
    )
    function = _load_transform(yaml_file, (*path, "transform"), body.get("transform"))
    writes = body["writes"] if isinstance(body["writes"], list) else [body["writes"]]
    patterns = [_build_part(yaml_file, (*path, "writes"), "pattern", one) for one in writes]
    reads = _build_sources(yaml_file, (*path, "reads"), body["reads"])
    formerly = body.get("formerly")
    return build(function, reads, patterns, schedule, name=name, where=yaml_file.at(*path), formerly=formerly)


def _build_sources(yaml_file: _YamlFile, path: tuple[Any, ...], body: Any) -> Any:
    if isinstance(body, dict) and not set(body) & set(yaml_file.sources):
        return {name: _build_part(yaml_file, (*path, name), "source", one) for name, one in body.items()}
    return _build_part(yaml_file, path, "source", body)


def _build_part(yaml_file: _YamlFile, path: tuple[Any, ...], what: str, body: Any) -> Any:
    """Build a source or pattern: `{replace_interval: a.b, time: day}` is `replace_interval("a.b", time="day")`."""
    vocabulary = yaml_file.sources if what == "source" else yaml_file.patterns
    named = [key for key in body if key in vocabulary] if isinstance(body, dict) else []
    if len(named) != 1:
        problem = f"a {what} must name one of {', '.join(vocabulary)}; found {body!r}"
        raise BadSettings(where=yaml_file.at(*path), problem=problem)
    options = {key: value for key, value in body.items() if key != named[0]}
    try:
        return vocabulary[named[0]](body[named[0]], **options)
    except OncelakeError as error:
        raise BadSettings(where=yaml_file.at(*path), problem=error.facts.get("problem", error.message)) from error
    except (TypeError, ValueError) as error:
        raise BadSettings(where=yaml_file.at(*path), problem=f"{named[0]}: {error}") from error


def _load_transform(yaml_file: _YamlFile, path: tuple[Any, ...], reference: Any) -> Callable[..., Any]:
    if reference is None:
        return _identity
    module_name, _, function_name = str(reference).partition(":")
    if not function_name:
        raise BadSettings(where=yaml_file.at(*path), problem=f"transform must be 'module:function', not {reference!r}")
    try:
        with collect_pipelines():
            module = importlib.import_module(module_name)
        function: Callable[..., Any] = getattr(module, function_name)
    except OncelakeError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"could not load transform {reference!r}: {type(error).__name__}: {error}"
        raise BadSettings(where=yaml_file.at(*path), problem=problem) from error
    return function


def _identity(frame: Any) -> Any:
    return frame
