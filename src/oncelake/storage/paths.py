"""Where tables and files are. A table's name becomes a path of the lake and never leaves it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oncelake.errors import BadDeclaration
from oncelake.model.names import table_name_problem

OWN = "_oncelake"
_SINGLE_DRIVER = ("s3://", "s3a://", "s3n://")


@dataclass(frozen=True)
class Address:
    """A lake's folder or URI, and the project root that relative file paths start from.

    In a sandbox everything is written to a lake of its own, and tables that are not written there are read elsewhere.
    """

    lake: str
    root: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str) -> str:
        """The path of a table: `silver.orders` is `<lake>/silver/orders`."""
        if problem := table_name_problem(name):
            raise BadDeclaration(where=name, problem=problem)
        return self.elsewhere.get(name) or posixpath.join(self.lake, *name.split("."))

    def own(self, *parts: str) -> str:
        """A path of what oncelake keeps for itself."""
        return posixpath.join(self.lake, OWN, *parts)

    def file(self, path: str) -> str:
        """The path of a file or folder, relative ones from the project's root."""
        return path if "://" in path or path.startswith("/") else posixpath.join(self.root, path)

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine."""
        return is_local(self.lake)

    @property
    def one_driver_only(self) -> bool:
        """Whether Delta's log store for this lake keeps only one driver from overwriting its own commits."""
        return self.lake.startswith(_SINGLE_DRIVER)


def is_local(path: str) -> bool:
    """Whether a path is a folder of this machine."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """The path of this machine that a local path or `file://` URI names."""
    return Path(path.removeprefix("file://"))
