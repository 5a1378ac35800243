"""What holds for files that arrive: twice is once, stopped anywhere is once, two at once is once, a lost answer is once."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import oncelake as once
from oncelake.delta import writes as delta_writes
from oncelake.model.failpoints import FAILPOINTS, OF_ARRIVALS
from support.places import lake_of
from support.variants import sample

TARGETS = {
    "append": lambda: [once.append("bronze")],
    "merge": lambda: [once.merge("bronze", keys="id", latest_by="v")],
    "two": lambda: [once.append("bronze"), once.scd2("history", keys="id", latest_by="v")],
}
# A batch is read before its targets are created, and prepares the rows of its quarantine.
POINTS = [point for point in (*FAILPOINTS, *OF_ARRIVALS) if point != "recorded"]
CHOSEN = sample(POINTS, 1, "arrivals") | {"frozen", "written", "accounted"}


def land(root):
    """Let three files arrive: one with a broken row, one that is no gzip at all."""
    landing = root / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    (landing / "a.json").write_text("".join(f'{{"id": {number}, "v": 1}}\n' for number in range(5)) + "{broken\n")
    (landing / "b.json").write_text('{"id": 7, "v": 1, "new": "x"}\n')
    (landing / "c.json.gz").write_bytes(b"no gzip")


def open_events(root, spark, targets):
    patterns = TARGETS[targets]()

    @once.pipeline(reads=once.files("landing", format="json", max_files=2), writes=patterns)
    def events(rows):
        return rows if len(patterns) == 1 else {pattern.target: rows for pattern in patterns}

    return once.Project.of(events, lake=lake_of(root), root=root, spark=spark)


def is_as_after_one_clean_run(project, targets):
    """Each row is in each target once; what could not be read is in quarantine once; every file is done."""
    for pattern in TARGETS[targets]():
        table = project.lake.table(pattern.target)
        rows = project.session().read.format("delta").load(table.path).collect()
        assert sorted(row["id"] for row in rows) == [0, 1, 2, 3, 4, 7]
        commits = [entry for entry in project.history(pattern.target) if entry.slice]
        assert sorted(entry.slice for entry in commits) == ["batch 0", "batch 1"]
        assert sum(entry.rows.quarantined for entry in commits) == 2
    assert [(row.file, row.line) for row in project.arrivals("events").quarantine(None)] == [
        ("landing/a.json", 6),
        ("landing/c.json.gz", None),
    ]
    states = {entry.path: (entry.state, entry.rows_read) for entry in project.arrivals("events").files()}
    assert states == {
        "landing/a.json": ("done", 6),
        "landing/b.json": ("done", 1),
        "landing/c.json.gz": ("quarantined", 1),
    }


@pytest.mark.parametrize("targets", ["append", "two", pytest.param("merge", marks=pytest.mark.long)])
def test_twice_is_once(tmp_path, spark, targets):
    land(tmp_path)
    project = open_events(tmp_path, spark, targets)
    first, second = project.run(), project.run()
    assert {work.outcome for work in first.works} == {"committed"}
    assert second.works == ()
    is_as_after_one_clean_run(project, targets)


@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=[] if each in CHOSEN else [pytest.mark.long]) for each in POINTS]
)
def test_stopped_at_any_point_is_once(tmp_path, spark, stopped_at, point):
    land(tmp_path)
    with stopped_at(point):
        open_events(tmp_path, spark, "two").run()
    project = open_events(tmp_path, spark, "two")
    assert project.run().outcome == "done"
    is_as_after_one_clean_run(project, "two")


@pytest.mark.parametrize("targets", ["append", pytest.param("two", marks=pytest.mark.long)])
def test_run_by_three_at_once_is_once(tmp_path, spark, targets):
    land(tmp_path)
    projects = [open_events(tmp_path, spark, targets) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda project: project.run(), projects))
    assert {report.outcome for report in reports} == {"done"}, [w.error for r in reports for w in r.works]
    assert projects[0].run().outcome == "done"
    is_as_after_one_clean_run(open_events(tmp_path, spark, targets), targets)


def test_a_commit_whose_answer_was_lost_is_reported_as_committed(tmp_path, spark, monkeypatch):
    land(tmp_path)
    real = delta_writes.append

    def lost(*given):
        real(*given)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(delta_writes, "append", lost)
    project = open_events(tmp_path, spark, "append")
    assert {work.outcome for work in project.run().works} == {"committed"}
    is_as_after_one_clean_run(project, "append")


def test_the_account_of_every_file_is_in_the_commit(tmp_path, spark):
    land(tmp_path)
    project = open_events(tmp_path, spark, "append")
    project.run()
    entries = [entry for entry in project.history("bronze") if entry.slice]
    for facts in (entry.facts for entry in entries):
        assert facts["rows_read"] == facts["quarantined"] + facts["filtered"] + sum(
            entry.rows.written for entry in entries if entry.facts is facts
        )
    assert json.loads(json.dumps(entries[0].document()))["pins"]["rows"]["manifest"] == 1
