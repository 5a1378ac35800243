"""Read YAML with the line of every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oncelake.errors import BadSettings


def read_yaml(path: Path, display_path: str) -> tuple[dict[Any, Any], dict[tuple[Any, ...], int]]:
    """Return a YAML mapping and the line of each key; raise BadSettings with the line for anything else."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadSettings(where=f"{display_path}:{line}", problem=f"not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise BadSettings(where=display_path, problem=f"cannot be read: {error}") from error
    if node is None:
        return {}, {}
    lines: dict[tuple[Any, ...], int] = {}
    if not isinstance(node, yaml.MappingNode):
        raise BadSettings(
            where=f"{display_path}:{node.start_mark.line + 1}", problem="the file is not a mapping of keys to values"
        )
    try:
        document = _value(node, (), lines, display_path)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadSettings(where=f"{display_path}:{line}", problem=str(error.problem)) from error
    return document, lines


def _value(node: yaml.Node, path: tuple[Any, ...], lines: dict[tuple[Any, ...], int], display_path: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadSettings(where=f"{display_path}:{line}", problem="a key must be text, not a mapping or a list")
            key = _scalar(key_node, display_path)
            if key in found:
                raise BadSettings(where=f"{display_path}:{line}", problem=f"duplicate key {key!r}")
            lines[*path, key] = line
            found[key] = _value(value_node, (*path, key), lines, display_path)
        return found
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*path, index] = item.start_mark.line + 1
        return [_value(item, (*path, index), lines, display_path) for index, item in enumerate(node.value)]
    return _scalar(node, display_path)


def _scalar(node: yaml.Node, display_path: str) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:
        where = f"{display_path}:{node.start_mark.line + 1}"
        raise BadSettings(where=where, problem=f"{node.value!r} cannot be read: {error}") from error
    finally:
        loader.dispose()
