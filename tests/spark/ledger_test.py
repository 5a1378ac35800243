"""The ledger tells of every attempt, and never stands in the way of one."""

import shutil

from oncelake.model.events import Warned
from oncelake.testing import RecordingListener
from support.lakes import DAYS, ids, land
from support.orders import open_orders


def test_an_attempt_leaves_a_row_when_it_starts_and_one_when_it_ends(tmp_path, spark):
    project = open_orders(tmp_path, spark, "append")
    project.run("orders", date=DAYS[0])
    (tmp_path / "landing" / DAYS[1] / "orders.json").unlink()
    project.run("orders", date=DAYS[1])
    found = [(e["event"], e["slice"], e["outcome"], e["code"]) for e in project.ledger()]
    assert found == [
        ("started", "[2024-03-14, 2024-03-15)", None, None),
        ("ended", "[2024-03-14, 2024-03-15)", "committed", None),
        ("started", "[2024-03-15, 2024-03-16)", None, None),
        ("ended", "[2024-03-15, 2024-03-16)", "failed", "source_missing"),
    ]


def test_a_ledger_that_cannot_be_written_fails_no_run(tmp_path, spark):
    project = open_orders(tmp_path, spark, "append")
    own = tmp_path / "lake/_oncelake"
    own.mkdir(parents=True)
    (own / "ledger").write_text("in the way")
    listener = RecordingListener()
    assert project.run("orders", date=DAYS[0], listener=listener).outcome == "done"
    assert len(listener.of(Warned)) == 2


def test_a_lost_ledger_loses_no_truth(tmp_path, spark):
    project = open_orders(tmp_path, spark, "append")
    project.run("orders", date=DAYS[0])
    shutil.rmtree(tmp_path / "lake/_oncelake")
    land(tmp_path, DAYS[0], [])
    assert project.run("orders", date=DAYS[0]).works[0].outcome == "already_done"
    assert len(ids(tmp_path)) == 3
    assert project.status("orders")[0].done == 1


def test_a_run_with_nothing_to_do_writes_nothing(tmp_path, spark):
    project = open_orders(tmp_path, spark, "append")
    project.run("orders", date=DAYS[0])
    before = sorted(p for p in (tmp_path / "lake").rglob("*"))
    project.run("orders", date=DAYS[0])
    assert sorted(p for p in (tmp_path / "lake").rglob("*")) == before
