"""Restating a range of files reads them again, and their rows replace those that were ingested of them."""

import os

import pytest

import oncelake as once
from oncelake.testing.recording_listener import RecordingListener
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


@pytest.mark.parametrize("pattern", [once.merge("bronze", keys="k"), once.aggregate("bronze", keys="k")])
def test_an_older_file_is_not_restated_over_a_newer_one(arriving, landing, pattern, stopped_at):
    p = arriving(events(pattern, path_date="%Y-%m-%d"))
    for number in (1, 2):
        path = drop(landing, f"2024-03-0{number}.json", {"k": "a", "v": number})
        os.utime(path, (1_709_500_000 - number,) * 2)  # not in the order in which they are ingested
        p.run("events")
    with pytest.raises(once.OncelakeError, match=r"02\.json came after landing/2024-03-01\.json") as caught:
        p.restate("events", date="2024-03-01")
    assert caught.value.code == "batches_not_redone"
    assert "restate all files, in their order: oncelake restate events;" in caught.value.next
    with pytest.raises(once.OncelakeError, match="came after"):
        p.restatement("events", date="2024-03-01")
    assert outcomes(p.restate("events", date="2024-03-02")) == [("batch 2", "committed")]
    with stopped_at("frozen"):
        p.restate("events")
    assert outcomes(p.run("events")) == [("batch 3", "committed"), ("batch 4", "committed")]
    assert table(p, "bronze", "k", "v") == [("a", 2)]
    (landing / "2024-03-02.json").unlink()
    with pytest.raises(once.OncelakeError, match="came after") as caught:
        p.restate("events")
    assert "restate all" not in caught.value.next


def test_new_files_wait_for_the_next_run(arriving, landing):
    p = arriving(events(provenance="file", path_date="%Y-%m-%d", changed="replace"))
    for number in (1, 2):
        drop(landing, f"2024-03-0{number}.json", {"id": number})
    p.run("events")
    drop(landing, "2024-03-01.json", {"id": 10})
    drop(landing, "2024-03-02.json", {"id": 20})
    drop(landing, "2024-05-05.json", {"id": 55})
    assert outcomes(p.restate("events", date="2024-03-01")) == [("batch 1", "committed")]
    assert table(p) == [(2,), (10,)]
    p.run("events")
    assert table(p) == [(10,), (20,), (55,)]


def test_a_file_is_no_copy_of_itself(arriving, landing):
    p = arriving(events(provenance="file"))
    drop(landing, "a.json", {"id": 1})
    p.run()
    listener = RecordingListener()
    p.restate("events", listener=listener)
    assert [event for event in listener.events if "content of another" in str(event)] == []
    assert [entry.duplicate_of for entry in p.arrivals("events").files()] == [None, None]


def test_a_retried_row_wins_and_that_is_said(arriving, landing):
    merged = once.merge("bronze", keys="k")
    p = arriving(events(merged))
    (landing / "a.json").write_bytes(b'{"k": "a", "v": "\xe9"}\n{"k": "b", "v": "x"}\n')
    p.run()
    drop(landing, "b.json", {"k": "a", "v": "new"})
    p.run()
    p, listener = arriving(events(merged, options={"encoding": "latin-1"})), RecordingListener()
    p.retry_quarantine("events", listener=listener)
    assert any("retried rows are written last: in bronze they replace" in str(event) for event in listener.events)
    assert table(p, "bronze", "k", "v") == [("a", "é"), ("b", "x")]


def test_rows_of_a_retry_that_failed_again_are_no_files_that_are_gone(arriving, landing):
    p = arriving(events(provenance="file", schema="id long"))
    drop(landing, "a.json", {"id": 1}, '{"id": 2,}')
    p.run()
    p.retry_quarantine("events")
    listener = RecordingListener()
    p.restate("events", start="2020-01-01", end="2100-01-01", listener=listener)
    assert table(p, "bronze", "id") == [(1,)]
    assert not any("no longer there" in str(event) for event in listener.events)
