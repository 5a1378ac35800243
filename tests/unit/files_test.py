"""The files of a log as columns: the same files as by replaying action for action, and the same answers as file by file."""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import oncelake as once
from oncelake.delta import add_columns
from oncelake.delta import log as log_module
from oncelake.delta.log import read_log, refresh_log
from oncelake.delta.statistics import parse_statistics, value_type
from oncelake.delta.tables import Lake
from oncelake.delta.time_profile import time_profile
from oncelake.delta.time_ranges import TimeColumn, estimate, files_within, null_times
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Grid, Interval
from oncelake.model.slices import Whole

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
COLUMNS = {"id": "long", "at": "timestamp", "day": "date", "local": "timestamp_ntz", "name": "string", "x": "double"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]
text, number = pa.string(), pa.int64()
VECTOR = pa.struct([("storageType", text), ("pathOrInlineDv", text), ("offset", pa.int32()), ("cardinality", number)])
ADD = pa.struct(
    [
        ("path", text),
        ("partitionValues", pa.map_(text, text)),
        ("size", number),
        ("modificationTime", number),
        ("stats", text),
        ("deletionVector", VECTOR),
    ]
)


def at(hours, minutes=0):
    return START + timedelta(hours=hours, minutes=minutes)


def stamp(moment):
    return f"{moment:%Y-%m-%dT%H:%M:%S}.000Z"


def stats(rows=None, nulls=None, least=None, most=None):
    found = {} if rows is None else {"numRecords": rows}
    edges = {"nullCount": nulls, "minValues": least, "maxValues": most}
    return json.dumps({**found, **{name: value for name, value in edges.items() if value is not None}})


def add(path, size=1, vector=None, **more):
    found = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 5, **more}
    if vector:
        found["deletionVector"] = {"storageType": "u", "pathOrInlineDv": vector, "offset": 1, "cardinality": 2}
    return {"add": found}


def remove(path, vector=None):
    return {"remove": add(path, vector=vector)["add"]}


def canonical(action):
    return json.dumps(action, sort_keys=True)


class Table:
    """A table's log, written by hand."""

    def __init__(self, path, partitioned_by=()):
        self.path, self.log, self.version = path, path / "_delta_log", -1
        self.log.mkdir(parents=True)
        self.metadata = {
            "id": "made",
            "schemaString": json.dumps({"type": "struct", "fields": FIELDS}),
            "partitionColumns": list(partitioned_by),
            "configuration": {},
        }
        self.commit({"metaData": self.metadata}, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})

    def commit(self, *actions):
        self.version += 1
        lines = "".join(json.dumps(action) + "\n" for action in actions or [{"commitInfo": {}}])
        (self.log / f"{self.version:020}.json").write_text(lines)

    def checkpoint(self, *adds):
        """Write a checkpoint in which other actions lie between the files."""
        rows = [
            each for one in adds for each in (None, {**one, "partitionValues": list(one["partitionValues"].items())})
        ]
        metadata = {**self.metadata, "configuration": []}
        types = dict.fromkeys(("id", "schemaString"), text) | {"partitionColumns": pa.list_(text)}
        columns = {
            "add": pa.array([*rows, None], ADD),
            "metaData": pa.array(
                [*([None] * len(rows)), metadata],
                pa.struct({**types, "configuration": pa.map_(text, text)}),
            ),
        }
        parquet.write_table(pa.table(columns), self.log / f"{self.version:020}.checkpoint.parquet")

    def read(self):
        return read_log("t", str(self.path))


@pytest.fixture
def table(tmp_path):
    return Table(tmp_path / "t")


# The files


KEYS = st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "v", "w"]))
COMMITS = st.lists(st.lists(st.tuples(st.booleans(), KEYS, st.integers(1, 9)), max_size=4), min_size=1, max_size=6)


@settings(deadline=None, max_examples=80)
@given(COMMITS, st.integers(-1, 5), st.integers(0, 5))
def test_files_are_those_of_a_replay_with_a_checkpoint_and_a_read_in_between_or_not(commits, checkpointed, read_at):
    with tempfile.TemporaryDirectory() as folder:
        table, expected, log = Table(Path(folder) / "t"), {}, None
        for number_, commit in enumerate(commits):
            actions = []
            for adds, (path, vector), size in commit:
                actions.append(add(path, size, vector, stats=stats(size)) if adds else remove(path, vector))
            # A commit removes before it adds.
            for action in sorted(actions, key=lambda each: "add" in each):
                if "add" in action:
                    expected[action["add"]["path"], json.dumps(action["add"].get("deletionVector"))] = action["add"]
                else:
                    expected.pop((action["remove"]["path"], json.dumps(action["remove"].get("deletionVector"))), None)
            table.commit(*actions)
            if number_ == checkpointed:
                table.checkpoint(*expected.values())
            if number_ == read_at:
                log = table.read()
                assert len(log.files) == len(expected)
        for found in [table.read(), *([refresh_log(log)] if log else [])]:
            located = [
                {key: each[key] for key in ("path", "deletionVector") if key in each} for each in expected.values()
            ]
            assert sorted(map(canonical, found.files.locations())) == sorted(map(canonical, located))
            assert found.files.size == sum(each["size"] for each in expected.values())
            deleted = sum((each.get("deletionVector") or {}).get("cardinality", 0) for each in expected.values())
            assert found.rows() == found.files.size - deleted
            assert sorted(found.files.paths()) == sorted(path for path, _ in expected)


def test_a_refreshed_log_does_not_read_its_checkpoint_again(table, monkeypatch):
    table.commit(add("a", stats=stats(3)))
    table.checkpoint(add("a", stats=stats(3))["add"])
    log = table.read()
    assert log.rows() == 3
    read = []
    real = add_columns.adds_of_parquet
    monkeypatch.setattr(add_columns, "adds_of_parquet", lambda *each: read.append(each) or real(*each))
    for name in ("b", "c"):
        table.commit(add(name, stats=stats(2)))
        log = refresh_log(log)
    assert (log.rows(), read) == (7, [])
    assert log.files is log.files
    assert refresh_log(log).files is log.files  # nothing new


def test_threads_may_ask_one_log_for_its_files(table):
    table.commit(*(add(str(n), n) for n in range(50)))
    log = table.read()
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            log.loaded.clear()
            assert {len(files) for files in threads.map(lambda _: log.files, range(16))} == {50}


def test_checkpoints_are_read_in_batches(table, monkeypatch):
    adds = [add(f"f{n}", n, stats=stats(n))["add"] for n in range(100)]
    table.checkpoint(*adds)
    table.commit(remove("f7"), remove("f99"))
    monkeypatch.setattr(add_columns, "_BATCH_ROWS", 13)
    monkeypatch.setattr(add_columns, "_STATISTICS_ROWS", 7)
    log = table.read()
    assert log.rows() == log.files.size == sum(range(100)) - 7 - 99
    assert log.files.statistics().rows.to_pylist() == [n for n in range(99) if n != 7]


def test_partition_values_by_file(tmp_path):
    table = Table(tmp_path / "t", ["day", "name"])
    first = add("a", 10, partitionValues={"day": "2024-01-01", "name": None})["add"]
    table.checkpoint(first)
    table.commit(add("b", 20, partitionValues={"name": "x", "day": "2024-01-02"}))
    files = table.read().files
    assert files.partitions() == [("2024-01-01", None), ("2024-01-02", "x")]
    assert files.size_in({"day": {"2024-01-02"}}) == 20
    assert files.size_in({"day": {"2024-01-01", "2024-01-02"}, "name": {"x"}}) == 20
    assert files.size_in({}) == 30


def test_partitions_that_are_replaced_by_others_are_read_anew(tmp_path):
    table = Table(tmp_path / "t", ["day"])
    table.commit(add("a", partitionValues={"day": "2024-01-01"}))
    log = table.read()
    assert log.files.partitions() == [("2024-01-01",)]
    table.commit(
        remove("a"),
        {"metaData": {**table.metadata, "partitionColumns": ["name"]}},
        add("b", partitionValues={"name": "x"}),
    )
    assert refresh_log(log).files.partitions() == [("x",)]


def test_small_files_and_deleted_rows_by_partition(tmp_path):
    table = Table(tmp_path / "t", ["name"])
    table.commit(
        add("a", 5, partitionValues={"name": "x"}, stats=stats(10)),
        add("b", 50, vector="v", partitionValues={"name": "x"}, stats=stats(7)),
        add("c", 5, partitionValues={"name": None}),
    )
    found = {each["name"]: each for each in table.read().files.by_partition(["name"], 50)}
    assert found["x"] == {"name": "x", "small": 1, "deleted": 2, "rows": 17}
    assert found[None] == {"name": None, "small": 1, "deleted": 0, "rows": 0}
    whole = table.read().files.by_partition([], 50)
    assert whole == [{"small": 2, "deleted": 2, "rows": 17}]


# Statistics


def parsed(texts, name, kind):
    found = parse_statistics(pa.array(texts, pa.string()), name, value_type(kind))
    return [list(each) for each in zip(*(part.to_pylist() for part in vars(found).values()), strict=True)]


GOOD = stats(3, {"id": 1}, {"id": 5}, {"id": 9})


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (None, [None, None, None, None]),
        ("", [None, None, None, None]),
        ("{", [None, None, None, None]),
        ("[1]", [None, None, None, None]),
        ("null", [None, None, None, None]),
        ('{"numRecords": 2,\n "nullCount": {"id": 0}}', [2, 0, None, None]),
        (stats(2, {"id": {"inner": 1}}, {"id": {"inner": 1}}), [2, None, None, None]),
        (stats(2, {"id": 0}, {"id": "five"}, {"id": 7}), [2, 0, None, 7]),
        (stats(2, {"id": 0}, {"id": 5.5}, {"id": 2**70}), [2, 0, None, None]),
        (stats(2, {"other": 0}, {"other": 1}), [2, None, None, None]),
        ('{"numRecords": "2", "minValues": 7, "unknown": {"id": []}}', [None, None, None, None]),
        ('{"numRecords": 2, "tightBounds": true, "minValues": {"id": null}}', [2, None, None, None]),
    ],
)
def test_statistics_that_say_nothing_spoil_no_others(odd, expected):
    assert parsed([GOOD, odd, GOOD], "id", "long") == [[3, 1, 5, 9], expected, [3, 1, 5, 9]]


def test_texts_that_no_utf_8_can_spell_are_unknown():
    odd = '{"numRecords": 1, "minValues": {"name": "a"}, "maxValues": {"name": "a\\ud83d"}}'
    good = stats(1, {"name": 0}, {"name": "ä"}, {"name": "ö\U0010ffff"})
    assert parsed([odd, good], "name", "string") == [[1, None, "a", None], [1, 0, "ä", "ö\U0010ffff"]]


def test_values_of_other_types_are_not_read_but_their_nulls_are():
    odd = stats(2, {"x": 1}, {"x": "NaN"}, {"x": 1.5})
    assert parsed([odd], "x", "double") == [[2, 1, None, None]]
    assert parsed([], "x", "double") == []


def test_the_greatest_value_of_a_column(table):
    assert table.read().files.greatest("id", "long") == (True, None)
    table.commit(add("a", stats=stats(2, {"id": 0, "at": 0}, {}, {"id": 7, "at": "2024-01-01T02:00:00.000+02:00"})))
    table.commit(add("b", stats=stats(2, {"id": 2, "at": 0}, {}, {"at": "2024-01-01T01:00:00.000Z"})))
    files = table.read().files
    assert files.greatest("id", "long") == (True, 7)
    assert files.greatest("at", "timestamp") == (True, at(1))
    assert files.greatest("x", "double") == (False, None)
    table.commit(add("c"))
    assert table.read().files.greatest("id", "long") == (False, None)


def test_null_counts_with_deleted_rows_and_files_that_do_not_say(tmp_path):
    table = Table(tmp_path / "t", ["day"])
    table.commit(add("a", vector="v", partitionValues={"day": "2024-01-01"}, stats=stats(9, {"at": 5})))
    table.commit(add("b", partitionValues={"day": None}, stats=stats(4, {"at": 1})))
    log = table.read()
    assert (null_times(log, "at"), null_times(log, "AT"), null_times(log, "day")) == ((4, 6), (4, 6), (4, 4))
    table.commit(add("c", partitionValues={"day": None}))
    assert (null_times(table.read(), "at"), null_times(table.read(), "day")) == ((4, None), (4, None))


# How much lies in an interval


SPANS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 3_000), st.integers(0, 10**9), st.none() | st.integers(0, 10**6)),
    max_size=8,
)


@settings(deadline=None, max_examples=100)
@given(SPANS, st.integers(-5, 210), st.integers(1, 100))
def test_an_interval_weighs_what_its_files_weigh_if_their_rows_are_spread_evenly(spans, first, hours):
    interval = Interval(at(first), at(first + hours))
    with tempfile.TemporaryDirectory() as folder:
        table, size, rows = Table(Path(folder) / "t"), 0.0, 0.0
        for name, (start, minutes, bytes_, count) in enumerate(spans):
            least, most = at(start), at(start, minutes)
            table.commit(add(str(name), bytes_, stats=stats(count, None, {"at": stamp(least)}, {"at": stamp(most)})))
            end = most + timedelta(minutes=1)  # whole minutes
            share = max(min(end, interval.end) - max(least, interval.start), timedelta()) / (end - least)
            size, rows = size + bytes_ * share, rows + (count or 0) * share
        log = table.read()
        found = estimate(log, TimeColumn.of(log, "at", "UTC"), interval)
        assert (found.bytes, found.rows) == (pytest.approx(size, abs=1), pytest.approx(rows, abs=1))


@pytest.mark.parametrize(
    ("column", "zone", "least", "most", "expected"),
    [
        ("at", "UTC", "2024-01-01T00:00:00.000Z", "2024-01-01T01:59:59.999Z", (50, 50)),
        ("at", "UTC", "2024-01-01T02:00:00.000+02:00", "2024-01-01T01:59:59.999Z", (50, 50)),
        ("at", "UTC", "2024-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.123456Z", (100, 0)),
        ("at", "UTC", "2024-01-01 00:00:00", "2024-01-01 00:59:59", (0, 0)),  # no zone: unknown
        ("at", "UTC", "+12024-01-01T00:00:00.000Z", "+12024-01-01T00:00:00.000Z", (0, 0)),
        ("local", "UTC", "2024-01-01T00:00:00.000", "2024-01-01T01:59:59.999", (50, 50)),
        ("local", "Europe/Berlin", "2024-01-01T01:00:00.000", "2024-01-01T02:59:59.999", (50, 50)),
        ("day", "UTC", "2024-01-01", "2024-01-01", (4, 4)),
        ("day", "Asia/Kolkata", "2024-01-01", "2024-01-01", (4, 4)),
        ("name", "UTC", "2024-01-01T00", "2024-01-01T23 and more", (4, 4)),
        ("name", "UTC", "January", "June", (0, 0)),
        ("at", "UTC", "2024-01-01T01:00:00.000Z", "2024-01-01T00:00:00.000Z", (0, 0)),  # not in order
    ],
)
def test_the_time_of_a_file_by_the_type_of_its_column(table, column, zone, least, most, expected):
    table.commit(
        add("a", 100, stats=stats(100, None, {column: least}, {column: most})), add("b", 7), add("c", 9, stats="{")
    )
    log = table.read()
    found = TimeColumn.of(log, column, zone)
    hours = [estimate(log, found, Interval(at(hour), at(hour + 1))) for hour in (0, 1)]
    assert tuple(hour.bytes for hour in hours) == expected
    within = [set(files_within(log, found, Interval(at(hour), at(hour + 1))).paths()) for hour in (0, 1, 99)]
    # Files that do not say their time may have any rows.
    known = {"a"} if any(expected) else set()
    assert within[2] == {"a", "b", "c"} - known
    assert [known <= each for each in within[:2]] == [bool(part) or not known for part in expected]
    assert hours[0].rows == hours[0].bytes


def test_the_time_of_a_file_by_its_partition(tmp_path):
    table = Table(tmp_path / "t", ["day"])
    table.commit(add("a", 240, partitionValues={"day": "2024-01-01"}, stats=stats(48)))
    table.commit(*(add(str(n), 5, partitionValues={"day": value}) for n, value in enumerate([None, "", "nonsense"])))
    log = table.read()
    found = estimate(log, TimeColumn.of(log, "day", "UTC"), Interval(at(0), at(1)))
    assert (found.bytes, found.rows) == (10, 2)
    # Rows without a time are of no interval; those whose partition cannot be understood may be of any.
    assert files_within(log, TimeColumn.of(log, "day", "UTC"), Interval(at(0), at(1))).paths() == ["a", "2"]
    assert files_within(log, TimeColumn.of(log, "day", "UTC"), Interval(at(24), at(25))).paths() == ["2"]


def test_one_file_with_another_spelling_does_not_spoil_the_others(table):
    table.commit(add("a", 100, stats=stats(1, None, {"at": stamp(at(0))}, {"at": stamp(at(0, 59))})))
    table.commit(add("b", 100, stats=stats(1, None, {"at": "2024-01-01 00:00:00"}, {"at": "2024-01-01 00:00:00"})))
    log = table.read()
    assert estimate(log, TimeColumn.of(log, "at", "UTC"), Interval(at(0), at(1))).bytes == 100


def test_times_far_apart_leave_nothing_between_them(table):
    for name, moment in enumerate(["0001-01-01T00:00:00.000Z", stamp(at(0)), "9999-12-31T00:00:00.000Z"]):
        table.commit(add(str(name), 10**12, stats=stats(1, None, {"at": moment}, {"at": moment})))
    log = table.read()
    column = TimeColumn.of(log, "at", "UTC")
    assert estimate(log, column, Interval(at(0), at(1))).bytes == 10**12
    assert estimate(log, column, Interval(at(1), at(10**6))).bytes == 0
    assert time_profile(log.files, column) is time_profile(log.files, column)


def test_a_table_without_files_weighs_nothing(table):
    log = table.read()
    assert estimate(log, TimeColumn.of(log, "at", "UTC"), Interval(at(0), at(1))).bytes == 0


def test_status_does_not_read_the_statistics_of_a_very_large_log_and_says_so(table, monkeypatch):
    table.checkpoint(add("a", stats=stats(3, {"at": 2}))["add"])
    source = once.table("t", time="at")
    reading = Reading("p", Whole(), Grid("day"), Lake(str(table.path.parent), "."), "here")
    assert source.stats(reading).notes(quick=True) == source.stats(reading).notes()
    assert source.stats(reading).notes()[0].startswith("t: 2 rows without at")
    monkeypatch.setattr(log_module, "LARGE", 100)
    assert "counted by oncelake plan only" in source.stats(reading).notes(quick=True)[0]
    assert source.stats(reading).notes()[0].startswith("t: 2 rows without at")
