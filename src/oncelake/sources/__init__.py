"""What a pipeline can read, one file each, all of the same shape."""

from collections.abc import Callable
from typing import Any

from oncelake.sources.files import files
from oncelake.sources.tables import table

SOURCES: dict[str, Callable[..., Any]] = {"table": table, "files": files}

__all__ = ["SOURCES", "files", "table"]
