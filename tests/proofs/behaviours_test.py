"""What holds for every pattern: twice is once, stopped anywhere is once, any order is the same, two at once is once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import oncelake as once
from oncelake.delta import writes as delta_writes
from oncelake.model import failpoints
from support.lakes import DAYS, WRITES, commits, expected_ids, ids, land, orders_project, variants

SPAN = {"start": DAYS[0], "end": "2024-03-17"}


@pytest.fixture(params=variants())
def writes(request):
    return WRITES[request.param]


def opened(tmp_path, spark, writes, missing=""):
    return once.open(orders_project(tmp_path, writes, missing), spark=spark)


def test_twice_is_once(tmp_path, spark, writes):
    project = opened(tmp_path, spark, writes)
    first = project.run("orders", **SPAN)
    second = project.run("orders", **SPAN)
    # Where the pattern sets its slice, neighbouring days are one.
    combine_intervals = "replace_" in writes
    assert (first.outcome, [w.outcome for w in first.works]) == (
        "done",
        ["committed"] * (1 if combine_intervals else 3),
    )
    assert {w.outcome for w in second.works} == {"already_done"}
    # What an earlier reload wrote is not told any more once a later one is in place.
    assert [(w.rows.written, w.version) for w in second.works][-1:] == [
        (w.rows.written, w.version) for w in first.works
    ][-1:]
    assert first.works[0].rows.written == (9 if combine_intervals else 3)
    assert ids(tmp_path) == expected_ids(writes)
    assert commits(tmp_path) == len(first.works)


@pytest.mark.parametrize("order", [(2, 1, 0), pytest.param((1, 0, 2), marks=pytest.mark.long)], ids=str)
def test_any_order_is_the_same(tmp_path, spark, writes, order):
    project = opened(tmp_path, spark, writes)
    for index in order:
        assert project.run("orders", date=DAYS[index]).outcome == "done"
    assert ids(tmp_path) == expected_ids(writes)


class Stopped(BaseException):
    """The process ends here: nothing in the ring may catch it."""


@pytest.mark.parametrize("point", failpoints.FAILPOINTS)
def test_stopped_at_any_point_is_once(tmp_path, spark, writes, point):
    if point == "prepared" and "delete_when" not in writes:
        pytest.skip("it remembers nothing")
    if "keys" in writes and failpoints.FAILPOINTS.index(point) < failpoints.FAILPOINTS.index("created"):
        pytest.skip("nothing that a keyed pattern does comes before")

    def stop(reached):
        if reached == point:
            raise Stopped

    project = opened(tmp_path, spark, writes)
    failpoints.watch(stop)
    try:
        with pytest.raises(Stopped):
            project.run("orders", date=DAYS[1])
    finally:
        failpoints.watch(None)
    assert project.run("orders", date=DAYS[1]).outcome == "done"
    assert ids(tmp_path) == expected_ids(writes, DAYS[1:2])
    assert commits(tmp_path) == 1


def test_two_at_once_is_once(tmp_path, spark, writes):
    root = orders_project(tmp_path, writes)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda _: once.open(root, spark=spark).run("orders", date=DAYS[0]), range(2)))
    assert sorted(r.works[0].outcome for r in reports) == ["already_done", "committed"], [
        r.works[0].error for r in reports
    ]
    assert ids(tmp_path) == expected_ids(writes, DAYS[:1])
    assert commits(tmp_path) == 1


def test_two_at_once_without_the_lock_is_once(tmp_path, spark, writes, monkeypatch):
    """The marker decides, not the lock: on an object store there is none."""
    monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)
    root = orders_project(tmp_path, writes)
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda _: once.open(root, spark=spark).run("orders", date=DAYS[0]), range(3)))
    outcomes = sorted(r.works[0].outcome for r in reports)
    assert outcomes == ["already_done", "already_done", "committed"], [r.works[0].error for r in reports]
    assert ids(tmp_path) == expected_ids(writes, DAYS[:1])
    assert commits(tmp_path) == 1


def test_a_commit_whose_answer_was_lost_is_reported_as_committed(tmp_path, spark, writes, monkeypatch):
    real, merge = delta_writes._writer, delta_writes.merge

    class AnswerLost:
        def __init__(self, writer):
            self.writer = writer

        def __getattr__(self, name):
            found = getattr(self.writer, name)
            return (lambda *a, **k: AnswerLost(found(*a, **k))) if name != "save" else self._save

        def _save(self, path):
            self.writer.save(path)
            raise ConnectionError("the answer was lost")

    def merged(*given, **more):
        merge(*given, **more)
        raise ConnectionError("the answer was lost")

    project = opened(tmp_path, spark, writes)
    monkeypatch.setattr(delta_writes, "_writer", lambda frame, stamp: AnswerLost(real(frame, stamp)))
    monkeypatch.setattr(delta_writes, "merge", merged)
    report = project.run("orders", date=DAYS[0])
    assert [w.outcome for w in report.works] == ["committed"]
    assert ids(tmp_path) == expected_ids(writes, DAYS[:1])
    assert commits(tmp_path) == 1


def test_an_interval_without_rows_is_done_and_empty(tmp_path, spark, writes):
    if writes.startswith("once.overwrite"):
        pytest.skip("a reload without rows has its own test")
    project = opened(tmp_path, spark, writes, ', missing="empty"')
    land(tmp_path, DAYS[0], [])
    reports = [project.run("orders", date=day) for day in DAYS[:2]]
    expected = expected_ids(writes, DAYS[1:2])
    written = [(report.works[0].outcome, report.works[0].rows.written) for report in reports]
    assert written == [("committed", 0), ("committed", len(expected))]
    assert ids(tmp_path) == expected
    assert project.run("orders", date=DAYS[0]).works[0].outcome == "already_done"


def test_one_work_is_one_commit_with_its_marker_and_facts(tmp_path, spark, writes):
    project = opened(tmp_path, spark, writes)
    report = project.run("orders", date=DAYS[1])
    newest = project.history("silver.orders")[0]
    assert newest.version == report.works[0].version
    assert newest.facts["slice"] == "2024-03-15T00:00:00Z..2024-03-16T00:00:00Z"
    assert newest.facts["pipeline"] == "orders"
    assert newest.facts["generation"] == 1
    assert newest.facts["pins"]["files"]["count"] == 1
    assert newest.facts["code"]
    assert ids(tmp_path) == expected_ids(writes, DAYS[1:2])
