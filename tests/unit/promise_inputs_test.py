"""What plans and `status` say of inputs, keys and the ledger; odd folders; which files a pinned version needs."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import oncelake as once
from oncelake.delta.log import find_log
from oncelake.delta.pinned_version import unreadable
from oncelake.delta.time_ranges import null_times
from oncelake.errors import BadDeclaration, BadSettings
from oncelake.listeners.ledger import DeltaLedger
from oncelake.model.events import RunEnded, RunPlanned, WorkEnded
from oncelake.model.markers import marker
from oncelake.model.names import lake_path
from oncelake.model.slices import Whole
from oncelake.model.work import FAILED, Outcome, Plan, Request, Work
from oncelake.planning.inputs import LakeState
from oncelake.planning.plan import make_plan
from oncelake.running.context import RunContext
from oncelake.running.execute import execute
from oncelake.storage.listing import find_files
from oncelake.testing import MemoryLog, RecordingListener
from support.hand_written_logs import metadata, write_commit

NOW = datetime(2024, 3, 16, tzinfo=UTC)


def day(number):
    return once.Interval(datetime(2024, 3, number, tzinfo=UTC), datetime(2024, 3, number + 1, tzinfo=UTC))


def daily(reads=None, writes=None, name="p", **declared):
    reads, writes = reads or once.table("raw", time="at"), writes or once.replace_interval("t", time="at")
    return once.pipeline(every="day", start="2024-03-14", reads=reads, writes=writes, name=name, **declared)(
        lambda raw: raw
    )


# Rows whose time is null


def add(number, statistics=None, **more):
    return {"add": {"path": f"{number}.parquet", "size": 1, "dataChange": True, "stats": statistics, **more}}


def with_nulls(count, records=10):
    return f'{{"numRecords": {records}, "nullCount": {{"at": {count}}}}}'


PARTITIONED = {"metaData": {**metadata()["metaData"], "partitionColumns": ["at"]}}
VECTOR = {"deletionVector": {"storageType": "i", "pathOrInlineDv": "", "cardinality": 2}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], (0, 0)),
        ([add(1, with_nulls(0))], (0, 0)),
        ([add(1, with_nulls(3)), add(2, with_nulls(1))], (4, 4)),
        ([add(1, with_nulls(3)), add(2)], (3, None)),
        ([add(1, '{"numRecords": 10}')], (0, None)),
        ([add(1, with_nulls(3), **VECTOR)], (1, 3)),
        ([add(1, with_nulls(1), **VECTOR)], (0, 1)),
        ([PARTITIONED, add(1, '{"numRecords": 10}', partitionValues={"at": None})], (10, 10)),
        ([PARTITIONED, add(1, partitionValues={"at": "2024-03-14"})], (0, 0)),
    ],
)
def test_rows_without_a_time_are_counted_from_statistics(tmp_path, files, expected):
    write_commit(tmp_path, 0)
    write_commit(tmp_path, 1, *files)
    assert null_times(find_log("raw", str(tmp_path)), "AT") == expected


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (add(1, with_nulls(3)), "raw: 3 rows without at"),
        (add(1), "raw: how many rows have no at is unknown"),
        (add(1, with_nulls(3), **VECTOR), "raw: at most 3 rows without at"),
        (add(1, with_nulls(0)), None),
    ],
    ids=["counted", "unknown", "deleted", "none"],
)
def test_plan_and_status_say_how_many_rows_belong_to_no_interval(tmp_path, capsys, file, said):
    write_commit(tmp_path / "raw", 0, file)
    project = once.Project.of(daily(), lake=tmp_path)
    notes, (status,) = project.plan(now=NOW).document()["notes"], project.status(now=NOW)
    for found in (notes, status.document()["warnings"]):
        assert [text.startswith(said) for text in found if "interval" in text] == ([True] if said else [])


def test_a_warning_about_an_input_is_printed_once_for_several_targets(tmp_path, capsys):
    from oncelake.cli.output import Output
    from oncelake.operations.environment import find_environment

    write_commit(tmp_path / "raw", 0, add(1, with_nulls(3)))
    both = [once.replace_interval("t", time="at"), once.append("log")]
    project = once.Project.of(daily(writes=both), lake=tmp_path)
    statuses = project.status(now=NOW)
    assert [len(status.warnings) for status in statuses] == [1, 1]
    Output(as_json=False).status(statuses, find_environment(project.settings))
    assert capsys.readouterr().out.count("without at") == 1


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("done, but stale: its code changed", "run hours --stale"),
        ("done, but stale: its code changed; append cannot be restated", "rebuild t"),
        ("done, but stale: its code changed; redone in the order of time only: oncelake rebuild t", "rebuild t"),
    ],
)
def test_the_step_after_stale_rows_is_one_that_redoes_them(tmp_path, capsys, reason, step):
    from oncelake.cli.output import Output
    from oncelake.operations.environment import find_environment

    write_commit(tmp_path / "raw", 0, add(1, with_nulls(0)))
    project = once.Project.of(daily(), lake=tmp_path)
    (status,) = project.status(now=NOW)
    stale = dataclasses.replace(status, pipeline="hours", target="t", stale=((Whole(), reason),))
    Output(as_json=False).status([stale], find_environment(project.settings))
    assert f"next: oncelake {step}\n" in capsys.readouterr().out


def test_null_time_is_report_or_refuse_and_needs_a_time():
    with pytest.raises(BadDeclaration, match="null_time"):
        once.table("raw", time="at", null_time="ignore")
    with pytest.raises(BadDeclaration, match="needs time="):
        daily(reads=once.table("raw", null_time="refuse"))


# A pinned version that can no longer be read


def test_a_version_is_readable_until_a_file_of_it_is_vacuumed(tmp_path):
    table, path = pa.table({"id": [1]}), str(tmp_path)
    for mode in ("append", "append", "overwrite"):
        write_deltalake(path, table, mode=mode)
    assert [unreadable("raw", path, version) for version in (0, 1, 2)] == [None, None, None]
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert unreadable("raw", path, 2) is None
    assert "vacuumed" in unreadable("raw", path, 1)
    (tmp_path / "_delta_log/00000000000000000000.json").unlink()
    assert "no longer reaches back" in unreadable("raw", path, 1)
    assert "no longer reaches back" in unreadable("raw", path, 7)


def test_a_version_whose_deletion_vectors_were_vacuumed_is_unreadable(tmp_path):
    # The example of the Delta protocol: a folder `ab` and a uuid in Z85.
    vector = {"deletionVector": {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "cardinality": 1}}
    write_commit(tmp_path, 0, add(1, **vector))
    (tmp_path / "1.parquet").touch()
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert name in unreadable("raw", str(tmp_path), 0)
    (tmp_path / "ab").mkdir()
    (tmp_path / name).touch()
    assert unreadable("raw", str(tmp_path), 0) is None


# Keys and order


def test_plan_says_that_works_were_written_by_other_keys():
    def noted(declared, *recorded):
        pipeline, log = daily(writes=once.merge("t", keys=declared, latest_by="at")), MemoryLog()
        for number, keys in enumerate(recorded):
            log.add(marker("p", "t", day(14 + number), 1), pipeline="p", target="t", keys=keys)
        plan = make_plan({"p": pipeline}, LakeState({"t": log}, {}), Request(NOW))
        return [note for note in plan.notes if "by keys" in note]

    assert noted("id", ["id"]) == noted("ID", ["id"]) == noted("id") == []
    (note,) = noted(["id", "day"], ["id", "day"], ["id"])
    assert note.startswith("t contains works of p by keys id, declared is id, day")


LATEST = {"keys": "id", "latest_by": "at"}


@pytest.mark.parametrize(
    ("options", "ordered"),
    [
        ({}, False),
        ({"delete_when": "d"}, False),
        ({"update": ["v"]}, True),
        ({"update": False}, True),
        ({"insert": False}, False),
        ({"insert": False, "update": ["v"]}, False),
        ({"insert": False, "delete_when": "d"}, True),
        ({"insert": False, "cdc": "delta"}, True),
        ({"insert": False, "update": ["v"], "delete_when": "d"}, True),
        ({"insert": False, "update": False, "delete_when": "d"}, False),
        ({"update": ["v"], "any_order": True}, False),
    ],
    ids=str,
)
def test_a_merge_whose_result_depends_on_the_order_is_ordered(options, ordered):
    assert once.merge("t", **LATEST, **options).ordered is ordered


# Folders


def test_wildcards_in_the_name_of_the_projects_folder_are_no_pattern(tmp_path):
    root = tmp_path / "a[1]*?"
    (root / "landing").mkdir(parents=True)
    (root / "landing/x.json").touch()
    (tmp_path / "a1b/landing").mkdir(parents=True)
    (tmp_path / "a1b/landing/y.json").touch()
    for pattern in ("landing/*.json", "landing", "*/x.json"):
        assert [Path(file.path).name for file in find_files(f"{root}/{pattern}", f"{root}/")] == ["x.json"]


def test_the_path_of_a_lake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert lake_path("lake") == lake_path(Path("lake")) == f"{tmp_path}/lake"
    assert lake_path("lake", "/project") == "/project/lake"
    assert (lake_path("~"), lake_path("~/lake")) == ("/home/me", "/home/me/lake")
    assert lake_path("file:/data/lake/") == lake_path("file:///data/lake") == "file:///data/lake"
    assert lake_path("s3://bucket/lake/") == "s3://bucket/lake"
    assert lake_path("/data/100% of *?{x} #ä") == "/data/100% of *?{x} #ä"


@pytest.mark.parametrize(
    "lake",
    [None, "", "  ", 3, "file:lake", "file://lake", "s3:/bucket/lake", "~nobody-here/lake", "/my%20lake", "/a[1]"],
)
def test_what_names_no_lake_is_refused(lake, tmp_path):
    with pytest.raises(BadDeclaration, match="lake"):
        once.Project.of(daily(), lake=lake)
    text = "null" if lake is None else repr(lake)
    (tmp_path / "oncelake.yaml").write_text(f"lake: {text}\npipelines: {{}}\n")
    with pytest.raises(BadSettings, match="lake"):
        once.open(tmp_path)


# The ledger and the events


def test_a_ledger_that_lost_a_file_is_reported_and_decides_nothing(tmp_path):
    project = once.Project.of(daily(), lake=tmp_path)
    work = Work("p", "t", day(14), 1, marker("p", "t", day(14), 1))
    DeltaLedger(project.lake, lambda _: None).on(WorkEnded("r", (Outcome(work, FAILED, error="no"),)))
    assert [failure.problem for failure in project.status(now=NOW)[0].failed] == ["no"]
    for file in (tmp_path / "_oncelake/ledger").glob("*.parquet"):
        file.unlink()
    (status,) = project.status(now=NOW)
    assert status.failed == ()
    assert any("could not read 1 of the 1 files of the ledger" in warning for warning in status.warnings)
    assert any("ledger" in note for note in project.plan(failed=True, now=NOW).notes)
    with pytest.warns(UserWarning, match="ledger"):
        assert project.ledger() == []


def test_a_run_of_several_plans_begins_and_ends_once(tmp_path):
    listener = RecordingListener()
    context = RunContext(once.Project.of(lake=tmp_path).lake, lambda: None, (listener,), 0)
    execute(Plan((), ()), {}, context, [lambda: Plan((), ()), lambda: Plan((), ())])
    assert [type(event) for event in listener.events] == [RunPlanned, RunEnded]
