"""CSV files are matched by the names in their header, file by file."""

import gzip
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import oncelake as once
from oncelake.errors import WrongHeader
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Grid, Interval

DAY = Interval(datetime(2024, 3, 14, tzinfo=UTC), datetime(2024, 3, 15, tzinfo=UTC))


@dataclass(frozen=True)
class Folder:
    root: str

    def file(self, path):
        return f"{self.root}/{path}"


def read(spark, root, **declared):
    source = once.files("{start:%Y-%m-%d}", format="csv", **declared)
    reading = Reading("p", DAY, Grid("day"), Folder(str(root)), "pipelines.py:1")
    return source.read(spark, reading, source.pin(reading))(DAY)


def land(root, **files):
    folder = root / "2024-03-14"
    folder.mkdir()
    for name, text in files.items():
        suffix = ".csv.gz" if isinstance(text, bytes) else ".csv"
        (folder / f"{name}{suffix}").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_columns_are_matched_by_name_in_every_file(tmp_path, spark):
    land(
        tmp_path,
        a="id,amount\n1,100\n",
        b='amount,"ID"\n200,2\n',
        c=gzip.compress(b"\n\xef\xbb\xbfamount,id\r\n300,3\r\n".replace(b"\n\xef", b"\xef", 1)),
        d="",
    )
    frame = read(spark, tmp_path, schema="id long, amount long")
    assert frame.columns == ["id", "amount"]
    assert sorted(map(tuple, frame.collect())) == [(1, 100), (2, 200), (3, 300)]
    # With some columns only, as Spark prunes them.
    assert sorted(row[0] for row in frame.select("amount").collect()) == [100, 200, 300]
    assert frame.count() == 3
    # Without a schema the first header names the columns.
    assert sorted(map(tuple, read(spark, tmp_path).collect())) == [("1", "100"), ("2", "200"), ("3", "300")]


@pytest.mark.parametrize("header", ["id", "id,total", "id,amount,extra", "id,id,amount", "1,100"])
def test_another_header_is_refused_with_its_file(tmp_path, spark, header):
    land(tmp_path, a="id,amount\n1,100\n", b=f"{header}\n1,2,3\n")
    for schema in ("id long, amount long", None):
        with pytest.raises(WrongHeader) as raised:
            read(spark, tmp_path, schema=schema)
        assert raised.value.facts["path"].endswith("/2024-03-14/b.csv")
        assert raised.value.facts["expected"] == "id, amount"


def test_the_options_of_the_file_are_used_for_its_header(tmp_path, spark):
    land(tmp_path, a="# by hand\namount\t'id'\n5\t1\n", b="amount\t id \n6\t2\n")
    options = {"sep": "\\t", "quote": "'", "comment": "#", "ignoreLeadingWhiteSpace": True}
    options["ignoreTrailingWhiteSpace"] = True
    frame = read(spark, tmp_path, schema="id long, amount long", options=options)
    assert sorted(map(tuple, frame.collect())) == [(1, 5), (2, 6)]


def test_files_without_a_header_and_positions_by_choice_stay_as_they_were(tmp_path, spark):
    land(tmp_path, a="1,100\n")
    frame = read(spark, tmp_path, schema="id long, amount long", options={"header": False})
    assert [tuple(row) for row in frame.collect()] == [(1, 100)]
    chosen = {"enforceSchema": True}
    (tmp_path / "2024-03-14/a.csv").write_text("x,y\n1,100\n")
    assert [tuple(row) for row in read(spark, tmp_path, schema="id long, amount long", options=chosen).collect()] == [
        (1, 100)
    ]
