"""Ways of writing that are safe to repeat, one file each, all of the same shape."""

from collections.abc import Callable
from typing import Any

from oncelake.patterns.append import append
from oncelake.patterns.overwrite import overwrite
from oncelake.patterns.replace_interval import replace_interval
from oncelake.patterns.replace_partitions import replace_partitions

PATTERNS: dict[str, Callable[..., Any]] = {
    "replace_interval": replace_interval,
    "replace_partitions": replace_partitions,
    "overwrite": overwrite,
    "append": append,
}

__all__ = ["PATTERNS", "append", "overwrite", "replace_interval", "replace_partitions"]
