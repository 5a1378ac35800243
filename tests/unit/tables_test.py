"""A table's log is replayed once and refreshed after that: only new commits are read, and a changed world is seen."""

import shutil

import pytest

from oncelake.delta.tables import Lake, require_log
from oncelake.errors import BadDeclaration, CorruptLog, TableMissing
from oncelake.model.markers import Marker
from oncelake.storage import objects
from support.hand_written_logs import metadata, txn, write_commit


@pytest.fixture
def reads(monkeypatch):
    """The files that are read through the storage, in their order."""
    found = []
    real = objects._Local.read
    monkeypatch.setattr(objects._Local, "read", lambda self, name: found.append(name[-7:-5]) or real(self, name))
    return found


@pytest.fixture
def table(tmp_path):
    return Lake(str(tmp_path), ".").table("silver.orders")


def commit(table, *versions):
    from pathlib import Path

    for version in versions:
        write_commit(Path(table.path), version, txn(Marker(f"app-{version}", 1)))


def test_a_table_is_the_same_object_each_time_it_is_asked_for(tmp_path):
    lake = Lake(str(tmp_path), ".")
    assert lake.table("silver.orders") is lake.table("silver.orders")
    assert lake.table("silver.orders").path == f"{tmp_path}/silver/orders"
    with pytest.raises(BadDeclaration):
        lake.table("../elsewhere")


def test_every_commit_is_read_once_however_often_the_log_is_asked_for(table, reads):
    commit(table, 0, 1, 2)
    assert table.log().version == 2
    assert reads == ["00", "01", "02"]
    assert table.log().done(Marker("app-1", 1))
    commit(table, 3)
    assert table.log().version == 3
    assert reads == ["00", "01", "02", "03"]


def test_a_commit_that_was_replayed_is_not_read_again_for_its_facts(table, reads):
    commit(table, 0, 1)
    assert table.log().commit("app-1").version == 1
    assert reads == ["00", "01"]


def test_the_last_log_is_answered_without_a_look_at_the_disk(table, reads):
    commit(table, 0)
    table.log()
    commit(table, 1)
    assert table.last_log().version == 0
    assert reads == ["00"]


def test_a_refreshed_log_knows_what_a_replayed_one_knows(table, tmp_path):
    commit(table, 0, 1)
    table.log().coverage("orders", "silver.orders")
    commit(table, 2, 3)
    refreshed, replayed = table.log(), Lake(str(tmp_path), ".").table("silver.orders").log()
    assert refreshed.markers == replayed.markers
    assert (refreshed.version, refreshed.commits, refreshed.metadata) == (
        replayed.version,
        replayed.commits,
        replayed.metadata,
    )


def test_a_table_that_was_dropped_is_gone(table):
    from pathlib import Path

    commit(table, 0, 1)
    assert table.log() is not None
    shutil.rmtree(Path(table.path))
    assert table.log() is None
    with pytest.raises(TableMissing):
        require_log(table)


@pytest.mark.parametrize("versions", [(0,), (0, 1), (0, 1, 2)])
def test_a_table_that_was_dropped_and_recreated_is_replayed(table, versions):
    from pathlib import Path

    commit(table, 0, 1)
    assert table.log().done(Marker("app-1", 1))
    shutil.rmtree(Path(table.path))
    for version in versions:
        actions = [metadata("recreated")] if version == 0 else []
        write_commit(Path(table.path), version, *actions, txn(Marker(f"other-{version}", 1)))
    log = table.log()
    assert not log.done(Marker("app-0", 1))
    assert set(log.markers) == {f"other-{version}" for version in versions}


def test_a_commit_that_is_missing_is_not_passed_over(table):
    commit(table, 0, 1)
    table.log()
    commit(table, 3)
    with pytest.raises(CorruptLog):
        table.log()


def test_commits_that_were_cleaned_up_are_no_longer_listed(table):
    from pathlib import Path

    commit(table, 0, 1, 2)
    table.log()
    (Path(table.path) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(CorruptLog):  # no checkpoint covers what is gone
        table.log()
