"""What executors are asked to read: the files of a batch, large ones in parts, spread over the tasks."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.current_files import full_path
from oncelake.sources.arrivals.parsing.packs import ENTRIES

# Larger files are read in parts of this size, if every line of them is a record.
PART_BYTES = 16 << 20
# More bytes than this per task are spread over more tasks than there are cores.
TASK_BYTES = 64 << 20
_COMPRESSED = r"\.(gz|zst|zstd|bz2)$"


class WorkList(NamedTuple):
    """The entries, and over how many tasks they are spread; 0 if that is left to Spark."""

    table: pa.Table
    tasks: int


def work_list(files: pa.Table, splittable: bool, root: str) -> WorkList:
    """Return the entries of a batch: one for each file, several for a large file of lines that is not compressed."""
    size = pc.sum(files["size"]).as_py() or 0
    paths = pa.array([full_path(path, root) for path in files["path"].to_pylist()], pa.string())
    index = pa.array(range(files.num_rows), pa.int64())
    none = pa.nulls(files.num_rows, pa.int64())
    entries = pa.table([index, paths, files["size"], none, none], schema=ENTRIES)
    if splittable:
        is_large = pc.and_(
            pc.greater(entries["size"], PART_BYTES), pc.invert(pc.match_substring_regex(entries["path"], _COMPRESSED))
        )
        parts = [part for entry in entries.filter(is_large).to_pylist() for part in _parts(entry)]
        entries = pa.concat_tables([entries.filter(pc.invert(is_large)), pa.Table.from_pylist(parts, schema=ENTRIES)])
    return WorkList(entries, -(-size // TASK_BYTES) if size > TASK_BYTES else 0)


def _parts(entry: dict[str, int]) -> list[dict[str, int]]:
    size = entry["size"]
    offsets = range(0, size, PART_BYTES)
    return [{**entry, "offset": offset, "length": min(PART_BYTES, size - offset)} for offset in offsets]
