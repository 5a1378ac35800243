"""Write patterns: ways of writing a target that are safe to repeat, one file each, all with the same interface."""

from collections.abc import Callable
from typing import Any

from oncelake.patterns.aggregate import aggregate
from oncelake.patterns.append import append
from oncelake.patterns.merge import merge
from oncelake.patterns.overwrite import overwrite
from oncelake.patterns.replace_interval import replace_interval
from oncelake.patterns.replace_partitions import replace_partitions
from oncelake.patterns.scd2 import scd2

PATTERNS: dict[str, Callable[..., Any]] = {
    "replace_interval": replace_interval,
    "replace_partitions": replace_partitions,
    "overwrite": overwrite,
    "append": append,
    "merge": merge,
    "scd2": scd2,
    "aggregate": aggregate,
}

__all__ = [
    "PATTERNS",
    "aggregate",
    "append",
    "merge",
    "overwrite",
    "replace_interval",
    "replace_partitions",
    "scd2",
]
