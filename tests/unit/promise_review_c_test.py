"""Promises about tables whose name, declaration or code changed after they were written."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import oncelake as once
from oncelake.declare.code_fingerprint import pipeline_fingerprint
from oncelake.errors import MovedTable, SchemaFrozen, SourceMissing, WrongHeader
from oncelake.model.intervals import Grid, Interval
from oncelake.model.markers import Marker, marker, reapply_app_id, restate_app_id, restore_marker
from oncelake.model.slices import Whole
from oncelake.model.work import Work
from oncelake.operations.status import StatusInputs, target_status
from oncelake.planning.staleness import reading_of
from oncelake.planning.writers import Identity
from oncelake.running.commit import make_facts
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 3, 17, 1, tzinfo=UTC)
PINS = {"frame": {"version": 1}}
ADDING = {"append": once.append("s.t"), "aggregate": once.aggregate("s.t", keys="id", add="n")}
OTHERS = {
    "replace_interval": once.replace_interval("s.t", time="at"),
    "merge": once.merge("s.t", keys="id", latest_by="at"),
    "overwrite": once.overwrite("s.t"),
}


def day(number):
    return Grid("day").cell(datetime(2024, 3, number, tzinfo=UTC))


def project(lake, pattern, **more):
    reads = once.table("raw", time="at")
    declared = once.pipeline(reads=reads, writes=pattern, every="day", start="2024-03-14", name="load", **more)
    return once.Project.of(declared(lambda frame: frame), lake=lake)


def commit(lake: Path, *markers, **facts):
    """Write the next commit of the table `s.t`."""
    table = lake / "s/t"
    version = len(list((table / "_delta_log").glob("*.json"))) if table.exists() else 0
    write_commit(table, version, *map(txn, markers), facts={"pipeline": "load", "pins": PINS, **facts})


def warnings(opened):
    return [warning for status in opened.status(now=NOW) for warning in status.warnings]


# A table that was moved


@pytest.mark.parametrize("pattern", ADDING.values(), ids=ADDING)
@pytest.mark.parametrize("request_", [{}, {"date": "2024-03-16"}], ids=["everything", "a new day"])
@pytest.mark.parametrize("more", [{}, {"formerly": []}], ids=["", "no former names"])
def test_adding_to_a_moved_table_is_refused(tmp_path, pattern, request_, more):
    commit(tmp_path, marker("load", "s.former", day(14), 1))
    opened = project(tmp_path, pattern, **more)
    for command in (opened.plan, opened.run):
        with pytest.raises(MovedTable) as caught:
            command(now=NOW, **request_)
        assert (caught.value.code, caught.value.exit_code) == ("moved_table", 2)
        assert (caught.value.facts["target"], caught.value.facts["former"]) == ("s.t", "s.former")
        assert "move the table back to s.former" in caught.value.next
    assert any("written to s.former" in warning for warning in warnings(opened))


@pytest.mark.parametrize("pattern", OTHERS.values(), ids=OTHERS)
def test_a_moved_table_that_is_replaced_is_reported(tmp_path, pattern):
    commit(tmp_path, marker("load", "s.former", day(14), 1))
    opened = project(tmp_path, pattern)
    plan = opened.plan(now=NOW)
    assert plan.to_do
    assert any("written to s.former" in note for note in plan.notes)
    assert any("written to s.former" in warning for warning in warnings(opened))


def test_a_moved_table_with_works_of_its_own_is_refused_where_they_overlap(tmp_path):
    commit(tmp_path, marker("load", "s.former", day(14), 1))
    commit(tmp_path, marker("load", "s.t", day(15), 1))
    opened = project(tmp_path, ADDING["append"])
    with pytest.raises(MovedTable):
        opened.plan(now=NOW)
    assert len(opened.plan(date="2024-03-16", now=NOW).to_do) == 1


def test_a_table_in_its_place_is_not_a_moved_one(tmp_path):
    done = marker("load", "s.t", day(14), 1)
    commit(tmp_path, done)
    commit(tmp_path, Marker(restate_app_id("load", "s.t", day(14)), 0), restore_marker("s.t", 1, 0))
    commit(tmp_path, Marker(reapply_app_id(done.app_id), 1))
    commit(tmp_path, Marker("another tool", 7))
    commit(
        tmp_path, marker("nightly/1", "t", day(14), 1), pipeline="nightly/1", pins={}
    )  # `once.write` in the lake's `s`
    opened = project(tmp_path, ADDING["append"])
    assert len(opened.plan(now=NOW).to_do) == 2
    assert not any("moved" in warning for warning in warnings(opened))


# Other rows than before


def rebuild_notes(opened):
    """Return what `plan` says of rows that only a rebuild removes; `status` says the same."""
    found = [note for note in opened.plan(now=NOW).notes if "rebuild" in note]
    assert found == [warning for warning in warnings(opened) if "rebuild" in warning]
    return found


def redone(lake, slice_, *patterns):
    """Commit a slice by patterns as they were declared one after the other, as `run --stale` does."""
    for generation, pattern in enumerate(patterns, 1):
        done = marker("load", "s.t", slice_, generation)
        commit(lake, done, **make_facts(Work("load", "s.t", slice_, generation, done), "run", PINS, None, pattern))
    if isinstance(slice_, Interval):
        return project(lake, patterns[-1])
    declared = once.pipeline(reads=once.table("raw"), writes=patterns[-1], name="load")
    return once.Project.of(declared(lambda frame: frame), lake=lake)


CHANGED = {
    "time": (once.replace_interval("s.t", time="day"), once.replace_interval("s.t", time="at"), "time=day"),
    "within": (
        once.replace_interval("s.t", time="at", within={"region": "EU"}),
        once.replace_interval("s.t", time="at", within={"region": "US"}),
        "within=region: EU, declared is region: US",
    ),
    "narrower": (
        once.replace_interval("s.t", time="at"),
        once.replace_interval("s.t", time="at", within={"region": ["US", "EU"]}),
        "within=nothing, declared is region: EU, US",
    ),
    "values": (
        once.replace_partitions("s.t", by="day", values=["a", "b"], within={"n": 1}),
        once.replace_partitions("s.t", by="day", values=["b", "c"], within={"n": 1}),
        "values=a, b, declared is b, c",
    ),
}


@pytest.mark.parametrize(("former", "now", "said"), CHANGED.values(), ids=CHANGED)
def test_a_changed_choice_of_rows_is_reported(tmp_path, former, now, said):
    slice_ = Whole() if now.kind == "replace_partitions" else day(14)
    (note,) = rebuild_notes(redone(tmp_path, slice_, former, now))
    assert said in note
    assert note.endswith("oncelake rebuild s.t")


def test_a_changed_time_column_of_an_earlier_version_is_reported(tmp_path):
    facts = {"target": "s.t", "pattern": "replace_interval", "cut_by": ["day", "UTC"]}
    commit(tmp_path, marker("load", "s.t", day(14), 1), **facts)
    (note,) = rebuild_notes(project(tmp_path, once.replace_interval("s.t", time="at")))
    assert "time=day, declared is at" in note


def test_a_rebuild_ends_the_report(tmp_path):
    patterns = [once.replace_interval("s.t", time=time) for time in ("day", "at")]
    assert rebuild_notes(redone(tmp_path, day(14), *patterns))
    commit(tmp_path, restore_marker("s.t", 2, -1), pipeline="rebuild")
    assert rebuild_notes(project(tmp_path, patterns[-1])) == []


def test_a_wider_choice_of_rows_is_not_reported(tmp_path):
    wider = [
        once.replace_interval("s.t", time="at", within={"Region": "EU", "kind": "x"}),
        once.replace_interval("s.t", time="AT", within={"region": ["US", "EU"]}),
        once.replace_interval("s.t", time="at"),
    ]
    assert rebuild_notes(redone(tmp_path / "1", day(14), *wider)) == []
    values = [once.replace_partitions("s.t", by="day", values=values) for values in (["b"], ["a", "b"])]
    assert rebuild_notes(redone(tmp_path / "2", Whole(), *values)) == []


# Changed code of a pipeline without intervals


def test_changed_code_of_a_whole_is_stale_and_redone_on_request(tmp_path):
    write_commit(tmp_path / "raw", 0)
    declared = once.pipeline(reads=once.table("raw"), writes=once.overwrite("s.t"), name="load")(lambda frame: frame)
    opened = once.Project.of(declared, lake=tmp_path)
    (first,) = opened.plan(now=NOW).works
    pins = {
        name: dict(source.pin(reading_of(declared, Whole(), opened.lake))) for name, source in declared.reads.items()
    }
    code = pipeline_fingerprint(declared, declared.writes[0])
    commit(tmp_path, first.work.marker, pins=pins, code=code)
    assert [item.cause for item in opened.plan(now=NOW).works] == ["done"]
    assert opened.plan(now=NOW, stale=True).works == opened.status(now=NOW)[0].stale == ()
    commit(tmp_path, replace(first.work.marker, version=2), pins=pins, code="another")
    (item,) = opened.plan(now=NOW).works
    assert (item.action, item.cause, item.why) == (
        "skip",
        "stale",
        "done, but stale: its code changed, or its declaration",
    )
    (item,) = opened.plan(now=NOW, stale=True).works
    assert (item.action, item.work.generation, item.cause) == ("run", 3, "stale")
    ((slice_, why),) = opened.status(now=NOW)[0].stale
    assert (str(slice_), why) == ("whole", "done, but stale: its code changed, or its declaration")


# The next command after a failure


@pytest.mark.parametrize(
    ("error", "next_"),
    [
        (
            WrongHeader(path="a.csv", found="x", expected="y", where="p.py:1", pipeline="load"),
            "fix the file or the schema",
        ),
        (SourceMissing(slice="s", path="p", pipeline="load"), "oncelake run load --failed"),
    ],
    ids=["useless", "helps"],
)
def test_status_names_a_retry_only_where_it_can_help(error, next_):
    pipeline = once.pipeline(
        reads=once.table("raw", time="at"), writes=ADDING["append"], every="day", start="2024-03-14", name="load"
    )(lambda frame: frame)
    names = {"pipeline": "load", "target": "s.t", "slice": str(day(14)), "outcome": "failed"}
    entry = {
        **names,
        "start": "2024-03-14T00:00:00Z",
        "end": "2024-03-15T00:00:00Z",
        "code": error.code,
        "error": str(error),
    }
    inputs = StatusInputs({}, [entry], lambda *_: [], Identity())
    (failure,) = target_status(pipeline, pipeline.writes[0], None, inputs, NOW).failed
    assert failure.problem == error.message
    assert failure.next.startswith(next_)
    assert "\n" not in failure.next


@pytest.mark.parametrize("code", ["blocked", "earlier_not_done"])
def test_batches_that_a_failed_one_holds_back_have_its_next_command(code):
    pipeline = once.pipeline(reads=once.files("landing", format="json"), writes=once.append("s.t"), name="load")(
        lambda rows: rows
    )
    frozen = SchemaFrozen(pipeline="load", where="p.py:1", slice="batch 3", problem="there is no column 'x'")
    names = {"pipeline": "load", "target": "s.t", "start": None, "end": None, "at": NOW}
    entries = [
        {**names, "slice": "batch 4", "outcome": "blocked", "code": code, "error": "waits for batch 3"},
        {**names, "slice": "batch 3", "outcome": "failed", "code": frozen.code, "error": str(frozen)},
    ]
    inputs = StatusInputs({}, entries, lambda *_: [], Identity())
    later, first = target_status(pipeline, pipeline.writes[0], None, inputs, NOW).failed
    assert later.next == first.next
    assert "--failed" not in later.next
