"""What holds for every pattern: twice is once, stopped anywhere is once, any order is the same, two at once is once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from oncelake.delta import writes as delta_writes
from oncelake.model.failpoints import FAILPOINTS
from support.lakes import DAYS, commits, expected_ids, ids, land
from support.orders import open_orders, reopen_orders
from support.variants import VARIANTS, sampled_with, some_variants, variants

SPAN = {"start": DAYS[0], "end": "2024-03-17"}
EVERY_VARIANT = pytest.mark.parametrize("variant", variants())


@EVERY_VARIANT
def test_twice_is_once(tmp_path, spark, variant):
    project = open_orders(tmp_path, spark, variant)
    first = project.run("orders", **SPAN)
    second = project.run("orders", **SPAN)
    # Neighbouring days are one commit only where a lock keeps every other writer out, or ranges are fenced.
    combined = variant.sets_slice and project.lake.takes_ranges(["silver.orders"])
    works = 1 if combined else 3
    assert (first.outcome, [w.outcome for w in first.works]) == ("done", ["committed"] * works)
    assert {w.outcome for w in second.works} == {"already_done"}
    # What an earlier reload wrote is not reported any more once a later one is in place.
    assert [(w.rows.written, w.version) for w in second.works][-1:] == [
        (w.rows.written, w.version) for w in first.works
    ][-1:]
    assert first.works[0].rows.written == (9 if combined else 3)
    assert ids(tmp_path) == expected_ids(variant)
    assert commits(tmp_path) == len(first.works)


@EVERY_VARIANT
@pytest.mark.parametrize("order", [(2, 1, 0), pytest.param((1, 0, 2), marks=pytest.mark.long)], ids=str)
def test_any_order_is_the_same_and_a_work_is_one_commit_with_its_marker_and_facts(tmp_path, spark, variant, order):
    project = open_orders(tmp_path, spark, variant)
    for number, index in enumerate(order):
        report = project.run("orders", date=DAYS[index])
        assert report.outcome == "done"
        if number == 0:
            has_its_facts(project.history("silver.orders")[0], report.works[0], index)
            assert ids(tmp_path) == expected_ids(variant, DAYS[index : index + 1])
    assert ids(tmp_path) == expected_ids(variant)


def has_its_facts(newest, work, index):
    assert newest.version == work.version
    assert newest.facts["slice"] == f"{DAYS[index]}T00:00:00Z..2024-03-{15 + index}T00:00:00Z"
    assert newest.facts["pipeline"] == "orders"
    assert newest.facts["generation"] == 1
    assert newest.facts["pins"]["files"]["count"] == 1
    assert newest.facts["code"]


def points_of(variant):
    """Return the failpoints that a variant reaches. Nothing that a keyed pattern does comes before the table is there."""
    first = FAILPOINTS.index("created") if variant.keyed else 0
    return [point for point in FAILPOINTS[first:] if point != "prepared" or variant.prepares]


STOPS = [
    stop for variant in VARIANTS.values() for stop in sampled_with(variant, points_of(variant), 1, always=("written",))
]


@pytest.mark.parametrize(("variant", "point"), STOPS)
def test_stopped_at_any_point_is_once(tmp_path, spark, stopped_at, variant, point):
    project = open_orders(tmp_path, spark, variant)
    with stopped_at(point):
        project.run("orders", date=DAYS[1])
    assert project.run("orders", date=DAYS[1]).outcome == "done"
    assert ids(tmp_path) == expected_ids(variant, DAYS[1:2])
    assert commits(tmp_path) == 1


def ends_as_once(tmp_path, spark, variant, runners):
    others = [reopen_orders(tmp_path, spark, variant) for _ in range(1, runners)]
    projects = [open_orders(tmp_path, spark, variant), *others]
    with ThreadPoolExecutor(runners) as pool:
        reports = list(pool.map(lambda project: project.run("orders", date=DAYS[0]), projects))
    outcomes = sorted(report.works[0].outcome for report in reports)
    assert outcomes == ["already_done"] * (runners - 1) + ["committed"], [r.works[0].error for r in reports]
    assert ids(tmp_path) == expected_ids(variant, DAYS[:1])
    assert commits(tmp_path) == 1


@pytest.mark.parametrize("variant", some_variants(1, 1, "with the lock"))
def test_run_by_two_at_once_is_once(tmp_path, spark, variant):
    ends_as_once(tmp_path, spark, variant, 2)


@pytest.mark.parametrize("variant", some_variants(2, 2, "without a lock"))
def test_run_by_three_at_once_without_a_lock_is_once(tmp_path, spark, variant, monkeypatch):
    """The marker decides: on an object store there is no lock."""
    monkeypatch.setattr("oncelake.delta.tables.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)
    ends_as_once(tmp_path, spark, variant, 3)


@pytest.mark.parametrize("variant", some_variants(2, 1, "lost"))
def test_a_commit_whose_answer_was_lost_is_reported_as_committed(tmp_path, spark, variant, monkeypatch):
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

    project = open_orders(tmp_path, spark, variant)
    monkeypatch.setattr(delta_writes, "_writer", lambda frame, stamp: AnswerLost(real(frame, stamp)))
    monkeypatch.setattr(delta_writes, "merge", merged)
    report = project.run("orders", date=DAYS[0])
    assert [w.outcome for w in report.works] == ["committed"]
    assert ids(tmp_path) == expected_ids(variant, DAYS[:1])
    assert commits(tmp_path) == 1


# A reload without rows has its own test.
@pytest.mark.parametrize("variant", some_variants(2, 1, "empty", without="overwrite"))
def test_an_interval_without_rows_is_done_and_empty(tmp_path, spark, variant):
    project = open_orders(tmp_path, spark, variant, missing="empty")
    land(tmp_path, DAYS[0], [])
    reports = [project.run("orders", date=day) for day in DAYS[:2]]
    expected = expected_ids(variant, DAYS[1:2])
    written = [(report.works[0].outcome, report.works[0].rows.written) for report in reports]
    assert written == [("committed", 0), ("committed", len(expected))]
    assert ids(tmp_path) == expected
    assert project.run("orders", date=DAYS[0]).works[0].outcome == "already_done"
