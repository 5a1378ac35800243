"""Without a lock (an object store) another runner may commit between a keyed write's read and its MERGE: nothing is lost."""

import pytest
from deltalake import DeltaTable

import oncelake as once
from oncelake.delta import tables, writes
from support.variants import sampled

SCHEMA = "id long, v long"


@pytest.fixture
def no_lock(monkeypatch):
    """Make every table as one on an object store without leases."""
    monkeypatch.setattr(tables.DeltaTable, "exclusive", property(lambda _: False))
    monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)


TABLES = ("empty table", "other keys")
CASES = {
    "merge": (once.merge("t", keys="id", latest_by="v"), (1, 20), (1, 10), [(0, 0), (1, 20)]),
    "merge, the other is newer": (once.merge("t", keys="id", latest_by="v"), (1, 10), (1, 20), [(0, 0), (1, 20)]),
    "aggregate": (once.aggregate("t", keys="id"), (1, 20), (1, 10), [(0, 0), (1, 20)]),
    "aggregate, adding": (once.aggregate("t", keys="id", add="v"), (1, 100), (1, 5), [(0, 0), (1, 105)]),
}


@pytest.mark.parametrize("case", sampled([f"{case}; {table}" for case in CASES for table in TABLES], 3, "no lock"))
@pytest.mark.filterwarnings("ignore:.*lease.*")
def test_a_commit_between_the_read_and_the_merge_is_not_lost(spark, tmp_path, monkeypatch, no_lock, case):
    name, _, table = case.partition("; ")
    pattern, mine, other, expected = CASES[name]
    empty = table == "empty table"
    lake = str(tmp_path / "lake")

    def write(row, work):
        return once.write(spark.createDataFrame([row], SCHEMA), pattern, work=work, lake=lake)

    if not empty:
        write((0, 0), "seed/0")
    real, calls = writes.merge, []

    def between(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            write(other, "other/1")
        return real(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(writes, "merge", between)
        assert write(mine, "mine/1").outcome == "committed"
    found = sorted((row["id"], row["v"]) for row in DeltaTable(f"{lake}/t").to_pyarrow_table().to_pylist())
    assert found == expected[1:] if empty else found == expected
