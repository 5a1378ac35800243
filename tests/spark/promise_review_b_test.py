"""Histories of `once.write`, restores and rebuilds that an adversarial review found to end wrong, in silence."""

import json
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

import oncelake as once

NOW = datetime(2024, 3, 15, tzinfo=UTC)
SCHEMA = "id long, day date"


def land(root, *ids, day="2024-03-14"):
    folder = root / "landing" / day
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.json").write_text("".join(json.dumps({"id": each, "day": day}) + "\n" for each in ids))


def ids(root, table):
    return sorted(DeltaTable(f"{root}/lake/{table}").to_pyarrow_table()["id"].to_pylist())


def daily(*writes):
    reads = once.files("landing/{start:%Y-%m-%d}/*.json", schema=SCHEMA)
    return once.pipeline(every="day", start="2024-03-14", reads=reads, writes=list(writes))


@pytest.fixture
def project(spark, tmp_path):
    return lambda *pipelines: once.Project.of(*pipelines, lake=tmp_path / "lake", spark=spark, root=tmp_path)


@pytest.fixture
def write(spark, tmp_path):
    def call(pattern, *rows, work="w", **options):
        frame = spark.createDataFrame([(each, NOW.date()) for each in rows], SCHEMA)
        return once.write(frame, pattern, work=work, lake=str(tmp_path / "lake"), **options).outcome

    return call


# Rebuild


@pytest.fixture
def appended(project, tmp_path):
    """A project that has appended one day to a table."""

    @daily(once.append("t"))
    def orders(files):
        return files

    opened = project(orders)
    land(tmp_path, 1)
    opened.run(now=NOW)
    return opened


def test_a_rebuild_refuses_works_of_once_write_whatever_their_names(appended, write, tmp_path):
    options = {"orders/backfill-2023": {}, "repair/x": {}, "orders": {"interval": ("2024-01-01", "2024-01-02")}}
    for number, (work, each) in enumerate(options.items(), start=2):
        before = appended.history("t")[0].version
        write(once.append("t"), number, work=work, **each)
        with pytest.raises(once.OncelakeError) as caught:
            appended.rebuild("t", now=NOW)
        assert caught.value.code == "cannot_rebuild"
        assert f"once.write {work}" in str(caught.value)
        assert ids(tmp_path, "t") == [1, number]
        appended.restore("t", before)


def test_a_rebuild_says_that_rows_of_other_writers_are_dropped(appended, spark, tmp_path):
    assert appended.rebuild("t", dry_run=True, now=NOW).external == ()
    spark.createDataFrame([(99, NOW.date())] * 2, SCHEMA).write.format("delta").mode("append").save(
        f"{tmp_path}/lake/t"
    )
    assert appended.repair("t", ["id"]).removable == 1
    rebuilt = appended.rebuild("t", now=NOW)
    assert (rebuilt.outcome, ids(tmp_path, "t")) == ("done", [1])
    assert len(rebuilt.document()["external_changes"]) == 1
    assert appended.rebuild("t", dry_run=True, now=NOW).external == ()


# Restore


def test_a_restore_to_a_version_whose_files_were_vacuumed_is_refused(project, write, tmp_path):
    @daily(once.append("other"))
    def orders(files):
        return files

    write(once.overwrite("t"), 1)
    write(once.overwrite("t"), 2, generation=2)
    table = DeltaTable(f"{tmp_path}/lake/t")
    first = table.version() - 1
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(once.OncelakeError) as caught:
        project(orders).restore("t", first)
    assert caught.value.code == "cannot_restore"
    assert "VACUUM" in str(caught.value)
    assert ids(tmp_path, "t") == [2]


DAY = ("2024-03-15", "2024-03-16")
CALLS = {
    "overwrite": (once.overwrite("t"), None),
    "overwrite by interval": (once.overwrite("t"), DAY),
    "merge": (once.merge("t", keys="day"), None),
    "replace_interval": (once.replace_interval("t", time="day"), DAY),
}


@pytest.mark.parametrize(
    "call", ["overwrite", *(pytest.param(name, marks=pytest.mark.long) for name in CALLS if name != "overwrite")]
)
def test_once_write_writes_the_generation_that_a_restore_took_out(project, write, tmp_path, call):
    pattern, interval = CALLS[call]

    @daily(once.append("other"))
    def orders(files):
        return files

    opened = project(orders)

    def wrote(number):
        outcome = write(pattern, number, generation=number, interval=interval)
        return outcome, ids(tmp_path, "t")

    def version():
        return DeltaTable(f"{tmp_path}/lake/t").version()

    wrote(1)
    first = version()
    assert wrote(2) == ("committed", [2])
    second = version()
    # The restored version has generation 1, and not 2.
    undone = opened.restore("t", first).elsewhere
    assert [(work.pipeline, work.generation) for work in undone] == [("w", 2)]
    assert wrote(1) == ("already_done", [1])
    assert wrote(2) == ("committed", [2])
    assert wrote(2) == ("already_done", [2])
    assert wrote(3) == ("committed", [3])
    opened.restore("t", 0)
    assert wrote(3) == ("committed", [3])
    assert wrote(4) == ("committed", [4])
    # Undoing restores counts what is there then.
    assert opened.restore("t", second).undone == ()
    assert wrote(2) == ("already_done", [2])
    assert wrote(3) == ("committed", [3])


# The rest of an interrupted work


def both(*targets, broken=()):
    @daily(*(once.replace_interval(target, time="day") for target in targets))
    def copy(files, interval):
        failing = files.where("raise_error('interrupted') IS NULL")
        return {each: failing if (each, interval.start.day) in broken else files for each in targets}

    return copy


def clean_log(root, table):
    path = root / "lake" / table
    opened = DeltaTable(path)
    opened.create_checkpoint()
    for file in (path / "_delta_log").glob("*.json"):
        if file.stem.isdigit() and int(file.stem) < opened.version():
            file.unlink()


def failures(report):
    return [(work.target, work.code) for work in report.works if work.outcome == "failed"]


@pytest.mark.parametrize("between", ["restore", "rebuild", "clean"])
def test_the_rest_of_a_work_is_not_written_from_other_input_without_consent(project, tmp_path, between):
    interrupted, opened = project(both("a", "b", broken={("b", 14)})), project(both("a", "b"))
    now = NOW
    land(tmp_path, 1)
    assert failures(interrupted.run(now=now)) == [("b", "write_failed")]
    if between == "restore":
        # The first target is in generation 2 then, the second one still in generation 1.
        opened.restore("a", 0)
        interrupted.run(now=now)
    elif between == "rebuild":
        opened.rebuild("a", now=now)
    else:
        now = datetime(2024, 3, 16, tzinfo=UTC)
        land(tmp_path, 15, day="2024-03-15")
        interrupted.run(now=now)
        clean_log(tmp_path, "a")
    before = ids(tmp_path, "a")
    land(tmp_path, 2)
    assert failures(opened.run(now=now)) == [("b", "pinned_input_gone")]
    assert ids(tmp_path, "a") == before
    assert opened.run(now=now, accept_new_input=True).outcome == "done"
    assert 2 in ids(tmp_path, "b")
    # A target that is added later reads the input as it is now.
    assert project(both("a", "b", "c")).run(now=now).outcome == "done"
    assert 2 in ids(tmp_path, "c")


def test_the_rest_of_a_work_is_written_from_the_input_that_a_rebuild_read(project, tmp_path):
    land(tmp_path, 1)
    project(both("a", "b", broken={("b", 14)})).run(now=NOW)
    land(tmp_path, 2)
    opened = project(both("a", "b"))
    assert opened.rebuild("a", now=NOW).outcome == "done"
    assert opened.run(now=NOW).outcome == "done"
    assert ids(tmp_path, "a") == ids(tmp_path, "b") == [2]
