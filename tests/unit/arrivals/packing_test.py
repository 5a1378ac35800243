"""Dividing files: batches of bounded size, older arrivals first, and packs that are even."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.packing import pack, split_batches


def files(sizes, modified=None):
    paths = [f"in/{number:06}" for number in range(len(sizes))]
    return pa.table({"path": paths, "size": sizes, "modified": modified or [0] * len(sizes)}, schema=FILES)


def sizes_of(batches):
    return [batch["size"].to_pylist() for batch in batches]


@pytest.mark.parametrize(
    ("max_files", "max_bytes", "expected"),
    [
        (None, None, [[5, 5, 90, 0, 5]]),
        (2, None, [[5, 5], [90, 0], [5]]),
        (None, 10, [[5, 5], [90], [0, 5]]),
        (None, 1, [[5], [5], [90], [0], [5]]),
        (2, 100, [[5, 5], [90, 0], [5]]),
        (0, 0, [[5], [5], [90], [0], [5]]),
        (99, 105, [[5, 5, 90, 0, 5]]),
    ],
)
def test_batches_are_bounded_by_files_and_bytes_and_have_a_file_at_least(max_files, max_bytes, expected):
    assert sizes_of(split_batches(files([5, 5, 90, 0, 5]), max_files, max_bytes)) == expected


def test_no_files_are_no_batch():
    assert split_batches(files([]), 10, 10) == []


def test_older_arrivals_come_first_and_equal_times_by_path():
    batches = split_batches(files([1, 2, 3, 4], [30, 10, 20, 10]), 2, None)
    assert [batch["path"].to_pylist() for batch in batches] == [["in/000001", "in/000003"], ["in/000002", "in/000000"]]


def test_every_file_is_in_one_batch_of_many():
    rng = random.Random(16)
    whole = files([rng.randrange(1_000) for _ in range(20_000)], [rng.randrange(50) for _ in range(20_000)])
    batches = split_batches(whole, 70, 20_000)
    assert all(batch.num_rows <= 70 for batch in batches)
    assert all(batch.num_rows == 1 or pc.sum(batch["size"]).as_py() <= 20_000 for batch in batches)
    assert pa.concat_tables(batches).sort_by("path").equals(whole)


def totals(packs):
    found = packs.small.group_by("pack").aggregate([("size", "sum"), ("size", "count")]).sort_by("pack")
    assert found["pack"].to_pylist() == list(range(packs.count))
    return found["size_sum"].to_pylist(), found["size_count"].to_pylist()


def test_packs_of_equal_files_are_even():
    packs = pack(files([200] * 10_000), large=1_000, pack_bytes=1 << 30, pack_files=1_500)
    _, counts = totals(packs)
    assert packs.count == 7
    assert max(counts) - min(counts) <= 1
    assert max(counts) <= 1_500


def test_packs_of_uneven_files_are_even_in_work():
    rng = random.Random(16)
    packs = pack(files([int(rng.paretovariate(1.1) * 100) for _ in range(20_000)]), 50_000, 100_000, 1_000)
    sizes, counts = totals(packs)
    work = [size / 100_000 + count / 1_000 for size, count in zip(sizes, counts, strict=True)]
    largest = 50_000 / 100_000 + 1 / 1_000
    assert max(sizes) <= 100_000 + 50_000
    assert max(counts) <= 1_001
    assert max(work) - min(work) <= 2 * largest


def test_large_files_are_apart_and_every_file_keeps_its_index():
    packs = pack(files([1, 100, 2, 99, 500]), large=100, pack_bytes=50, pack_files=10)
    assert packs.large["index"].to_pylist() == [1, 4]
    assert packs.small["index"].to_pylist() == [0, 2, 3]
    # The file of 99 bytes is two packs of work: their numbers have no gap.
    assert packs.small["pack"].to_pylist() == [0, 0, 1]


@pytest.mark.parametrize("sizes", [[], [7], [0, 0, 0], [1_000, 2_000]])
def test_few_files(sizes):
    packs = pack(files(sizes), large=1_000, pack_bytes=100, pack_files=100)
    small = [size for size in sizes if size < 1_000]
    assert packs.small["pack"].to_pylist() == [0] * len(small)
    assert packs.count == (1 if small else 0)
    assert packs.large.num_rows == len(sizes) - len(small)
