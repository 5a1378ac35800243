"""`oncelake.yaml`: read once into one frozen record; what it does not know is an error with its line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oncelake.errors import BadSettings

FILE = "oncelake.yaml"
_KEYS = ("lake", "pipelines", "profiles", "spark", "patience")
_PROFILE_KEYS = ("lake", "spark", "patience")
PATIENCE = 900


@dataclass(frozen=True)
class Settings:
    """A project's settings: where its lake is, what to load, how Spark is set up, how long to wait for another."""

    root: Path
    lake: str
    pipelines: Any = None
    spark: Mapping[str, str] = field(default_factory=dict)
    patience: float = PATIENCE
    lines: Mapping[tuple[Any, ...], int] = field(default_factory=dict)

    def at(self, *path: Any) -> str:
        """`file:line` of a key of the settings."""
        return f"{FILE}:{self.lines.get(path, 1)}"


def read_settings(root: Path, profile: str | None = None) -> Settings:
    """The settings of the project in a folder, under a profile if one is named."""
    path = root / FILE
    if not path.is_file():
        problem = f"there is no {FILE} in {root}"
        raise BadSettings(where=str(path), problem=f"{problem}; `oncelake init DIR` makes a project")
    document, lines = read_yaml(path, FILE)
    settings = _Document(document, lines)
    settings.check_keys((), document, _KEYS)
    profiles = settings.mapping("profiles")
    for name in profiles:
        body = settings.mapping("profiles", name)
        settings.check_keys(("profiles", name), body, _PROFILE_KEYS)
        settings.lake(body.get("lake", "lake"), "profiles", name, "lake")
    if profile is not None and profile not in profiles:
        known = ", ".join(map(str, profiles)) or "none"
        raise BadSettings(where=settings.at("profiles"), problem=f"there is no profile {profile!r}; there are: {known}")
    chosen = settings.mapping("profiles", profile) if profile is not None else {}
    at = ("profiles", profile) if profile is not None and "lake" in chosen else ()
    slow = ("profiles", profile) if "patience" in chosen else ()
    spark = {**settings.spark("spark"), **(settings.spark("profiles", profile, "spark") if profile else {})}
    return Settings(
        root=root,
        lake=_absolute(root, settings.lake(chosen.get("lake", document.get("lake", "lake")), *at, "lake")),
        pipelines=document.get("pipelines"),
        spark=spark,
        patience=settings.seconds(chosen.get("patience", document.get("patience", PATIENCE)), *slow, "patience"),
        lines=lines,
    )


class _Document:
    """A YAML mapping and the lines its keys are on."""

    def __init__(self, document: dict[Any, Any], lines: Mapping[tuple[Any, ...], int]) -> None:
        self.document = document
        self.lines = lines

    def at(self, *path: Any) -> str:
        return f"{FILE}:{self.lines.get(path, 1)}"

    def mapping(self, *path: Any) -> dict[Any, Any]:
        found: Any = self.document
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise BadSettings(where=self.at(*path), problem=f"{path[-1]} is a mapping, not {found!r}")
        return found

    def check_keys(self, path: tuple[Any, ...], found: Mapping[Any, Any], known: tuple[str, ...]) -> None:
        for key in found:
            if key not in known:
                problem = f"unknown key {key!r}{guess(str(key), known)}; known keys are: {', '.join(known)}"
                raise BadSettings(where=self.at(*path, key), problem=problem)

    def lake(self, value: Any, *path: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise BadSettings(where=self.at(*path), problem=f"lake is a folder or URI, not {value!r}")
        return value

    def seconds(self, value: Any, *path: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise BadSettings(where=self.at(*path), problem=f"{path[-1]} is a number of seconds, not {value!r}")
        return float(value)

    def spark(self, *path: Any) -> dict[str, str]:
        values = self.mapping(*path)
        for key, value in values.items():
            if not isinstance(key, str) or isinstance(value, dict | list) or value is None:
                problem = f"Spark settings are names with one value each, not {key!r}: {value!r}"
                raise BadSettings(where=self.at(*path, key), problem=problem)
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}


def guess(word: str, known: tuple[str, ...] | list[str]) -> str:
    """`, did you mean …?` for a word that is nearly one of those known."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def read_yaml(path: Path, shown: str) -> tuple[dict[Any, Any], dict[tuple[Any, ...], int]]:
    """A YAML mapping and the line of every key in it; anything else is an error with its line."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadSettings(where=f"{shown}:{line}", problem=f"not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise BadSettings(where=shown, problem=f"cannot be read: {error}") from error
    if node is None:
        return {}, {}
    lines: dict[tuple[Any, ...], int] = {}
    if not isinstance(node, yaml.MappingNode):
        raise BadSettings(
            where=f"{shown}:{node.start_mark.line + 1}", problem="the file holds no mapping of keys to values"
        )
    try:
        document = _value(node, (), lines, shown)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadSettings(where=f"{shown}:{line}", problem=str(error.problem)) from error
    return document, lines


def _value(node: yaml.Node, path: tuple[Any, ...], lines: dict[tuple[Any, ...], int], shown: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadSettings(where=f"{shown}:{line}", problem="a key is text, not a mapping or a list")
            key = _scalar(key_node, shown)
            if key in found:
                raise BadSettings(where=f"{shown}:{line}", problem=f"{key!r} is there twice")
            lines[*path, key] = line
            found[key] = _value(value_node, (*path, key), lines, shown)
        return found
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*path, index] = item.start_mark.line + 1
        return [_value(item, (*path, index), lines, shown) for index, item in enumerate(node.value)]
    return _scalar(node, shown)


def _scalar(node: yaml.Node, shown: str) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:
        where = f"{shown}:{node.start_mark.line + 1}"
        raise BadSettings(where=where, problem=f"{node.value!r} cannot be read: {error}") from error
    finally:
        loader.dispose()


def _absolute(root: Path, lake: str) -> str:
    return lake if "://" in lake else str((root / Path(lake).expanduser()).resolve())
