"""Files that arrive: each is ingested once, whatever changes between two runs, and every row is accounted for."""

import gzip
import json
import os
import shutil

import pytest

import oncelake as once
from oncelake.planning.batches import arrival_reading
from support.arrivals import drop, events, outcomes, table


def test_each_file_is_ingested_once(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1}, {"id": 2})
    assert outcomes(p.run()) == [("batch 0", "committed")]
    assert outcomes(p.run()) == []
    drop(landing, "deep/er/b.json", {"id": 3})
    report = p.run()
    assert outcomes(report) == [("batch 1", "committed")]
    assert (report.works[0].rows.read, report.works[0].rows.written, report.works[0].rows.quarantined) == (1, 1, 0)
    assert table(p) == [(1,), (2,), (3,)]


def test_a_failed_batch_holds_back_the_later_ones(arriving, landing, tmp_path):
    broken = tmp_path / "broken"
    broken.touch()

    @once.pipeline(reads=once.files("landing", format="json"), writes=once.append("bronze"))
    def load(rows):
        if broken.exists():
            raise ValueError("not yet")
        return rows

    p = arriving(load)
    drop(landing, "a.json", {"id": 1})
    assert outcomes(p.run()) == [("batch 0", "failed")]
    drop(landing, "b.json", {"id": 2})
    assert outcomes(p.run()) == [("batch 0", "failed"), ("batch 1", "blocked")]
    broken.unlink()
    assert outcomes(p.run()) == [("batch 0", "committed"), ("batch 1", "committed")]
    assert table(p) == [(1,), (2,)]


def test_batches_are_bounded(arriving, landing):
    p = arriving(events(max_files=2))
    for number in range(5):
        drop(landing, f"{number}.json", {"id": number})
    assert [work.slice for work in p.run().works] == ["batch 0", "batch 1", "batch 2"]
    assert len(table(p)) == 5


def test_what_cannot_be_read_is_in_quarantine_and_counts_with_its_batch(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1}, '{"id": 2', "[1]")
    (landing / "cut.json.gz").write_bytes(gzip.compress(b'{"id": 9}\n' * 1000)[:-20])
    work = p.run().works[0]
    assert (work.rows.read, work.rows.written, work.rows.quarantined) == (4, 1, 3)
    rows = p.arrivals("events").quarantine()
    assert [(row.file, row.line) for row in rows] == [
        ("landing/a.json", 2),
        ("landing/a.json", 3),
        ("landing/cut.json.gz", None),
    ]
    assert rows[0].raw == b'{"id": 2'
    states = {entry.path: entry.state for entry in p.arrivals("events").files()}
    assert states == {"landing/a.json": "done", "landing/cut.json.gz": "quarantined"}


def test_a_retry_ingests_what_was_fixed_once(arriving, landing):
    p = arriving(events(schema="id long", evolution="rescue"))
    drop(landing, "a.json", {"id": 1}, '{"id": 2,}')
    p.run()
    (row,) = p.arrivals("events").quarantine()
    p.retry_quarantine("events")  # it is still broken, and comes back under its new batch
    (again,) = p.arrivals("events").quarantine()
    assert (again.batch, again.raw) == (1, row.raw)
    assert p.arrivals("events").quarantine(None)[0].state == "retried"
    assert {(file.path, file.batch) for file in p.arrivals("events").files()} == {
        ("landing/a.json", 0),
        ("landing/a.json", 1),
    }
    assert table(p) == [(1,)]


def test_a_file_that_was_retried_is_not_in_quarantine_any_more(arriving, landing):
    p = arriving()
    drop(landing, "a.json.gz", "no gzip")
    p.run()
    (landing / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}'))
    p.retry_quarantine("events")
    assert [(file.batch, file.state) for file in p.arrivals("events").files()] == [(0, "retried"), (1, "done")]


def test_retried_rows_are_of_the_file_and_the_folder_they_came_from(arriving, landing):
    p = arriving(events(kind="csv", provenance="file"))
    drop(landing, "region=EU/a.csv", "id,v", "1,x")
    with (landing / "region=EU/a.csv").open("ab") as file:
        file.write("2,ö\n".encode("latin-1"))
    p.run()
    p = arriving(events(kind="csv", provenance="file", options={"encoding": "latin-1"}))
    p.retry_quarantine("events")
    file = "landing/region=EU/a.csv"
    assert table(p, "bronze", "id", "v", "region", "_once_file") == [(1, "x", "EU", file), (2, "ö", "EU", file)]


def test_new_columns_are_added_and_other_values_rescued(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "b.json", {"id": 2, "amount": 1.5}, {"id": "three"})
    p.run()
    rows = p.session().read.format("delta").load(p.lake.table("bronze").path)
    found = {row["id"]: (row["amount"], row["_rescued"]) for row in rows.collect()}
    assert found[1] == (None, None)
    assert found[2] == (1.5, None)
    assert json.loads(found[None][1])["id"]["value"] == "three"


def test_a_frozen_schema_refuses_and_nothing_is_read(arriving, landing):
    p = arriving(events(schema="id long", evolution="freeze"))
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "b.json", {"id": 2, "amount": 1.5})
    (work,) = p.run().works
    assert (work.outcome, work.code) == ("failed", "schema_frozen")
    assert "amount" in work.error
    assert table(p) == [(1,)]


def test_a_changed_file_is_reported_and_not_read(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "a.json", {"id": 1}, {"id": 2})
    plan = p.plan()
    assert outcomes(p.run()) == []
    assert any("have changed since" in note for note in plan.notes)
    assert [entry.state for entry in p.arrivals("events").files()] == ["changed"]
    assert table(p) == [(1,)]


def test_a_changed_file_is_ingested_again_where_that_is_declared(arriving, landing):
    p = arriving(events(changed="append"))
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "a.json", {"id": 2}, {"id": 3})
    p.run()
    p.run()
    assert table(p) == [(1,), (2,), (3,)]


def test_a_frozen_file_that_changes_before_it_is_read_comes_with_a_later_batch(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    path = drop(landing, "b.json", {"id": 2})
    source, reading = p.pipelines["events"].arrival, arrival_reading(p.pipelines["events"], p.lake)
    source.freeze(reading, None)
    path.write_text('{"id": 2}\n{"id": 3}\n')
    (landing / "gone.json").write_text("")
    assert outcomes(p.run()) == [("batch 0", "committed"), ("batch 1", "committed")]
    p.run()
    assert table(p) == [(1,), (2,), (3,)]


def test_a_file_that_is_gone_is_said_and_the_batch_goes_on(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    path = drop(landing, "b.json", {"id": 2})
    source, reading = p.pipelines["events"].arrival, arrival_reading(p.pipelines["events"], p.lake)
    source.freeze(reading, None)
    path.unlink()
    (work,) = p.run().works
    assert (work.outcome, work.rows.read) == ("committed", 1)
    assert [(e.path, e.state) for e in p.arrivals("events").files()] == [
        ("landing/a.json", "done"),
        ("landing/b.json", "gone"),
    ]


def test_two_targets_get_the_same_batch(arriving, landing):
    p = arriving(events(once.append("bronze"), once.merge("latest", keys="id", latest_by="at")))
    drop(landing, "a.json", {"id": 1, "at": 1}, {"id": 1, "at": 2})
    p.run()
    drop(landing, "b.json", {"id": 1, "at": 3}, {"id": 2, "at": 1})
    p.run()
    assert table(p, "bronze", "id", "at") == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert table(p, "latest", "id", "at") == [(1, 3), (2, 1)]


def test_a_renamed_pipeline_is_refused_and_goes_on_under_its_former_name(arriving, landing):
    drop(landing, "a.json", {"id": 1})
    arriving().run()
    with pytest.raises(once.OncelakeError, match="formerly"):
        arriving(events(name="renamed")).run()
    p = arriving(
        once.pipeline(
            reads=once.files("landing", format="json"), writes=once.append("bronze"), name="renamed", formerly="events"
        )(lambda rows: rows)
    )
    drop(landing, "b.json", {"id": 2})
    assert outcomes(p.run()) == [("batch 1", "committed")]
    assert table(p) == [(1,), (2,)]


def test_lost_manifests_stop_the_pipeline_and_are_rebuilt_from_the_commits(arriving, landing, tmp_path):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    shutil.rmtree(tmp_path / "lake/_oncelake/arrivals")
    drop(landing, "b.json", {"id": 2})
    (work,) = p.run().works
    assert work.code == "manifests_missing"
    assert p.arrivals("events").rebuild() == [0]
    p.run()
    assert table(p) == [(1,), (2,)]


def test_a_dropped_table_is_ingested_again_from_all_files(arriving, landing, tmp_path):
    p = arriving()
    for name in "ab":
        drop(landing, f"{name}.json", {"id": name})
        p.run()
    shutil.rmtree(tmp_path / "lake/bronze")
    assert outcomes(arriving().run()) == [("batch 0", "committed"), ("batch 1", "committed")]
    assert table(p) == [("a",), ("b",)]


def test_a_restored_table_gets_the_undone_batches_again(arriving, landing):
    p = arriving()
    for name in "abc":
        drop(landing, f"{name}.json", {"id": name})
        p.run()
    p.restore("bronze", 1)
    assert table(p) == [("a",)]
    assert [work.slice for work in p.run().works] == ["batch 1", "batch 2"]
    assert table(p) == [("a",), ("b",), ("c",)]


def test_folders_become_columns(arriving, landing):
    p = arriving(events(provenance=["file", "batch", "row"]))
    drop(landing, "region=EU/day=2024-03-15/a.json", {"id": 1})
    drop(landing, "region=US/day=2024-03-16/a.json", {"id": 2}, {"id": 3})
    p.run()
    columns = ("id", "region", "day", "_once_file", "_once_row")
    assert table(p, "bronze", *columns) == [
        (1, "EU", "2024-03-15", "landing/region=EU/day=2024-03-15/a.json", 1),
        (2, "US", "2024-03-16", "landing/region=US/day=2024-03-16/a.json", 1),
        (3, "US", "2024-03-16", "landing/region=US/day=2024-03-16/a.json", 2),
    ]


def test_a_folder_that_does_not_fit_its_column_is_rescued(arriving, landing):
    p = arriving(events(schema="id long, month int", evolution="rescue"))
    drop(landing, "month=03/a.json", {"id": 1}, {"id": 2, "extra": 5})
    drop(landing, "month=may/a.json", {"id": 3}, {"id": 4, "extra": 5})
    assert outcomes(p.run()) == [("batch 0", "committed")]
    rows = table(p, "bronze", "id", "month", "_rescued")
    assert [row[:2] for row in rows] == [(1, 3), (2, 3), (3, None), (4, None)]
    assert json.loads(rows[2][2])["month"]["value"] == "may"
    assert json.loads(rows[3][2]).keys() == {"extra", "month"}


def test_filtered_rows_are_counted(arriving, landing):
    p = arriving(events(where="id > 1"))
    drop(landing, "a.json", {"id": 1}, {"id": 2}, {"v": 3})
    (work,) = p.run().works
    assert (work.rows.read, work.rows.written) == (3, 1)
    (entry,) = p.arrivals("events").files()
    assert (entry.rows_read, entry.rows_written, entry.rows_filtered) == (3, 1, 2)


@pytest.mark.parametrize("kind", ["csv", "parquet", "orc", "avro", "text", "binary"])
def test_every_format(arriving, landing, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import orc

    p = arriving(events(kind=kind))
    rows = pa.table({"id": [1, 2, 3]})
    if kind == "parquet":
        pq.write_table(rows, landing / "a.parquet")
    elif kind == "orc":
        orc.write_table(rows, landing / "a.orc")
    elif kind == "avro":
        fastavro = pytest.importorskip("fastavro")
        schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
        with open(landing / "a.avro", "wb") as file:
            fastavro.writer(file, schema, rows.to_pylist())
    else:
        (landing / f"a.{kind}").write_text("id\n1\n2\n3\n" if kind == "csv" else "1\n2\n3\n")
    p.run()
    expected = {"text": [("1",), ("2",), ("3",)], "binary": [(bytearray(b"1\n2\n3\n"),)]}
    column = {"text": "value", "binary": "content"}.get(kind, "id")
    assert table(p, "bronze", column) == expected.get(kind, [(1,), (2,), (3,)])


def test_a_large_file_of_lines_is_read_in_parts(arriving, landing, monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.parts.PART_BYTES", 1000)
    p = arriving()
    drop(landing, "a.json", *({"id": number, "note": "x" * (number % 90)} for number in range(300)), "{bad")
    work = p.run().works[0]
    assert (work.rows.read, work.rows.written, work.rows.quarantined) == (301, 300, 1)
    assert table(p) == [(number,) for number in range(300)]
    (row,) = p.arrivals("events").quarantine()
    assert (landing / "a.json").read_bytes()[row.offset :].startswith(b"{bad")


def test_nothing_new_needs_no_session(landing, tmp_path):
    drop(landing, "a.json", {"id": 1})
    p = once.Project.of(events(), lake=tmp_path / "lake", root=tmp_path)
    assert len(p.plan().to_do) == 1
    assert p._spark is None


def test_status_shows_the_backlog(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1}, "{")
    p.run()
    drop(landing, "b.json", {"id": 2})
    (status,) = p.status()
    assert (status.done, status.missing, status.backlog.files, status.backlog.last_quarantined) == (1, 1, 1, 1)


def test_odd_names(arriving, landing):
    p = arriving()
    names = ["a b.json", "50%.json", "x=y.json", "new\nline.json", "\u00e9.json", "e\u0301.json", f"{'n' * 250}.json"]
    for number, name in enumerate(names):
        drop(landing, name, {"id": number})
    os.symlink(landing, landing / "loop")
    p.run()
    assert table(p) == [(number,) for number in range(len(names))]


def test_ingested_files_are_archived_after_their_commit(arriving, landing, tmp_path):
    p = arriving(events(clean_up="archive", archive="archive"))
    drop(landing, "a.json", {"id": 1})
    drop(landing, "bad.json.gz", "no gzip")
    p.run()
    assert sorted(path.name for path in landing.iterdir()) == ["bad.json.gz"]
    assert (tmp_path / "archive/landing/a.json").exists()
    drop(landing, "b.json", {"id": 2})
    p.run()
    assert table(p) == [(1,), (2,)]


def test_a_file_that_changed_since_is_not_cleaned_up(arriving, landing, monkeypatch):
    p = arriving(events(clean_up="delete"))
    path = drop(landing, "a.json", {"id": 1})
    drop(landing, "b.json", {"id": 2})
    with monkeypatch.context() as patched:
        patched.setattr("oncelake.sources.arrivals.clean_up.clean_up", lambda _: 0)
        p.run()
    path.write_text('{"id": 3}\n{"id": 4}\n')
    p.run()
    assert [found.name for found in landing.iterdir()] == ["a.json"]


def test_an_archive_among_the_arrivals_is_refused():
    with pytest.raises(once.OncelakeError, match="would arrive again"):
        events(clean_up="archive", archive="landing/old")
    events(clean_up="archive", archive="landing/_old")


@pytest.mark.parametrize("archive", ["lake/bronze", "lake/bronze/old", "lake/other/old"])
def test_an_archive_in_a_table_is_refused(archive, arriving, landing, tmp_path):
    (tmp_path / "lake/other/_delta_log").mkdir(parents=True)
    p = arriving(events(clean_up="archive", archive=archive))
    drop(landing, "a.json", {"id": 1})
    assert "lies in a table" in " ".join(p.plan().notes)
    (failed,) = p.run().works
    assert failed.code == "bad_declaration"
    assert (landing / "a.json").exists()


@pytest.mark.parametrize("where", ["nosuch > 1", "id >"])
def test_a_condition_that_spark_cannot_read_names_the_declaration(where, arriving, landing):
    p = arriving(events(where=where))
    drop(landing, "a.json", {"id": 1})
    (failed,) = p.run().works
    assert failed.code == "bad_declaration"
    assert f"where={where!r} is not a condition" in failed.error


def test_batches_are_not_rebuilt(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    with pytest.raises(once.OncelakeError, match="not redone one by one") as caught:
        p.rebuild("bronze")
    assert "oncelake restate" not in caught.value.next  # which would be refused, too
    with pytest.raises(once.OncelakeError, match="oncelake restate events, or"):
        arriving(events(provenance="file")).rebuild("bronze")


def test_a_range_chooses_files_by_their_modification_time(arriving, landing):
    p = arriving()
    old, new = (drop(landing, f"{name}.json", {"id": name}) for name in ("old", "new"))
    os.utime(old, (1709251200, 1709251200))  # 2024-03-01
    assert [work.slice for work in p.run("events", start="2024-03-01", end="2024-03-02").works] == ["batch 0"]
    assert table(p) == [("old",)]
    p.run()
    assert (table(p), new.exists()) == ([("new",), ("old",)], True)


def test_the_rows_of_a_changed_file_are_replaced_in_one_commit(arriving, landing):
    p = arriving(events(changed="replace", provenance="file"))
    drop(landing, "a.json", {"id": 1}, {"id": 2})
    drop(landing, "it's.json", {"id": 9})
    p.run()
    drop(landing, "a.json", {"id": 3})
    drop(landing, "b.json", {"id": 4})
    drop(landing, "it's.json", {"id": 8, "new": 1})
    assert outcomes(p.run()) == [("batch 1", "committed"), ("batch 2", "committed")]
    assert table(p) == [(3,), (4,), (8,)]
    assert outcomes(p.run()) == []


def test_replacing_needs_the_file_of_each_row_and_append():
    with pytest.raises(once.OncelakeError, match="provenance"):
        events(changed="replace")
    with pytest.raises(once.OncelakeError, match="append only"):
        events(once.merge("t", keys="id"), changed="replace", provenance="file")


def test_column_names_that_delta_refuses_are_refused_before_the_table_is_there(arriving, landing, tmp_path):
    p = arriving(events(kind="csv"))
    drop(landing, "a.csv", "id,last update", "1,x")
    (work,) = p.run().works
    assert work.code == "wrong_columns"
    assert "'last update'" in work.error
    assert not (tmp_path / "lake/bronze").exists()
    renamed = once.pipeline(reads=once.files("landing", format="csv"), writes=once.append("bronze"), name="events")(
        lambda rows: rows.withColumnRenamed("last update", "last_update")
    )
    p = arriving(renamed)
    p.run()
    drop(landing, "b.csv", "id,last update,more", "2,y,z")
    p.run()
    assert table(p, "bronze", "id", "last_update") == [(1, "x"), (2, "y")]
