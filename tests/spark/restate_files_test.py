"""Restating a range of files reads them again, and their rows replace those that were ingested of them."""

import os

import pytest

import oncelake as once
from support.arrivals import drop, events, outcomes, table


def test_a_range_by_the_date_in_the_path(arriving, landing):
    p = arriving(events(provenance="file", path_date="%Y/%m/%d", max_files=2))
    for day in ("01", "02", "03"):
        drop(landing, f"2024/03/{day}/a.json", {"id": int(day)})
    drop(landing, "undated.json", {"id": 9})
    p.run("events", start="2024-03-01", end="2024-03-03")
    assert table(p) == [(1,), (2,)]
    p.run()
    assert table(p) == [(1,), (2,), (3,), (9,)]
    drop(landing, "2024/03/02/a.json", {"id": 20}, {"id": 21})
    drop(landing, "2024/03/03/a.json", {"id": 30})
    (request,) = p.restatement("events", date="2024-03-02")
    assert (str(request.slice), request.files) == ("batch 2", 1)
    assert outcomes(p.restate("events", date="2024-03-02")) == [("batch 2", "committed")]
    assert table(p) == [(1,), (3,), (9,), (20,), (21,)]
    states = [(entry.path[8:], entry.state) for entry in p.arrivals("events").files() if "/02/" in entry.path]
    assert states == [("2024/03/02/a.json", "replaced"), ("2024/03/02/a.json", "done")]


def test_a_range_by_modification_time_and_rows_that_were_retried(arriving, landing):
    p = arriving(events(provenance="file", schema="id long", where="id > 0"))
    path = drop(landing, "a.json", {"id": 1}, '{"id": 2,}')
    drop(landing, "b.json", {"id": 5})
    for name in ("a.json", "b.json"):
        os.utime(landing / name, (1_709_500_000, 1_709_500_000))
    p.run()
    assert len(p.arrivals("events").quarantine()) == 1
    path.write_text('{"id": 1}\n{"id": 2}\n')
    os.utime(path, (1_709_500_001, 1_709_500_001))
    p.restate("events", start="2024-03-03", end="2024-03-04")
    assert table(p, "bronze", "id", "_once_file") == [
        (1, "landing/a.json"),
        (2, "landing/a.json"),
        (5, "landing/b.json"),
    ]
    assert p.arrivals("events").quarantine() == []
    assert [row.state for row in p.arrivals("events").quarantine(None)] == ["replaced"]
    with pytest.raises(once.OncelakeError, match="nothing"):
        p.restate("events", start="2020-01-01", end="2020-02-01")


def test_rows_without_their_file_are_not_restated(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    with pytest.raises(once.OncelakeError, match="which file") as caught:
        p.restate("events")
    assert caught.value.code == "batches_not_redone"
    p = arriving(events(provenance="file"))
    with pytest.raises(once.OncelakeError, match='before provenance="file"'):
        p.restate("events")


def test_merged_files_are_read_again(arriving, landing):
    p = arriving(events(once.merge("bronze", keys="id", latest_by="v")))
    drop(landing, "a.json", {"id": 1, "v": 1}, {"id": 2, "v": 1})
    p.run()
    drop(landing, "a.json", {"id": 1, "v": 2})
    p.restate("events")
    assert table(p, "bronze", "id", "v") == [(1, 2), (2, 1)]


def test_a_restatement_that_was_stopped_is_finished_once(arriving, landing):
    p = arriving(events(provenance="file"))
    drop(landing, "a.json", {"id": 1})
    p.run()
    p.arrivals("events").freeze_restatement()
    assert [request.pending for request in p.restatement("events")] == [True]
    assert outcomes(p.restate("events")) == [("batch 1", "committed")]
    assert table(p) == [(1,)]


def test_a_wrong_path_date_is_refused():
    for wrong in ("%d", "%Y-%d", "%Y-%q", "day"):
        with pytest.raises(once.OncelakeError, match="path_date"):
            events(path_date=wrong)
