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
