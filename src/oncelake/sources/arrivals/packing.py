"""Divide files: new ones into batches of bounded size, and those of a batch into packs that are about equally much work."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

INDEX, PACK = "index", "pack"


@dataclass(frozen=True, eq=False)
class Packs:
    """The files of a batch with the columns `index` (their row in the manifest) and, if they are small, `pack` (from 0)."""

    small: pa.Table
    large: pa.Table
    count: int


def split_batches(new: pa.Table, max_files: int | None = None, max_bytes: int | None = None) -> list[pa.Table]:
    """Return files as batches, older arrivals first. A batch has at least one file, and otherwise no more than allowed."""
    ordered = new.sort_by([("modified", "ascending"), ("path", "ascending")])
    ends = pc.cumulative_sum(ordered["size"].combine_chunks())
    batches, start, before = [], 0, 0
    while start < len(ends):
        stop = len(ends) if max_files is None else min(start + max(max_files, 1), len(ends))
        if max_bytes is not None:
            stop = bisect_right(ends, before + max_bytes, start + 1, stop, key=lambda end: end.as_py())
        batches.append(ordered.slice(start, stop - start))
        start, before = stop, ends[stop - 1].as_py()
    return batches


def pack(files: pa.Table, large: int, pack_bytes: int, pack_files: int) -> Packs:
    """Number the packs of small files so that packs are even; files of `large` bytes or more are kept apart.

    The work of a file is its share of a full pack, by bytes and by the cost of opening it. A pack is full at `pack_bytes` or
    `pack_files`, and exceeds them by one file at most. The order of the files is kept.
    """
    files = files.append_column(INDEX, pa.array(range(files.num_rows), pa.int64()))
    is_large = pc.greater_equal(files["size"], large)
    small = files.filter(pc.invert(is_large))
    numbers = _number(small["size"].combine_chunks(), pack_bytes, pack_files)
    count = numbers[-1].as_py() + 1 if len(numbers) else 0
    return Packs(small.append_column(PACK, numbers), files.filter(is_large), count)


def _number(sizes: pa.Array, pack_bytes: int, pack_files: int) -> pa.Array:
    if not len(sizes):
        return pa.array([], pa.int64())
    work = pc.add(pc.divide(sizes.cast(pa.float64()), float(pack_bytes)), 1 / pack_files)
    done = pc.cumulative_sum(work)
    total = done[-1].as_py()
    # A file belongs to the pack in which the middle of its work lies.
    middle = pc.subtract(done, pc.divide(work, 2.0))
    packs = max(1, -(-total // 1))
    numbers = pc.floor(pc.multiply(middle, packs / total)).cast(pa.int64())
    # One file may be the work of several packs, which then have none.
    steps = pc.not_equal(numbers[1:], numbers[:-1]).cast(pa.int64())
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), steps]))
