"""Known files: what was ever frozen, newest batch first, and a cache that can be lost."""

import os
import random

import pyarrow as pa
import pytest

from oncelake.errors import ManifestUnreadable
from oncelake.sources.arrivals import known_files
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.known_files import KNOWN, KnownFiles
from oncelake.sources.arrivals.manifests import Manifests
from oncelake.storage import conditional, options
from support.s3 import REGION, new_bucket, s3_server

ODD = ["a b/100%.json", "day=2024-03-15/%41.json", "new\nline.json", "é.json", "e\u0301.json", "n" * 255]


def files(*rows):
    """Files by path, or by path, size and time."""
    whole = [row if isinstance(row, tuple) else (row, 1, 1) for row in rows]
    return pa.table([list(column) for column in zip(*whole, strict=True)] or [[], [], []], schema=FILES)


@pytest.fixture
def manifests(tmp_path):
    return Manifests(str(tmp_path / "arrivals/orders"))


def freeze(manifests, number, *rows, left=None, settled=True):
    """Freeze a batch; `left` has the states of files that it does not take in."""
    table = files(*rows)
    assert manifests.freeze(number, table, {})
    if settled:
        states = [(left or {}).get(path, "done") for path in table["path"].to_pylist()]
        manifests.record(number, table.append_column("state", pa.array(states, pa.string())))


def known(manifests):
    """The known files as path: (size, time, batch)."""
    rows = KnownFiles.load(manifests.folder).files.to_pylist()
    found = {row["path"]: (row["size"], row["modified"], row["batch"]) for row in rows}
    assert len(found) == len(rows)
    return found


def caches(manifests):
    return sorted(name for name in os.listdir(manifests.folder) if name.startswith("known-"))


def subtract(manifests, *rows):
    found = KnownFiles.load(manifests.folder).subtract(files(*rows))
    return found.new["path"].to_pylist(), found.changed.to_pylist()


def test_nothing_is_known_at_first(manifests):
    assert known(manifests) == {}
    assert subtract(manifests, "a", "b") == (["a", "b"], [])
    assert subtract(manifests) == ([], [])
    assert KnownFiles.load(manifests.folder).compact(always=True).files.num_rows == 0
    assert not os.path.exists(manifests.folder)


def test_what_is_frozen_is_known_and_what_differs_is_changed(manifests):
    freeze(manifests, 0, *ODD)
    freeze(manifests, 1, ("b", 5, 50), ("c", 5, 50), ("d", 5, 50))
    new, changed = subtract(manifests, *ODD, ("b", 6, 50), ("c", 5, 51), ("d", 5, 50), "e", "E")
    assert new == ["e", "E"]
    assert changed == [
        {"path": "b", "size": 6, "modified": 50, "known_size": 5, "known_modified": 50, "batch": 1},
        {"path": "c", "size": 5, "modified": 51, "known_size": 5, "known_modified": 50, "batch": 1},
    ]


def test_a_frozen_batch_without_outcomes_is_known(manifests):
    freeze(manifests, 0, "a", settled=False)
    assert subtract(manifests, "a") == ([], [])


@pytest.mark.parametrize("state", ["changed", "gone"])
def test_files_that_a_batch_left_may_come_again(manifests, state):
    freeze(manifests, 0, "a", "b", left={"a": state})
    assert subtract(manifests, "a", "b") == (["a"], [])
    freeze(manifests, 1, "a")
    assert subtract(manifests, "a", "b") == ([], [])


def test_a_file_that_a_later_batch_left_is_known_as_before(manifests):
    freeze(manifests, 0, ("a", 1, 1))
    freeze(manifests, 1, ("a", 2, 2), left={"a": "changed"})
    assert known(manifests) == {"a": (1, 1, 0)}


def test_the_newest_batch_of_a_path_counts_across_the_cache_too(manifests):
    freeze(manifests, 0, ("a", 1, 1), ("b", 1, 1))
    freeze(manifests, 1, ("a", 2, 2))
    KnownFiles.load(manifests.folder).compact(always=True)
    freeze(manifests, 2, ("a", 3, 3))
    freeze(manifests, 3, ("a", 4, 4), ("c", 1, 1))
    assert known(manifests) == {"a": (4, 4, 3), "b": (1, 1, 0), "c": (1, 1, 3)}
    assert subtract(manifests, ("a", 1, 1))[1][0]["batch"] == 3


def test_a_file_that_vanished_and_comes_back_is_not_new(manifests):
    freeze(manifests, 0, ("a", 1, 1), "b")
    assert subtract(manifests, "b") == ([], [])
    assert subtract(manifests, ("a", 1, 1), "b") == ([], [])


def test_a_quarantined_file_is_known(manifests):
    freeze(manifests, 0, "a", left={"a": "quarantined"})
    assert subtract(manifests, "a") == ([], [])


def damage(path, how):
    if how == "deleted":
        os.remove(path)
        return
    with open(path, "r+b") as stream:
        content = stream.read()
        stream.seek(0)
        stream.truncate(0)
        stream.write({"empty": b"", "cut off": content[:-20], "flipped": content[:30] + b"\xff" + content[31:]}[how])


@pytest.mark.parametrize("how", ["deleted", "empty", "cut off", "flipped"])
def test_a_cache_that_is_lost_or_damaged_is_rebuilt(manifests, how):
    freeze(manifests, 0, *ODD, "a", left={"a": "gone"})
    freeze(manifests, 1, ("b", 2, 2))
    KnownFiles.load(manifests.folder).compact(always=True)
    freeze(manifests, 2, "c")
    before = known(manifests)
    damage(f"{manifests.folder}/known-00000001.parquet", how)
    assert known(manifests) == before
    KnownFiles.load(manifests.folder).compact(always=True)
    assert KnownFiles.load(manifests.folder).base_number == 2
    assert known(manifests) == before


def test_the_cache_before_is_read_if_the_newest_is_damaged(manifests):
    for number in range(4):
        freeze(manifests, number, f"f{number}")
        KnownFiles.load(manifests.folder).compact(always=True)
    assert caches(manifests) == ["known-00000002.parquet", "known-00000003.parquet"]
    damage(f"{manifests.folder}/known-00000003.parquet", "cut off")
    assert KnownFiles.load(manifests.folder).base_number == 2
    assert known(manifests) == {f"f{number}": (1, 1, number) for number in range(4)}


def test_manifests_that_the_cache_has_are_not_read(manifests):
    freeze(manifests, 0, "a")
    KnownFiles.load(manifests.folder).compact(always=True)
    damage(f"{manifests.folder}/manifests/00000000.parquet", "empty")
    damage(f"{manifests.folder}/outcomes/00000000.parquet", "empty")
    assert known(manifests) == {"a": (1, 1, 0)}
    damage(f"{manifests.folder}/known-00000000.parquet", "empty")
    with pytest.raises(ManifestUnreadable, match=r"00000000\.parquet: it is empty"):
        known(manifests)


def test_compaction_ends_before_a_batch_whose_outcomes_are_not_recorded(manifests):
    freeze(manifests, 0, "a")
    freeze(manifests, 1, "b", settled=False)
    freeze(manifests, 2, "c")
    found = KnownFiles.load(manifests.folder).compact(always=True)
    assert (found.base_number, found.base["path"].to_pylist()) == (0, ["a"])
    assert sorted(found.files["path"].to_pylist()) == ["a", "b", "c"]
    manifests.record(1, files("b").append_column("state", pa.array(["gone"])))
    assert subtract(manifests, "a", "b", "c") == (["b"], [])


def test_outcomes_that_are_recorded_again_count(manifests):
    freeze(manifests, 0, "a")
    freeze(manifests, 1, "b", "c")
    KnownFiles.load(manifests.folder).compact(always=True)
    manifests.record(1, files("b", "c").append_column("state", pa.array(["done", "gone"])))
    assert known(manifests) == {"a": (1, 1, 0), "b": (1, 1, 1)}


def test_a_temporary_file_of_a_killed_process_is_ignored(manifests):
    freeze(manifests, 0, "a")
    KnownFiles.load(manifests.folder).compact(always=True)
    for name in ("manifests/.00000001.parquet-0a", "outcomes/.00000001.parquet-0b", ".known-00000001.parquet-0c"):
        with open(f"{manifests.folder}/{name}", "wb") as stream:
            stream.write(b"half")
    assert known(manifests) == {"a": (1, 1, 0)}
    freeze(manifests, 1, "b")
    assert known(manifests) == {"a": (1, 1, 0), "b": (1, 1, 1)}


def test_the_cache_is_written_every_fifty_batches(manifests):
    written = []
    for number in range(103):
        freeze(manifests, number, f"f{number}")
        if number in (0, 20, 48, 49, 50, 98, 99, 102):
            found = KnownFiles.load(manifests.folder)
            if found.compact() is not found:
                written.append(number)
    assert written == [49, 99]
    assert known(manifests) == {f"f{number}": (1, 1, number) for number in range(103)}


def test_the_cache_is_written_when_it_grows_by_a_quarter(manifests):
    sizes = [10_000, 2_000, 400, 100, 5_000]
    written = []
    for number, size in enumerate(sizes):
        freeze(manifests, number, *(f"{number}/{index}" for index in range(size)))
        found = KnownFiles.load(manifests.folder)
        if found.compact() is not found:
            written.append(number)
    assert written == [0, 3, 4]
    assert KnownFiles.load(manifests.folder).files.num_rows == sum(sizes)


def test_any_order_of_batches_kills_and_compactions_agrees_with_a_dict(manifests):
    rng, expected = random.Random(16), {}
    for number in range(40):
        rows = [(f"f{index}", rng.randrange(3), rng.randrange(3)) for index in rng.sample(range(30), rng.randrange(6))]
        left = {path: rng.choice(["changed", "gone"]) for path, _, _ in rows if rng.random() < 0.3}
        settled = number < 39
        freeze(manifests, number, *rows, left=left, settled=settled)
        expected |= {row[0]: (*row[1:], number) for row in rows if not settled or row[0] not in left}
        if rng.random() < 0.3:
            KnownFiles.load(manifests.folder).compact(always=True)
        if rng.random() < 0.2 and caches(manifests):
            damage(f"{manifests.folder}/{rng.choice(caches(manifests))}", rng.choice(["deleted", "cut off"]))
        assert known(manifests) == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_listing_is_subtracted_alike_in_ranges_and_as_a_whole(manifests, monkeypatch, seed):
    chosen = random.Random(seed)
    paths = [*ODD, *(f"{chosen.randrange(16**4):04x}/{number}" for number in range(60))]
    freeze(manifests, 0, *chosen.sample(paths, 30))
    KnownFiles.load(manifests.folder).compact(always=True)
    freeze(manifests, 1, *((path, 2, 2) for path in chosen.sample(paths, 10)))
    listing = sorted((path, chosen.randint(1, 2), 2) for path in chosen.sample(paths, 50))
    whole = subtract(manifests, *listing)
    assert all(whole)
    monkeypatch.setattr(known_files, "_LOOKED_UP", 7)
    assert subtract(manifests, *listing) == whole
    chosen.shuffle(listing)
    assert [sorted(map(str, part)) for part in subtract(manifests, *listing)] == [sorted(map(str, p)) for p in whole]


def test_three_hundred_thousand_known_files_are_subtracted(manifests):
    count = 300_000
    table = pa.table(
        {
            "path": pa.array(f"landing/part-{number:09}.json" for number in range(count)),
            "size": pa.repeat(200, count),
            "modified": pa.array(range(count), pa.int64()),
        }
    ).cast(FILES)
    base = table.slice(10).append_column("batch", pa.repeat(0, count - 10)).cast(KNOWN)
    found = KnownFiles(manifests.folder, base, 0, (), 0).subtract(table)
    assert (found.new.num_rows, found.changed.num_rows) == (10, 0)


def test_an_object_store_has_the_known_files_too(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(options, "_settings", {})
    monkeypatch.setattr(conditional, "_found", {})
    with s3_server() as address:
        for name, value in {"ENDPOINT_URL": address, "REGION": REGION, "ACCESS_KEY_ID": "me"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        manifests = Manifests(f"s3a://{new_bucket(address)}/lake/_oncelake/arrivals/orders")
        for number in range(4):
            freeze(manifests, number, ("a", number, 1), f"f{number}", left={"f1": "gone"})
            KnownFiles.load(manifests.folder).compact(always=number < 3)
        found = KnownFiles.load(manifests.folder)
        assert (found.base_number, [number for number, _ in found.tail]) == (2, [3])
        expected = {"a": (3, 1, 3), "f0": (1, 1, 0), "f2": (1, 1, 2), "f3": (1, 1, 3)}
        assert known(manifests) == expected
        manifests.record(1, files("a", "f1").append_column("state", pa.array(["done", "done"])))
        assert known(manifests) == expected | {"f1": (1, 1, 1)}
