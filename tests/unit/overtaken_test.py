"""Works that another commit overtook, because no lock kept it out: found in the newest commits, planned once more."""

from datetime import UTC, datetime

import pytest

import oncelake as once
from oncelake.declare.pipelines import Schedule, build
from oncelake.delta.log import read_log
from oncelake.model.intervals import Grid
from oncelake.model.markers import (
    Marker,
    app_id,
    applied_work,
    present_app_id,
    reapply_app_id,
    restore_marker,
    writer_of,
)
from oncelake.model.slices import Named, Whole
from oncelake.model.work import Request
from oncelake.planning.plan import LakeState, make_plan
from oncelake.running.commit import reapply_marker
from oncelake.running.commit_state import state_in
from oncelake.sources import table
from oncelake.testing import MemoryLog
from support.hand_written_logs import txn, write_commit

DAY = Grid("day").cell(datetime(2024, 1, 1, tzinfo=UTC))
MINE, OTHER = (app_id("history", "t", slice_) for slice_ in (DAY, Named("other")))
NOW = datetime(2024, 1, 2, 6, tzinfo=UTC)


class Log:
    """A log that is written by hand, commit by commit."""

    def __init__(self, folder):
        self.folder, self.version = folder, -1
        self.commit()

    def commit(self, marker=None, **facts):
        self.version += 1
        actions = [] if marker is None else [txn(marker)]
        write_commit(self.folder, self.version, *actions, facts=facts or None)
        return self

    def work(self, name, version=1, read=None, overtaken=None, as_of=None):
        """Commit a work; by default it was compared with the version before it."""
        facts = {"read": self.version if read is None else read, "as_of": self.version if as_of is None else as_of}
        facts |= {"overtaken": overtaken} if overtaken else {}
        return self.commit(Marker(name, version), attempt=f"{name} {self.version}", **facts)

    def overtaken(self, **more):
        return dict(read_log("t", str(self.folder)).overtaken)


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "t")


def test_a_work_whose_commit_is_not_the_version_after_its_read_was_overtaken(log):
    assert log.work(MINE).overtaken() == {}
    log.work(OTHER)
    assert log.work(MINE, 2, read=log.version - 1).overtaken() == {MINE: 3}


def test_it_is_applied_once_more_until_no_commit_came_in_between(log):
    log.work(OTHER).work(MINE, read=0, as_of=0)
    assert log.overtaken() == {MINE: 2}
    log.commit().work(reapply_app_id(MINE), 2, read=2, as_of=2)
    assert log.overtaken() == {MINE: 4}
    assert log.work(reapply_app_id(MINE), 4).overtaken() == {}


def test_a_later_generation_does_not_count_for_it(log):
    log.work(OTHER).work(MINE, read=0, as_of=0).work(MINE, 2, overtaken={MINE: 2})
    assert log.overtaken() == {MINE: 2}


def test_commits_list_what_their_writer_knew_so_that_few_are_read(log):
    log.work(OTHER).work(MINE, read=0, as_of=0)
    for _ in range(20):
        log.work(OTHER, log.version, overtaken={MINE: 2})
    found = read_log("t", str(log.folder))
    found.entries.clear()
    assert found.overtaken == {MINE: 2}
    assert len(found.entries) == 2  # the newest commit, and one that is as old as its list


def test_commits_from_before_there_were_lists_are_not_searched(log):
    log.work(OTHER).work(MINE, read=0, as_of=0).commit(Marker(OTHER, 2), attempt="before")
    assert log.overtaken() == {}


def test_what_a_restore_undid_is_not_applied_once_more(log):
    log.work(OTHER).work(MINE, read=0, as_of=0)
    log.commit(restore_marker("t", 3, 1), restore=1)
    assert log.overtaken() == {}


def test_what_a_restore_brought_back_is_applied_once_more_again(log):
    log.work(OTHER).work(MINE, read=0, as_of=0).work(reapply_app_id(MINE), 2)
    log.commit(restore_marker("t", 4, 2), restore=2)
    assert log.overtaken() == {MINE: 2}
    found = read_log("t", str(log.folder))
    assert reapply_marker(Marker(MINE, 1), found) == Marker(reapply_app_id(MINE), 3)


def test_it_counts_under_the_present_name_of_a_renamed_pipeline(log):
    from dataclasses import replace

    log.work(OTHER).work(MINE, read=0, as_of=0)
    found = replace(read_log("t", str(log.folder)), formerly={"new": ("history",)})
    present = app_id("new", "t", DAY)
    assert (found.overtaken, found.overtaken_version(present), found.overtaken_version(MINE)) == ({present: 2}, 2, 2)
    assert reapply_marker(Marker(present, 1), found) == Marker(reapply_app_id(present), 2)


def test_the_app_id_names_the_work_and_no_other_writer():
    assert applied_work(reapply_app_id(MINE)) == applied_work(MINE) == MINE
    assert writer_of(reapply_app_id(MINE)) is None
    assert present_app_id(MINE, {}) == MINE


def history(every="day"):
    pattern = once.scd2("t", keys="id", latest_by="at")
    start = "2024-01-01" if every else None
    return build(
        lambda raw: raw,
        table("raw", time="at" if every else None),
        pattern,
        Schedule(every, start, "UTC"),
        name="history",
        where="x:1",
    )


@pytest.mark.parametrize("every", ["day", None])
def test_it_is_planned_in_its_generation_and_is_not_done(every):
    pipeline = history(every)
    slice_ = DAY if every else Whole()
    marker = pipeline.writes[0].marker("history", slice_, 3)
    pins = {"raw": {"version": 1}}
    log = MemoryLog(overtaken={marker.app_id: 0}).add(marker, pins=pins)
    known = LakeState({"t": log}, {"history": pins})
    (item,) = make_plan({"history": pipeline}, known, Request(NOW)).works
    assert (item.action, item.work.generation, item.cause) == ("run", 3, "restated")
    assert "another commit came between its read and version 0" in item.why
    state = state_in(item.work, log)
    assert (state.done, state.overtaken, state.commit.facts) == (False, 0, {"pins": pins})
    log.overtaken.clear()
    (item,) = make_plan({"history": pipeline}, known, Request(NOW)).works
    assert item.action == "skip"
