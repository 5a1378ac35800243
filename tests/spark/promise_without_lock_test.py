"""Without a lock (an object store) another runner may commit between a keyed write's read and its MERGE: nothing is lost."""

from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.store import MemoryStore

import oncelake as once
from oncelake.delta import tables, writes
from oncelake.model import failpoints
from oncelake.storage.lease import LeaseFiles
from support.lakes import DAYS
from support.orders import open_orders
from support.variants import VARIANTS, sampled

SCHEMA = "id long, v long"


def without_lock(monkeypatch):
    """Make every table as one on an object store without leases."""
    monkeypatch.setattr(tables.DeltaTable, "exclusive", property(lambda _: False))
    monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)


@pytest.fixture
def no_lock(monkeypatch):
    without_lock(monkeypatch)


TABLES = ("empty table", "other keys")
CASES = {
    "merge": (once.merge("t", keys="id", latest_by="v"), (1, 20), (1, 10), [(0, 0), (1, 20)]),
    "merge, the other is newer": (once.merge("t", keys="id", latest_by="v"), (1, 10), (1, 20), [(0, 0), (1, 20)]),
    "aggregate": (once.aggregate("t", keys="id"), (1, 20), (1, 10), [(0, 0), (1, 20)]),
    "aggregate, adding": (once.aggregate("t", keys="id", add="v"), (1, 100), (1, 5), [(0, 0), (1, 105)]),
}


@pytest.mark.parametrize("case", sampled([f"{case}; {table}" for case in CASES for table in TABLES], 2, "no lock"))
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


def test_without_a_fence_a_range_is_written_interval_by_interval(spark, tmp_path, monkeypatch):
    project = open_orders(tmp_path, spark, VARIANTS["replace_interval"])
    plan = project.plan("orders", start=DAYS[0], end="2024-03-17")
    assert len(plan.to_do) == 1
    # The plan did not know it: the session's log store fences no ranges.
    without_lock(monkeypatch)
    report = project.apply(plan)
    assert [(each.outcome, each.rows.written) for each in report.works] == [("committed", 3)] * 3


EVENTS = "id long, at long, v string, gone boolean"
MERGE = once.merge("t", keys="id", latest_by="at", delete_when="gone", exclude="gone")
HISTORY = once.scd2("t", keys="id", latest_by="at", delete_when="gone", exclude="gone")


def row(at, v="row"):
    return (1, at, v, False)


def delete(at):
    return (1, at, None, True)


# What is there before; what is written; what another runner commits between the read and the MERGE of that.
OVERTAKEN = {
    "merge: a delete that leaves only a tombstone": (MERGE, [], [row(5)], [delete(10)]),
    "merge: a delete of the existing row": (MERGE, [row(1)], [row(5), (2, 5, "other key", False)], [delete(10)]),
    "merge: a newer row than the delete": (MERGE, [row(1)], [delete(5)], [row(10)]),
    "merge: an older delete": (MERGE, [row(1)], [row(10)], [delete(5)]),
    "merge: a delete of the same time": (MERGE, [], [row(5)], [delete(5)]),
    "merge: two deletes": (MERGE, [row(1)], [delete(5)], [delete(10)]),
    "scd2: an earlier event": (HISTORY, [row(1, "a")], [row(7, "c")], [row(5, "b")]),
    "scd2: a later event": (HISTORY, [row(1, "a")], [row(3, "b")], [row(5, "c")]),
    "scd2: the first event of the key": (HISTORY, [], [row(7, "c")], [row(5, "b")]),
    "scd2: another event of the same time": (HISTORY, [row(1, "a")], [row(7, "b")], [row(7, "c")]),
    "scd2: and the other way round": (HISTORY, [row(1, "a")], [row(7, "c")], [row(7, "b")]),
    "scd2: an event that makes another one a repetition": (
        HISTORY,
        [row(1, "a"), row(5, "b")],
        [row(3, "b")],
        [row(2, "c")],
    ),
    "scd2: an event that repeats the values": (HISTORY, [row(1, "a")], [row(7, "b")], [row(5, "a")]),
    "scd2: a delete before it": (HISTORY, [row(1, "a")], [row(7, "a")], [delete(5)]),
    "scd2: a delete after it": (HISTORY, [row(1, "a")], [row(3, "b")], [delete(5)]),
    "scd2: its own delete": (HISTORY, [row(1, "a")], [delete(5)], [row(7, "a")]),
}
# A late event afterwards shows what is stored beside the table.
LATE = [row(6, "late")]


def content(lake):
    rows = DeltaTable(f"{lake}/t").to_pyarrow_table().to_pylist()
    return sorted(({**row} for row in rows), key=repr)


def written_at_once(spark, lake, pattern, *batches):
    """Return what a table has if all events come in one batch, under the lock: no order of batches changes it."""
    events = [event for batch in batches for event in batch]
    once.write(spark.createDataFrame(events, EVENTS), pattern, work="clean/1", lake=lake)
    return content(lake)


@pytest.fixture
def at_failpoint():
    """Call functions when failpoints are reached, so many times; what they reach themselves is not watched."""
    left = {}

    def on_reach(point):
        if left.get(point, []):
            failpoints.watch(None)
            try:
                left[point].pop()()
            finally:
                failpoints.watch(on_reach)

    def watch(point, function, times=1):
        left[point] = [function] * times
        failpoints.watch(on_reach)

    yield watch
    failpoints.watch(None)


class Killed(BaseException):
    """The process ends here."""


def kill():
    raise Killed


@pytest.mark.parametrize(
    "case", sampled(OVERTAKEN, 1, "overtaken", always=["merge: a delete that leaves only a tombstone"])
)
@pytest.mark.parametrize(
    "then", ["once", pytest.param("twice", marks=pytest.mark.long), pytest.param("killed", marks=pytest.mark.long)]
)
@pytest.mark.filterwarnings("ignore:.*lease.*")
def test_a_work_that_another_commit_overtook_is_applied_once_more(
    spark, tmp_path, monkeypatch, at_failpoint, case, then
):
    pattern, before, mine, other = OVERTAKEN[case]
    expected = written_at_once(spark, str(tmp_path / "clean"), pattern, before, other, mine)
    with_late = written_at_once(spark, str(tmp_path / "with late"), pattern, before, other, mine, LATE)
    without_lock(monkeypatch)
    lake = str(tmp_path / "lake")

    def write(batch, work):
        return once.write(spark.createDataFrame(batch, EVENTS), pattern, work=work, lake=lake)

    if before:
        write(before, "before/0")
    # Twice: the commit that applies it once more may be overtaken as well.
    at_failpoint("committing", lambda: write(other, f"other/{uuid4()}"), times=2 if then == "twice" else 1)
    if then == "killed":
        at_failpoint("written", kill)
        with pytest.raises(Killed):
            write(mine, "mine/1")
    assert write(mine, "mine/1").outcome == "committed"
    assert content(lake) == expected
    assert write(mine, "mine/1").outcome == "already_done"
    write(LATE, "late/1")
    assert content(lake) == with_late


@pytest.mark.filterwarnings("ignore:.*lease.*")
def test_the_next_run_applies_it_once_more_if_the_process_was_killed(spark, tmp_path, monkeypatch, at_failpoint):
    days = [datetime(2024, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
    raw = pa.table({"id": [1, 1, 1], "at": pa.array(days, pa.timestamp("us", "UTC")), "v": ["a", "b", "c"]})
    write_deltalake(f"{tmp_path}/raw", raw)

    @once.pipeline(
        every="day",
        start="2024-01-01",
        reads=once.table("raw", time="at"),
        writes=once.scd2("t", keys="id", latest_by="at"),
    )
    def history(raw):
        return raw

    def opened():
        return once.Project.of(history, lake=tmp_path, spark=spark)

    now = datetime(2024, 1, 4, tzinfo=UTC)
    without_lock(monkeypatch)
    opened().run(date="2024-01-01", now=now)
    at_failpoint("committing", lambda: opened().run(date="2024-01-02", now=now))
    at_failpoint("written", kill)
    with pytest.raises(Killed):
        opened().run(date="2024-01-03", now=now)
    assert (days[1], None) in intervals(tmp_path)  # the history is wrong until the work is applied once more
    (status,) = opened().status(now=now)
    assert [str(interval) for interval in status.pending] == ["[2024-01-03, 2024-01-04)"]
    # Input that came since is not for this: the work is applied from the version that it had read.
    write_deltalake(f"{tmp_path}/raw", raw.slice(2).set_column(2, "v", pa.array(["late"])), mode="append")
    report = opened().run(now=now)
    assert [(work.outcome, work.generation) for work in report.works][-1] == ("committed", 1)
    assert intervals(tmp_path) == [(days[0], days[1]), (days[1], days[2]), (days[2], None)]
    assert {work.outcome for work in opened().run(now=now).works} == {"already_done"}


def intervals(lake):
    rows = DeltaTable(f"{lake}/t").to_pyarrow_table(columns=["valid_from", "valid_to"]).to_pylist()
    return sorted((row["valid_from"], row["valid_to"]) for row in rows)


@pytest.mark.filterwarnings("ignore:.*lease.*")
def test_a_repair_loses_no_row_that_is_written_meanwhile(spark, tmp_path, no_lock, at_failpoint):
    def rows(*found):
        ids, values = zip(*found, strict=True)
        return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})

    write_deltalake(f"{tmp_path}/t", rows((1, 1), (1, 1), (2, 1), (3, 1), (3, 1)))

    def meanwhile():
        DeltaTable(f"{tmp_path}/t").delete("id = 3")  # its rows must not come back
        write_deltalake(f"{tmp_path}/t", rows((1, 2), (2, 1)), mode="append")

    at_failpoint("committing", meanwhile)
    project = once.Project.of(lake=tmp_path, spark=spark)
    repair = project.repair("t", keys=["id"], keep=["v"])
    found = DeltaTable(f"{tmp_path}/t").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["v"]) for row in found) == [(1, 2), (2, 1)]
    assert (repair.read, repair.version, repair.left) == (0, 3, 0)


@pytest.mark.filterwarnings("ignore:.*lease.*")
def test_a_runner_that_lost_its_lease_takes_a_new_one_before_it_writes(spark, tmp_path, monkeypatch, at_failpoint):
    leases, lake = LeaseFiles(MemoryStore(), "t"), str(tmp_path / "lake")
    without_lock(monkeypatch)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: leases)

    def lose():
        """Another runner has had a lease meanwhile, and has ended it."""
        number = leases.newest()[0] + 1
        assert leases.take(number, {"pid": "other"})
        leases.end(number)

    at_failpoint("writing", lose)
    frame = spark.createDataFrame([(1, 1)], SCHEMA)
    assert once.write(frame, once.append("t"), work="mine/1", lake=lake).outcome == "committed"
    assert leases.newest()[0] == 3
    assert DeltaTable(f"{lake}/t").to_pyarrow_table().num_rows == 1
