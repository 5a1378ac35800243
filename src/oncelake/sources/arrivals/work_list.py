"""What executors are asked to read: the files of a batch, large ones in parts, spread over the tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.current_files import full_path
from oncelake.sources.arrivals.parsing.packs import ENTRIES
from oncelake.sources.arrivals.parsing.records import FileFormat
from oncelake.sources.arrivals.parts import (
    COMPRESSED,
    Entry,
    Footer,
    is_large,
    parts_of_groups,
    parts_of_lines,
    read_footer,
)
from oncelake.storage.object_store import in_parallel

# More bytes than this per task are spread over more tasks than there are cores.
TASK_BYTES = 64 << 20
LINES, ROW_GROUPS = "lines", "row groups"


class WorkList(NamedTuple):
    """The entries, over how many tasks they are spread (0 if that is left to Spark), and the files that are read in parts."""

    table: pa.Table
    tasks: int
    split: frozenset[int]


def entries_of(files: pa.Table, root: str) -> pa.Table:
    """Return an entry for each file; its index is the number of its row."""
    paths = pa.array([full_path(path, root) for path in files["path"].to_pylist()], pa.string())
    known = {"file": pa.array(range(files.num_rows), pa.int64()), "path": paths}
    known |= {"size": files["size"], "modified": files["modified"]}
    columns = [known[each.name] if each.name in known else pa.nulls(files.num_rows, each.type) for each in ENTRIES]
    return pa.table(columns, schema=ENTRIES)


def large_files(files: pa.Table, split_by: str | None) -> pa.ChunkedArray:
    """Say of each file whether it is so large that it is read in parts."""
    if split_by is None:
        return pa.chunked_array([pa.repeat(False, files.num_rows)])  # noqa: FBT003
    if split_by == LINES:
        return pc.and_(is_large(files), pc.invert(pc.match_substring_regex(files["path"], COMPRESSED)))
    return is_large(files)


def find_footers(entries: pa.Table) -> dict[int, Footer]:
    """Return the footers of the large Parquet files that have one, by the index of the file."""
    large = entries.filter(large_files(entries, ROW_GROUPS)).select(["file", "path"]).to_pylist()
    footers = in_parallel(lambda entry: read_footer(entry["path"]), large) if large else []
    return {entry["file"]: footer for entry, footer in zip(large, footers, strict=True) if footer}


def work_list(
    entries: pa.Table,
    file_format: FileFormat,
    split_by: str | None,
    columns: int = 0,
    footers: Mapping[int, Footer] | None = None,
) -> WorkList:
    """Return what is read of some files: large ones in parts, by their lines or row groups. `columns` is the width of the schema."""
    large = large_files(entries, split_by)
    found: list[Entry] = []
    for entry in entries.filter(large).to_pylist():
        if split_by == LINES:
            found += parts_of_lines(entry, file_format, columns)
        elif footer := (footers or {}).get(entry["file"]):
            found += parts_of_groups(entry, footer)
        else:
            found.append(entry)
    split = frozenset(entry["file"] for entry in found if entry["length"] is not None)
    rest = entries.filter(pc.invert(large))
    table = pa.concat_tables([rest, pa.Table.from_pylist(found, schema=ENTRIES)]) if found else rest
    return WorkList(table, tasks_for(pc.sum(entries["size"]).as_py()), split)


def tasks_for(size: int | None) -> int:
    """Return over how many tasks an amount of bytes is spread; 0 if that is left to Spark."""
    return -(-size // TASK_BYTES) if size and size > TASK_BYTES else 0


def without(entries: pa.Table, files: Collection[int] | Iterable[int]) -> pa.Table:
    """Return the entries without those of some files."""
    chosen = pa.array(list(files), pa.int64())
    return entries.filter(pc.invert(pc.is_in(entries["file"], value_set=chosen))) if len(chosen) else entries
