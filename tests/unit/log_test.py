"""The log reader that needs no JVM, on logs written by hand."""

import dataclasses
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from oncelake.delta.log import find_log, read_log
from oncelake.errors import CorruptLog, NotDelta, TableMissing
from oncelake.model.coverage import coalesce
from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker, app_id, marker, restate_app_id
from oncelake.model.slices import Whole

TABLE = "silver.orders"
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long"},{"name":"tags","type":{"type":"array"}}]}'
METADATA = {"id": "the-table", "schemaString": SCHEMA, "partitionColumns": ["day"], "configuration": {"a.b": "c"}}
PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}

text, number = pa.string(), pa.int64()
ACTIONS = {
    "txn": pa.struct([("appId", text), ("version", number), ("lastUpdated", number)]),
    "metaData": pa.struct(
        [
            ("id", text),
            ("schemaString", text),
            ("partitionColumns", pa.list_(text)),
            ("configuration", pa.map_(text, text)),
        ]
    ),
    "protocol": pa.struct(
        [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(text))]
    ),
    "add": pa.struct(
        [
            ("path", text),
            ("partitionValues", pa.map_(text, text)),
            ("size", number),
            ("stats", text),
            (
                "deletionVector",
                pa.struct([("storageType", text), ("pathOrInlineDv", text), ("cardinality", number)]),
            ),
        ]
    ),
    "sidecar": pa.struct([("path", text), ("sizeInBytes", number)]),
}


# Actions, as Delta writes them


def txn(app, version=1, at=None):
    return {"txn": {"appId": app, "version": version, **({} if at is None else {"lastUpdated": at})}}


def info(at=None, metrics=None, facts=None):
    found = {"operation": "WRITE"}
    found |= {} if at is None else {"timestamp": at}
    found |= {} if metrics is None else {"operationMetrics": metrics}
    found |= {} if facts is None else {"userMetadata": facts if isinstance(facts, str) else json.dumps(facts)}
    return {"commitInfo": found}


def add(path, records=None, vector=None, **more):
    found = {"path": path, "partitionValues": {"day": "2024-01-01"}, "size": 1, **more}
    found |= {} if records is None else {"stats": json.dumps({"numRecords": records})}
    if vector:
        found["deletionVector"] = {"storageType": "u", "pathOrInlineDv": vector[0], "cardinality": vector[1]}
    return {"add": found}


def remove(path, records=None, vector=None):
    found = add(path, records, vector)["add"]
    return {"remove": found}


# Files of a log


class Written:
    """A table's folder, and the ways to write into its log."""

    def __init__(self, path):
        self.path = path
        self.log = path / "_delta_log"
        self.log.mkdir(parents=True)

    def commit(self, version, *actions):
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        self.raw(version, "\n".join(lines) + "\n")

    def raw(self, version, content):
        (self.log / f"{version:020}.json").write_text(content)

    def first(self, *actions):
        self.commit(0, info(0), {"protocol": PROTOCOL}, {"metaData": METADATA}, *actions)

    def checkpoint(self, version, *actions, name="checkpoint.parquet"):
        self.parquet(f"{version:020}.{name}", [{"protocol": PROTOCOL}, {"metaData": METADATA}, *actions])

    def parquet(self, name, actions):
        columns = {key: [action.get(key) for action in actions] for key in ACTIONS}
        for column in columns.values():
            for row in column:
                for key in ("configuration", "partitionValues"):
                    if row and isinstance(row.get(key), dict):
                        row[key] = list(row[key].items())
        path = self.log / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(
            pa.table({key: pa.array(column, ACTIONS[key]) for key, column in columns.items()}), str(path)
        )

    def read(self):
        return read_log(TABLE, str(self.path))


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path / "silver" / "orders")


class Counting:
    """A storage that counts what is read from it."""

    def __init__(self, inner):
        self.inner, self.reads = inner, 0

    def names(self, folder=""):
        return self.inner.names(folder)

    def open(self, name):
        return self.inner.open(name)

    def read_all(self, names):
        self.reads += len(names)
        return self.inner.read_all(names)


def counting(log):
    storage = Counting(log.storage)
    return dataclasses.replace(log, storage=storage), storage


def corrupt(written):
    with pytest.raises(CorruptLog) as caught:
        written.read()
    assert caught.value.code == "corrupt_log"
    assert caught.value.facts["table"] == TABLE
    return Path(caught.value.facts["path"]).name


# Markers and metadata


def versions(log):
    return {app: recorded.version for app, recorded in log.markers.items()}


def test_a_log_of_json_alone(written):
    written.first()
    written.commit(1, info(1), txn("a", 1), txn("b", 5))
    written.commit(2, info(2), txn("a", 2))
    log = written.read()
    assert log.version == 2
    assert versions(log) == {"a": 2, "b": 5}
    assert log.markers["a"].commit == 2
    assert (log.metadata, log.protocol, log.checkpoint) == (METADATA, PROTOCOL, None)
    assert log.schema == {"id": "long", "tags": "array"}
    assert log.partitioned_by == ("day",)


def test_a_log_may_be_named_by_a_file_uri(written):
    written.first(txn("a"))
    assert versions(read_log(TABLE, f"file://{written.path}")) == {"a": 1}


def test_spaces_in_json_change_nothing(written):
    written.raw(0, '{ "txn" : {"appId": "a", "version": 3}}\n\n  {"txn": {"appId": "b", "version": 1}}\n')
    assert versions(written.read()) == {"a": 3, "b": 1}


def test_the_newest_metadata_counts(written):
    written.first()
    written.commit(1, info(1), {"metaData": {**METADATA, "partitionColumns": []}})
    assert written.read().partitioned_by == ()


def test_other_files_in_the_log_are_left_alone(written):
    written.first(txn("a"))
    for name in ("_last_checkpoint", "00000000000000000000.crc", ".00000000000000000001.json.tmp", "1.json", "x.txt"):
        (written.log / name).write_text("nonsense")
    assert written.read().version == 0


def test_a_classic_checkpoint_and_what_came_after(written):
    written.first(txn("a"))
    written.commit(1, info(1), txn("b"))
    written.checkpoint(1, txn("a", 1, 10), txn("b", 1, 20))
    written.commit(2, info(2), txn("b", 2, 30))
    log = written.read()
    assert log.version == 2
    assert versions(log) == {"a": 1, "b": 2}
    assert (log.metadata["partitionColumns"], log.metadata["configuration"]) == (["day"], {"a.b": "c"})
    assert log.metadata["id"] == "the-table"
    assert log.protocol == PROTOCOL
    assert log.partitioned_by == ("day",)
    assert set(log.schema) == {"id", "tags"}


def test_a_checkpoint_alone_is_a_table(written):
    written.checkpoint(7, txn("a"))
    assert (written.read().version, versions(written.read())) == (7, {"a": 1})


def test_what_is_before_the_checkpoint_is_not_read(written):
    written.first()
    written.raw(1, "broken")
    written.checkpoint(1, txn("a"))
    assert versions(written.read()) == {"a": 1}


def test_the_newest_checkpoint_counts_whatever_the_hint_says(written):
    written.first()
    written.commit(1, info(1), txn("a", 1))
    written.commit(2, info(2), txn("a", 2))
    written.checkpoint(1, txn("a", 1))
    written.checkpoint(2, txn("a", 2))
    for hint in ('{"version":1,"size":3}', '{"version":99,"size":3}', "nonsense"):
        (written.log / "_last_checkpoint").write_text(hint)
        assert written.read().checkpoint.version == 2


def test_a_checkpoint_in_several_parts(written):
    written.commit(5, info(5), txn("b", 7))
    written.checkpoint(4, txn("a"), name="checkpoint.0000000001.0000000002.parquet")
    written.parquet(f"{4:020}.checkpoint.0000000002.0000000002.parquet", [txn("b"), add("x", 3)])
    log = written.read()
    assert versions(log) == {"a": 1, "b": 7}
    assert (log.version, log.partitioned_by, log.rows()) == (5, ("day",), 3)


def test_a_checkpoint_that_lacks_a_part_does_not_count(written):
    written.first(txn("a"))
    written.commit(1, info(1), txn("b"))
    written.checkpoint(1, txn("wrong"), name="checkpoint.0000000001.0000000003.parquet")
    written.checkpoint(1, txn("wrong"), name="checkpoint.0000000003.0000000003.parquet")
    log = written.read()
    assert (log.checkpoint, versions(log)) == (None, {"a": 1, "b": 1})


def test_an_older_checkpoint_serves_where_the_newer_lacks_a_part(written):
    written.checkpoint(3, txn("a"))
    written.commit(4, info(4), txn("b"))
    written.checkpoint(4, txn("wrong"), name="checkpoint.0000000001.0000000002.parquet")
    assert (written.read().checkpoint.version, versions(written.read())) == (3, {"a": 1, "b": 1})


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_checkpoint_of_version_2_with_sidecars(written, ending):
    actions = [{"protocol": PROTOCOL}, {"metaData": METADATA}, txn("a", 4, 10)]
    actions += [{"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 1}} for name in ("one", "two")]
    name = f"{3:020}.checkpoint.{UUID}.{ending}"
    if ending == "json":
        lines = [{"checkpointMetadata": {"version": 3}}, *actions]
        (written.log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        written.parquet(name, actions)
    written.parquet("_sidecars/one.parquet", [add("x", 3), add("y", 4)])
    written.parquet("_sidecars/two.parquet", [add("z", 5)])
    written.commit(4, info(4), txn("b"), remove("y"), add("w", 10))
    log = written.read()
    assert (log.version, versions(log)) == (4, {"a": 4, "b": 1})
    assert log.partitioned_by == ("day",)
    assert set(log.files.paths()) == {"x", "z", "w"}
    assert log.rows() == 18


def test_a_log_that_was_cleaned_up_behind_its_checkpoint(written):
    written.checkpoint(10, txn("gone", 1, 5_000), txn("here", 1, 10_000))
    written.commit(10, info(10_000), txn("here", 1, 10_000))
    written.commit(11, info(11_000), txn("new", 1, 11_000))
    log = written.read()
    assert (log.version, log.commits) == (11, (10, 11))
    assert log.done(Marker("gone", 1))
    assert log.commit("gone") is None
    assert (log.commit("here").version, log.commit("new").version) == (10, 11)
    assert [entry.version for entry in log.history()] == [11, 10]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(0, 7),
)
def test_a_checkpoint_anywhere_changes_nothing(commits, at):
    """Each commit has a marker and one file, and removes one of the files there are."""
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = Written(Path(folder) / "plain"), Written(Path(folder) / "checked")
        markers, there = {}, {}
        for version, (app, number_, which) in enumerate(commits):
            markers[app] = max(number_, markers.get(app, 0))
            gone = list(there)[which : which + 1]
            for path in gone:
                del there[path]
            there[f"f{version}"] = number_
            actions = [info(version), txn(app, markers[app]), *map(remove, gone), add(f"f{version}", number_)]
            actions += [{"protocol": PROTOCOL}, {"metaData": METADATA}] if version == 0 else []
            for one in (plain, checked):
                one.commit(version, *actions)
            if version == at:
                checked.checkpoint(
                    version, *(txn(a, v) for a, v in markers.items()), *(add(p, n) for p, n in there.items())
                )
        for log in (plain.read(), checked.read()):
            assert (log.version, versions(log), log.rows()) == (len(commits) - 1, markers, sum(there.values()))


# What is not a log


def test_a_folder_that_is_absent_is_a_missing_table(tmp_path):
    path = str(tmp_path / "nothing")
    assert find_log(TABLE, path) is None
    with pytest.raises(TableMissing) as caught:
        read_log(TABLE, path)
    assert caught.value.code == "table_missing"
    assert caught.value.facts == {"table": TABLE, "path": path}


def test_an_empty_folder_or_log_is_a_missing_table(written):
    assert find_log(TABLE, str(written.path)) is None
    written.log.rmdir()
    assert find_log(TABLE, str(written.path)) is None


@pytest.mark.parametrize("name", ["_SUCCESS", ".part.crc"])
def test_hidden_files_make_no_other_table(written, name):
    (written.path / name).write_text("")
    assert find_log(TABLE, str(written.path)) is None


def test_a_folder_with_other_files_is_not_delta(written):
    for name in ("part-1.parquet", "part-0.parquet", "_SUCCESS"):
        (written.path / name).write_text("")
    with pytest.raises(NotDelta) as caught:
        find_log(TABLE, str(written.path))
    assert caught.value.code == "not_delta"
    assert (caught.value.facts["path"], caught.value.facts["example"]) == (str(written.path), "part-0.parquet")


@pytest.mark.parametrize(("there", "lost"), [((0, 1, 3), 2), ((1, 2), 0), ((0, 2, 4), 1)])
def test_a_commit_that_is_missing_is_named(written, there, lost):
    for version in there:
        written.commit(version, info(version))
    assert corrupt(written) == f"{lost:020}.json"


@pytest.mark.parametrize(("there", "lost"), [((6, 8), 7), ((7,), 6)])
def test_a_commit_that_is_missing_behind_a_checkpoint_is_named(written, there, lost):
    written.checkpoint(5)
    for version in there:
        written.commit(version, info(version))
    assert corrupt(written) == f"{lost:020}.json"


@pytest.mark.parametrize("line", ['{"txn":{"appId":"a"', '{"metaData": nonsense}', "nonsense", "[1]", "5", "\0\0\0"])
def test_a_commit_that_is_no_json_is_named(written, line):
    written.first()
    written.raw(1, f"{json.dumps(info(1))}\n{line}\n")
    assert corrupt(written) == f"{1:020}.json"


def test_a_commit_that_cannot_be_opened_is_named(written):
    written.first()
    (written.log / f"{1:020}.json").mkdir()
    assert corrupt(written) == f"{1:020}.json"


@pytest.mark.parametrize("name", ["checkpoint.parquet", f"checkpoint.{UUID}.parquet", f"checkpoint.{UUID}.json"])
def test_a_checkpoint_that_cannot_be_read_is_named(written, name):
    written.first()
    (written.log / f"{0:020}.{name}").write_text("nonsense")
    assert corrupt(written) == f"{0:020}.{name}"


def test_a_sidecar_that_is_missing_is_named(written):
    written.checkpoint(3, {"sidecar": {"path": "gone.parquet", "sizeInBytes": 1}}, name=f"checkpoint.{UUID}.parquet")
    with pytest.raises(CorruptLog) as caught:
        written.read().rows()
    assert caught.value.facts["path"].endswith("_sidecars/gone.parquet")


# Asking for markers


def test_done_is_this_version_or_a_later_one(written):
    written.first(txn("a", 3))
    log = written.read()
    assert [log.done(Marker("a", version)) for version in (1, 3, 4)] == [True, True, False]
    assert not log.done(Marker("b", 1))
    assert (log.recorded("a"), log.recorded("b"), log.commit("b")) == (3, None, None)


def test_done_intervals_are_those_of_one_pipeline_and_target(written):
    days = list(Grid("day").cells(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 5, tzinfo=UTC)))
    ours = [marker("orders", TABLE, day, 1).app_id for day in (days[0], days[1], days[3])]
    others = [
        app_id("orders", TABLE, Whole()),
        app_id("orders2", TABLE, days[2]),
        app_id("orders", f"{TABLE}2", days[2]),
        "a-foreign-one",
        f"once/orders/{TABLE}/nonsense",
    ]
    written.first(*(txn(app) for app in ours + others))
    found = written.read().coverage("orders", TABLE)
    assert [(covered.interval, covered.generation) for covered in found] == [(days[0], 1), (days[1], 1), (days[3], 1)]
    assert coalesce(found) == [Interval(days[0].start, days[1].end), days[3]]


def test_what_was_asked_for_again_is_told_apart_from_what_is_done(written):
    day = Grid("day").cell(datetime(2024, 1, 1, tzinfo=UTC))
    written.first(txn(app_id("orders", TABLE, day), 1), txn(restate_app_id("orders", TABLE, day), 2))
    log = written.read()
    assert [(covered.interval, covered.generation) for covered in log.coverage("orders", TABLE)] == [(day, 1)]
    assert [(covered.interval, covered.generation) for covered in log.coverage("orders", TABLE, requested=True)] == [
        (day, 2)
    ]


def test_the_time_a_pipeline_last_wrote(written):
    first, second = (app_id("orders", TABLE, slice_) for slice_ in (Whole(), Grid("day").cell(datetime.now(UTC))))
    written.first(txn(first, 1, 1_000), txn(second, 1, 3_000), txn(app_id("x", TABLE, Whole()), 1, 9_000))
    log = written.read()
    assert log.last_of("orders", TABLE) == datetime.fromtimestamp(3, UTC)
    assert log.last_of("nobody", TABLE) is None


def test_a_commit_of_the_tail_is_found_at_once(written):
    written.first()
    for version in range(1, 30):
        written.commit(version, info(version), txn(f"app-{version}"))
    log, storage = counting(written.read())
    assert log.commit("app-17").version == 17
    assert storage.reads == 0  # the replay kept it


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """2,000 commits, one a second, each with a marker, and a checkpoint of them all."""
    written = Written(tmp_path_factory.mktemp("long") / "table")
    written.first()
    for version in range(1, 2_000):
        written.commit(version, info(version * 1_000), txn(f"app-{version}", 1, version * 1_000 - 700))
    written.checkpoint(1_999, *(txn(f"app-{version}", 1, version * 1_000 - 700) for version in range(1, 2_000)))
    return written.read()


@pytest.mark.parametrize("version", [1, 2, 999, 1_000, 1_731, 1_998, 1_999])
def test_a_commit_among_many_is_found_by_its_time(long_log, version):
    log, storage = counting(long_log)
    assert log.commit(f"app-{version}").version == version
    assert storage.reads < 40


def test_a_commit_is_found_where_the_clocks_jumped(written):
    # Commits 100 to 199 were written by a machine whose clock was far ahead, and their markers by one far behind.
    written.first()
    for version in range(1, 300):
        ahead = 10**9 if 100 <= version < 200 else 0
        written.commit(version, info(version * 1_000 + ahead), txn(f"app-{version}", 1, version))
    written.checkpoint(299, *(txn(f"app-{version}", 1, version) for version in range(1, 300)))
    log = written.read()
    assert [log.commit(f"app-{version}").version for version in (1, 99, 100, 150, 250, 299)] == [
        1,
        99,
        100,
        150,
        250,
        299,
    ]


def test_a_commit_is_found_without_any_times(written):
    written.first()
    for version in range(1, 100):
        written.commit(version, txn(f"app-{version}"))
    written.checkpoint(99, *(txn(f"app-{version}") for version in range(1, 100)))
    assert written.read().commit("app-3").version == 3


def test_the_commit_of_a_redo_is_the_newest(written):
    written.first()
    written.commit(1, info(1_000), txn("a", 1, 1_000))
    written.commit(2, info(2_000), txn("a", 2, 2_000))
    written.checkpoint(2, txn("a", 2, 2_000))
    assert written.read().commit("a").version == 2


# Facts and row counts


def test_facts_are_read_from_the_commit(written):
    facts = {"run": "r", "pins": {"a": {"version": 3}}, "rows_read": 12}
    written.first()
    written.commit(1, info(1_000, {"numOutputRows": "9"}, {"oncelake": facts}), txn("a"))
    commit = written.read().commit("a")
    assert (commit.facts, commit.rows.read, commit.rows.written) == (facts, 12, 9)
    assert commit.timestamp == datetime.fromtimestamp(1, UTC)


@pytest.mark.parametrize("foreign", [None, "", "some words", "[1]", "5", '{"oncelake": 5}', '{"other": {}}', "{"])
def test_foreign_facts_are_none_of_ours(written, foreign):
    written.first()
    written.commit(1, info(1, facts=foreign), txn("a"))
    assert written.read().commit("a").facts == {}


def rows_of(written, *actions):
    written.first()
    written.commit(1, *actions, txn("a"))
    rows = written.read().commit("a").rows
    return rows.written, rows.deleted


def test_copied_rows_are_not_written_rows(written):
    metrics = {"numOutputRows": "10", "numCopiedRows": "4", "numDeletedRows": "3", "numFiles": "2"}
    assert rows_of(written, info(1, metrics), add("x", 10), remove("y", 7)) == (6, 3)


def test_row_counts_come_from_the_files_where_the_metrics_have_none(written):
    assert rows_of(written, info(1, {"numFiles": "2"}), add("x", 10), add("y", 5), remove("z", 7)) == (15, 7)
    assert rows_of(written, info(1)) == (0, 0)


def test_a_row_count_that_nobody_reports_is_none(written):
    assert rows_of(written, info(1), add("x", 10), add("y"), remove("z")) == (None, None)


@pytest.mark.parametrize(
    "actions",
    [
        (info(1, {"numDeletedRows": "2", "numCopiedRows": "8"}), add("x", 8), remove("y", 10)),
        (info(1, {"numDeletedRows": "2", "numCopiedRows": "0"}), add("y", 10, ("dv", 2)), remove("y", 10)),
        (info(1, {"numAddedFiles": "1"}), add("x", 8, dataChange=False), remove("y", 8)),
    ],
)
def test_rows_that_were_there_before_are_not_written_rows(written, actions):
    assert rows_of(written, *actions)[0] in (0, None)


def test_the_rows_of_a_table_are_those_of_its_files(written):
    written.first(add("x", 10), add("y", 20))
    written.commit(1, info(1), remove("x"), add("z", 5))
    assert written.read().rows() == 25


def test_rows_behind_a_deletion_vector_are_not_counted(written):
    written.first(add("x", 10), add("y", 20))
    written.commit(1, info(1), remove("x"), add("x", 10, ("dv1", 3)))
    written.commit(2, info(2), remove("x", vector=("dv1", 3)), add("x", 10, ("dv2", 4)))
    assert written.read().rows() == 26


def test_rows_behind_a_deletion_vector_of_a_checkpoint_are_not_counted(written):
    written.checkpoint(3, add("x", 10, ("dv1", 3)), add("y", 20))
    assert written.read().rows() == 27
    written.commit(4, info(4), remove("x", vector=("dv1", 3)))
    assert written.read().rows() == 20


def test_the_rows_of_a_table_with_a_file_nobody_counted_are_none(written):
    written.first(add("x", 10), add("y"))
    assert written.read().rows() is None


def test_an_empty_table_has_no_rows(written):
    written.first()
    assert written.read().rows() == 0
