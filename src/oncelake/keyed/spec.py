"""Checking what a keyed pattern says of its rows: the keys, the order, the deletes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oncelake.caller import declared_at
from oncelake.contracts import Log
from oncelake.errors import BadDeclaration
from oncelake.lake.layout import Columns, checked_columns
from oncelake.lake.verbs import Layout

if TYPE_CHECKING:
    from pyspark.sql import Column

_AGE = re.compile(r"(\d+) (hour|day|week)s?")


@dataclass(frozen=True)
class Spec:
    """What the rows of a keyed table are told apart and ranked by, as it was declared."""

    keys: tuple[str, ...]
    by: tuple[str, ...] = ()
    delete_when: str | Column | None = None
    cdc: str | None = None
    leave_out: tuple[str, ...] = ()
    evolve: bool = False
    nulls: str = "refuse"  # or "quarantine", or "key" where a null is a key like any other

    @property
    def deletes(self) -> bool:
        """Whether rows may be deletes."""
        return self.delete_when is not None or self.cdc is not None


def checked_keys(what: str, target: str, keys: Columns) -> tuple[str, ...]:
    """Key columns, at least one."""
    found = checked_columns("keys", keys)
    if not found:
        raise BadDeclaration(where=declared_at(), problem=f"{what} into {target} needs keys=")
    return found


def checked_choice(what: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of the choices."""
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise BadDeclaration(where=declared_at(), problem=f"{what} is one of {shown}, not {value!r}")
    return value


def checked_age(what: str, text: str | None) -> timedelta | None:
    """A length of time, like "90 days"."""
    if text is None:
        return None
    found = _AGE.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1]):
        raise BadDeclaration(where=declared_at(), problem=f'{what} is a length of time like "90 days", not {text!r}')
    return timedelta(**{f"{found[2]}s": int(found[1])})


def merge_notes(target: str, spec: Spec, layout: Layout, log: Log | None) -> tuple[str, ...]:
    """Which files a merge into a table looks at, and which it rewrites."""
    partitions = log.partitioned_by if log else layout.partition_by
    clusters = log.clustered_by if log else layout.cluster_by
    marks = log.deletion_vectors if log else layout.deletion_vectors
    keys = {key.casefold() for key in spec.keys}
    found = []
    if pruned := [name for name in partitions if name.casefold() in keys]:
        found.append(f"looks only at the partitions ({', '.join(pruned)}) that the batch has keys in")
    elif partitions:
        found.append(f"looks at every partition: {', '.join(partitions)} is no key, so a row may move to another")
    if ranged := [name for name in clusters if name.casefold() in keys]:
        found.append(f"looks only at files whose {', '.join(ranged)} lies in the range of the batch")
    if marks:
        found.append("marks changed rows in deletion vectors and rewrites no file for them")
    else:
        found.append(
            "rewrites every file with a changed row; with deletion_vectors=True it would mark the rows instead"
        )
    return tuple(f"{target}: a merge {text}" for text in found)
