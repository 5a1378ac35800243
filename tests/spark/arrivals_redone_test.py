"""Batches that are read again, after a restore or for another target: every row is there once, also retried and replaced ones."""

import gzip

import oncelake as once
from oncelake.testing.recording_listener import RecordingListener
from support.arrivals import drop, events, table

TRUNCATED = gzip.compress(b'{"id": 1}\n{"id": 2}\n')[:-6]


def entries(project, state="quarantined"):
    return [(row.batch, row.file, row.line, row.state) for row in project.arrivals("events").quarantine(state)]


def latin1(*patterns):
    return events(*patterns, options={"encoding": "latin1"}, provenance="row")


def test_a_restored_table_gets_a_changed_file_as_it_is_now(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    drop(landing, "b.json", {"id": 9})
    p.run()
    drop(landing, "a.json", {"id": 2}, {"id": 3})
    p.restore("bronze", 0)
    p.run()
    assert table(p) == [(2,), (3,), (9,)]
    found = {entry.path: (entry.state, entry.rows_written, entry.version) for entry in p.arrivals("events").files()}
    assert found == {"landing/a.json": ("done", 2, 3), "landing/b.json": ("done", 1, 3)}


def test_a_retried_row_is_there_once_after_a_restore_and_in_a_target_that_is_added(arriving, landing):
    p = arriving(events(provenance="row"))
    (landing / "a.json").write_bytes(b'{"id": 1}\n{"id": 2, "v": "\xe9"}\n{"id": 3\n')
    p.run()
    p = arriving(latin1())
    p.retry_quarantine("events")
    assert table(p, "bronze", "id", "_once_row") == [(1, 1), (2, 2)]
    assert entries(p) == [(1, "landing/a.json", 3, "quarantined")]
    p.restore("bronze", 0)
    p.run()
    assert table(p, "bronze", "id", "_once_row") == [(1, 1), (2, 2)]
    assert entries(p) == [(1, "landing/a.json", 3, "quarantined")]
    for entry in p.arrivals("events").files():
        assert entry.rows_read == entry.rows_written + entry.rows_quarantined + entry.rows_filtered
    p = arriving(latin1(once.append("bronze"), once.append("second")))
    p.run()
    assert table(p, "second", "id", "_once_row") == [(1, 1), (2, 2)]
    assert entries(p) == [(1, "landing/a.json", 3, "quarantined")]


def test_a_file_in_quarantine_is_closed_when_it_is_ingested_as_a_changed_one(arriving, landing):
    p = arriving(events(changed="append"))
    path = landing / "a.json.gz"
    path.write_bytes(TRUNCATED)
    p.run()
    path.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
    p.run()
    assert entries(p) == []
    assert entries(p, None) == [(0, "landing/a.json.gz", None, "replaced")]
    p.retry_quarantine("events")
    assert table(p) == [(1,), (2,)]


def test_a_retried_file_is_there_once_after_a_restore(arriving, landing):
    p = arriving(events(kind="csv", schema="id long"))
    drop(landing, "a.csv", "other", "1")  # names no column of the schema
    drop(landing, "b.csv", "id", "2")
    p.run()
    assert entries(p) == [(0, "landing/a.csv", None, "quarantined")]
    p = arriving(events(kind="csv", schema="id long, other long"))
    p.retry_quarantine("events")
    p.restore("bronze", 0)
    p.run()
    rows = p.session().read.format("delta").load(p.lake.table("bronze").path).collect()
    assert {(row["id"], row["other"]) for row in rows} == {(None, 1), (2, None)}
    assert len(rows) == 2


def test_a_file_with_rows_in_quarantine_is_not_cleaned_up(arriving, landing):
    p = arriving(events(clean_up="delete"))
    drop(landing, "a.json", {"id": 1}, "{bad")
    drop(landing, "b.json", {"id": 2})
    p.run()
    assert [path.name for path in landing.iterdir()] == ["a.json"]


def test_a_retry_of_a_file_that_is_gone_warns_and_leaves_the_entry_open(arriving, landing):
    p = arriving()
    path = landing / "a.json.gz"
    path.write_bytes(TRUNCATED)
    drop(landing, "b.json", {"id": 3})
    p.run()
    path.unlink()
    listener = RecordingListener()
    assert p.retry_quarantine("events", listener=listener).works == ()
    assert any("their files are gone: landing/a.json.gz" in str(event) for event in listener.events)
    assert entries(p) == [(0, "landing/a.json.gz", None, "quarantined")]
