"""Files with the content of another file: reported, and skipped where that is declared, within a batch and across batches."""

import shutil

from support.arrivals import drop, events, table


def states(project):
    return {entry.path: (entry.state, entry.duplicate_of) for entry in project.arrivals("events").files()}


def test_a_copy_is_ingested_and_reported(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "b.json", {"id": 1})
    p.run()
    assert table(p) == [(1,), (1,)]
    assert states(p) == {"landing/a.json": ("done", None), "landing/b.json": ("done", "landing/a.json")}
    assert p.history("bronze")[0].document()["account"]["duplicates"] == 1


def test_copies_are_skipped_within_a_batch_and_across_batches_and_accounted_for(arriving, landing):
    p = arriving(events(duplicates="skip", max_files=2))
    drop(landing, "a.json", {"id": 1}, "{bad")
    shutil.copy(landing / "a.json", landing / "b.json")
    shutil.copy(landing / "a.json", landing / "c.json")
    drop(landing, "d.json", {"id": 2})
    assert [work.rows.read for work in p.run().works] == [4, 3]
    assert table(p) == [(1,), (2,)]
    copy = ("duplicate", "landing/a.json")
    assert states(p) == {
        "landing/a.json": ("done", None),
        "landing/b.json": copy,
        "landing/c.json": copy,
        "landing/d.json": ("done", None),
    }
    for entry in p.arrivals("events").files():
        assert entry.rows_read == entry.rows_written + entry.rows_quarantined + entry.rows_filtered
    assert len(p.arrivals("events").quarantine()) == 1
    assert p.run().works == ()


def test_a_copy_of_a_file_that_could_not_be_read_is_no_copy(arriving, landing):
    p = arriving(events(duplicates="skip", kind="parquet"))
    (landing / "a.parquet").write_bytes(b"rubbish")
    p.run()
    (landing / "b.parquet").write_bytes(b"rubbish")
    p.run()
    assert {state for state, _ in states(p).values()} == {"quarantined"}


def test_a_restored_table_gets_its_copies_again(arriving, landing):
    p = arriving(events(duplicates="skip"))
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "b.json", {"id": 2})
    p.run()
    p.restore("bronze", p.history("bronze")[1].version)
    p.run()
    assert table(p) == [(1,), (2,)]
