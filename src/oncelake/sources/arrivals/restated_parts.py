"""The batches of one restatement, of which all are frozen or none.

All of them are in one file, which is written first. The manifest of each names that file, and its own place in it. Nothing else is
frozen after a manifest whose restatement is not whole: the next runner freezes the rest first. So a kill between two batches
leaves no older rows over newer ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.errors import ManifestUnreadable
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.manifests import Manifests, from_parquet, to_parquet
from oncelake.storage.objects import storage, write_file

_PARTS = pa.schema([*FILES, pa.field("part", pa.int64())])


def write_parts(manifests: Manifests, parts: Sequence[pa.Table]) -> dict[str, Any]:
    """Write the files of all batches; return what the manifest of the first one says of it."""
    name = f"restatements/{uuid.uuid4().hex}.parquet"
    numbered = [part.append_column("part", pa.repeat(number, part.num_rows)) for number, part in enumerate(parts)]
    write_file(manifests.folder, name, to_parquet(pa.concat_tables(numbered).cast(_PARTS), {}))
    return {"parts": name, "part": 0, "of": len(parts)}


def finish_parts(manifests: Manifests) -> None:
    """Freeze the other batches of the last restatement, if its runner was killed before it had frozen them all."""
    while following := _following(manifests):
        manifests.freeze(*following)  # or another runner did


def _following(manifests: Manifests) -> tuple[int, pa.Table, Mapping[str, Any]] | None:
    """Return the number, files and facts of the batch that must be frozen next; None if any may be."""
    numbers = manifests.numbers()
    facts = manifests.load(numbers[-1]).facts if numbers else {}
    following = facts.get("part", 0) + 1
    if following >= facts.get("of", 0):
        return None
    parts = _read(manifests, facts["parts"], numbers[-1])
    files = parts.filter(pc.equal(parts["part"], following)).select(FILES.names)
    return numbers[-1] + 1, files, {**facts, "part": following}


def _read(manifests: Manifests, name: str, number: int) -> pa.Table:
    try:
        return from_parquet(storage(manifests.folder).read(name), _PARTS)
    except (ValueError, FileNotFoundError) as error:
        path, problem = f"{manifests.folder}/{name}", f"the batches to freeze after {number} are in it"
        raise ManifestUnreadable(path=path, problem=problem, pipeline=manifests.pipeline) from error
