"""Large files are read in parts, and account for every row like small ones."""

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oncelake as once
from oncelake.sources.arrivals import reading
from support.arrivals import drop, events, table


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.parts.PART_BYTES", 1000)


@pytest.fixture
def passed(monkeypatch):
    """The files whose rows were passed on to a write, in the order of the reads."""
    monkeypatch.setattr("oncelake.sources.arrivals.fitting_files.COUNTED_BYTES", 0)
    read, found = reading.read_fitting, []

    def read_and_note(session, parts, *others):
        found.append(sorted({path.rpartition("/")[2] for path in parts["path"].to_pylist()}))
        return read(session, parts, *others)

    monkeypatch.setattr(reading, "read_fitting", read_and_note)
    return found


def counts(report):
    return [
        (work.error or work.outcome, work.rows.read, work.rows.written, work.rows.quarantined) for work in report.works
    ]


def write_parquet(path, first, count=1000, **columns):
    pq.write_table(pa.table({"id": range(first, first + count), **columns}), path, row_group_size=300)


def test_parquet_that_fits_the_schema_is_passed_on_to_the_write(arriving, landing, spark):
    p = arriving(events(kind="parquet", provenance=True, where="id % 2 = 0"))
    write_parquet(landing / "a.parquet", 0)
    assert "read in parts by their row groups" in p.plan().works[0].why
    assert counts(p.run()) == [("committed", 1000, 500, 0)]
    write_parquet(landing / "b.parquet", 1000)
    pq.write_table(pa.table({"id": [5000]}), landing / "small.parquet")
    assert counts(p.run()) == [("committed", 1001, 501, 0)]
    rows = table(p, "bronze", "id", "_once_file", "_once_row", "_once_batch")
    assert rows[0] == (0, "landing/a.parquet", 1, 0)
    assert rows[999] == (1998, "landing/b.parquet", 999, 1)
    assert rows[1000] == (5000, "landing/small.parquet", 1, 1)


def test_parquet_that_does_not_fit_is_read_in_parts_too(arriving, landing):
    p = arriving(events(kind="parquet"))
    write_parquet(landing / "a.parquet", 0)
    p.run()
    write_parquet(landing / "b.parquet", 1000, note=["new"] * 1000)
    assert counts(p.run()) == [("committed", 1000, 1000, 0)]
    assert table(p, "bronze", "id", "note")[1000] == (1000, "new")


def test_a_damaged_page_of_a_large_file_quarantines_the_file_only(arriving, landing):
    p = arriving(events(kind="parquet", schema="id long"))
    write_parquet(landing / "a.parquet", 0)
    p.run()
    write_parquet(landing / "b.parquet", 1000)
    write_parquet(landing / "c.parquet", 2000)
    content = bytearray((landing / "c.parquet").read_bytes())
    content[40:400] = bytes(360)
    (landing / "c.parquet").write_bytes(bytes(content))
    assert counts(p.run()) == [("committed", 1001, 1000, 1)]
    assert table(p)[-1] == (1999,)
    (bad,) = p.arrivals("events").quarantine()
    assert bad.file == "landing/c.parquet"


def test_a_large_file_that_changes_while_it_is_written_comes_with_a_later_batch(arriving, landing):
    def load(rows):
        # After the files were compared with the manifest, before the write reads them.
        if not (landing / "touched").exists():
            (landing / "touched").mkdir()
            os.utime(landing / "b.parquet", ns=(1, 1))
        return rows

    read = once.files("landing", format="parquet", schema="id long")
    p = arriving(once.pipeline(reads=read, writes=once.append("bronze"), name="events")(load))
    write_parquet(landing / "a.parquet", 0)
    write_parquet(landing / "b.parquet", 1000)
    assert counts(p.run()) == [("committed", 1000, 1000, 0)]
    assert counts(p.run()) == [("committed", 1000, 1000, 0)]
    assert table(p) == [(number,) for number in range(2000)]


def test_a_file_that_changes_while_it_is_read_comes_with_a_later_batch(arriving, landing, monkeypatch):
    counted = reading.count_records

    def count_and_touch(records):
        found = counted(records)
        os.utime(landing / "b.json", ns=(1, 1))
        return found

    p = arriving(events())
    drop(landing, "a.json", {"id": 1})
    drop(landing, "b.json", {"id": 2})
    monkeypatch.setattr(reading, "count_records", count_and_touch)
    assert counts(p.run()) == [("committed", 1, 1, 0)]
    assert counts(p.run()) == [("committed", 1, 1, 0)]
    assert table(p) == [(1,), (2,)]


def test_skipping_copies_keeps_the_rows_of_large_files(arriving, landing):
    p = arriving(events(kind="parquet", schema="id long", duplicates="skip"))
    write_parquet(landing / "large.parquet", 0)
    for name in ("b", "c"):
        pq.write_table(pa.table({"id": [5000]}), landing / f"{name}.parquet")
    assert counts(p.run()) == [("committed", 1002, 1001, 0)]
    assert len(table(p)) == 1001


def test_csv_is_split_at_lines_and_read_whole_where_quotes_are_in_doubt(arriving, landing):
    choose = random.Random(1)
    p = arriving(events(kind="csv"))
    notes = ['"two\nlines, and ""more"""', "plain", '"quoted"']
    drop(landing, "a.csv", "id,note", *(f"{number},{choose.choice(notes)}" for number in range(400)))
    drop(landing, "b.csv", "note,id", *(f"plain,{number}" for number in range(400, 800)), "too,many,fields")
    drop(landing, "c.csv", "id,note", *(f"{number},x" for number in range(800, 1200)), '1200,"never closed')
    assert "read in parts by their lines" in p.plan().works[0].why
    assert counts(p.run()) == [("committed", 1202, 1200, 2)]
    assert table(p) == [(number,) for number in range(1200)]
    found = {row.file: row for row in p.arrivals("events").quarantine()}
    row = found["landing/b.csv"]
    assert (landing / "b.csv").read_bytes()[row.offset :].startswith(b"too,many")
    assert found["landing/c.csv"].raw == b'1200,"never closed'


@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_lines_that_fit_the_schema_are_counted_and_passed_on_to_the_write(arriving, landing, passed, kind):
    columns = "value string" if kind == "text" else "id long, note string"
    where = "value LIKE '%7,%'" if kind == "text" else "id % 10 = 7"
    p = arriving(events(kind=kind, schema=columns, where=where, provenance=("file", "batch")))
    for name, first in (("a", 0), ("b", 400)):
        rows = [{"id": number, "note": f"n {number}"} for number in range(first, first + 400)]
        lines = rows if kind == "json" else ["id,note", *(f"{row['id']},{row['note']}" for row in rows)]
        drop(landing, f"{name}.{kind}", *lines)
    headers = 2 if kind == "text" else 0
    assert counts(p.run()) == [("committed", 800 + headers, 80, 0)]
    assert passed == [[f"a.{kind}", f"b.{kind}"]]
    found = table(p, "bronze", "value" if kind == "text" else "id", "_once_file")
    assert len(found) == 80
    assert {file for _, file in found} == {f"landing/a.{kind}", f"landing/b.{kind}"}


def test_a_large_file_with_a_bad_row_is_kept_and_the_others_are_passed_on(arriving, landing, passed):
    p = arriving(events(kind="csv", schema="id long, note string"))
    drop(landing, "a.csv", "id,note", *(f"{number},x" for number in range(400)))
    drop(landing, "b.csv", "id,note", *(f"{number},x" for number in range(400, 800)), "1,2,3")
    drop(landing, "c.csv", "id,note,more", *(f"{number},x,new" for number in range(800, 1200)))
    drop(landing, "d.csv", "id,note", *(f"{number},x" for number in range(1200, 1599)), "what,x")
    drop(landing, "e.csv", "note,id", *(f"x,{number}" for number in range(1600, 2000)))
    assert counts(p.run()) == [("committed", 2001, 2000, 1)]
    assert passed == [["a.csv", "e.csv"]]
    found = table(p, "bronze", "coalesce(id, 1599)", "coalesce(more, '')", "_rescued IS NULL")
    assert [(number, more) for number, more, _ in found] == [(n, "new" if 800 <= n < 1200 else "") for n in range(2000)]
    assert [number for number, _, fits in found if not fits] == [1599]


def test_lines_that_change_between_their_count_and_the_write_come_with_a_later_batch(arriving, landing, passed):
    def load(rows):
        if not (landing / "touched").exists():
            (landing / "touched").mkdir()
            drop(landing, "b.csv", "id", *range(2000, 2500))
        return rows

    read = once.files("landing", format="csv", schema="id long")
    p = arriving(once.pipeline(reads=read, writes=once.append("bronze"), name="events")(load))
    drop(landing, "a.csv", "id", *range(500))
    drop(landing, "b.csv", "id", *range(500, 1000))
    assert counts(p.run()) == [("committed", 500, 500, 0)]
    assert counts(p.run()) == [("committed", 500, 500, 0)]
    assert table(p) == [(number,) for number in (*range(500), *range(2000, 2500))]
    assert passed == [["a.csv", "b.csv"], ["b.csv"]]


def test_a_merge_of_large_files_reads_them_as_often_as_it_needs(arriving, landing, passed):
    read = once.files("landing", format="csv", schema="id long, note string")
    p = arriving(once.pipeline(reads=read, writes=once.merge("bronze", keys="id"), name="events")(lambda rows: rows))
    drop(landing, "a.csv", "id,note", *(f"{number % 500},{number}" for number in range(1000)))
    assert counts(p.run())[0][:2] == ("committed", 1000)
    assert table(p, "bronze", "id", "note") == [(number, str(number + 500)) for number in range(500)]
    assert passed == [["a.csv"]]
