"""Duplicates by declaration are refused or reported: renamed pipelines, inputs without an interval, two projects on one lake."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import oncelake as once
from oncelake.cli.init import create_project
from oncelake.declare.settings import read_settings
from oncelake.errors import BadDeclaration, BadSettings, OtherProject, RenamedPipeline
from oncelake.model.intervals import Grid
from oncelake.model.markers import Marker, restate_app_id
from oncelake.model.slices import Named
from oncelake.running.commit_state import commit_state
from support.hand_written_logs import txn, write_commit

NOW = datetime(2024, 3, 17, 1, tzinfo=UTC)
PINS = {"frame": {"version": 1}}
GRID = Grid("day")
ADDING = {"append": once.append("t"), "aggregate": once.aggregate("t", keys="id", add="n")}
OTHERS = {
    "replace_interval": once.replace_interval("t", time="at"),
    "merge": once.merge("t", keys="id", latest_by="at"),
    "overwrite": once.overwrite("t"),
}


def declared(name, pattern, reads=None, **more):
    reads = reads or once.table("raw", time="at")
    return once.pipeline(reads=reads, writes=pattern, every="day", start="2024-03-14", name=name, **more)(
        lambda frame: frame
    )


def day(number):
    return GRID.cell(datetime(2024, 3, number, tzinfo=UTC))


def commit(lake: Path, markers, table="t", **facts):
    """Write the next commit of a table."""
    version = len(list((lake / table / "_delta_log").glob("*.json"))) if (lake / table).exists() else 0
    write_commit(lake / table, version, *map(txn, markers), facts=facts)


def finish(lake, pipeline, *numbers, generation=1, **facts):
    """Write one commit per day, as a run of the pipeline would."""
    (pattern,) = pipeline.writes
    for number in numbers:
        marker = pattern.marker(pipeline.name, day(number), generation)
        commit(lake, [marker], pipeline=pipeline.name, pins=PINS, **facts)


def project(tmp_path, *pipelines):
    return once.Project.of(*pipelines, lake=tmp_path)


def renamed(tmp_path, pattern, **more):
    """A project whose pipeline `load` did two days and was renamed to `load_orders`."""
    finish(tmp_path, declared("load", pattern), 14, 15)
    return project(tmp_path, declared("load_orders", pattern, **more))


# A renamed pipeline


@pytest.mark.parametrize("pattern", ADDING.values(), ids=ADDING)
@pytest.mark.parametrize("request_", [{}, {"date": "2024-03-16"}], ids=["everything", "a new day"])
def test_a_renamed_pipeline_that_adds_is_refused(tmp_path, pattern, request_):
    opened = renamed(tmp_path, pattern)
    for command in (opened.plan, opened.run):
        with pytest.raises(RenamedPipeline) as caught:
            command(now=NOW, **request_)
        assert (caught.value.code, caught.value.exit_code) == ("renamed_pipeline", 2)
        assert caught.value.facts["pipeline"] == "load_orders"
        assert caught.value.facts["former"] == "load"
        assert 'formerly="load"' in caught.value.next
        assert 'name="load"' in caught.value.next


@pytest.mark.parametrize("pattern", OTHERS.values(), ids=OTHERS)
def test_a_renamed_pipeline_that_replaces_is_reported(tmp_path, pattern):
    opened = renamed(tmp_path, pattern)
    assert any("load, which" in note for note in opened.plan(now=NOW).notes)
    (status,) = opened.status(now=NOW)
    assert any("load, which" in warning for warning in status.warnings)


@pytest.mark.parametrize("pattern", [*ADDING.values(), *OTHERS.values()], ids=[*ADDING, *OTHERS])
@pytest.mark.parametrize("former", ["load", ["load", "older"]])
def test_works_of_a_former_name_count_as_done(tmp_path, pattern, former):
    opened = renamed(tmp_path, pattern, formerly=former)
    plan = opened.plan(now=NOW)
    assert [item.slice for item in plan.works if item.action == "run"] == ["[2024-03-16, 2024-03-17)"]
    assert not any("load" in note for note in plan.notes)
    (status,) = opened.status(now=NOW)
    assert (status.done, status.missing, status.warnings) == (2, 1, ())


def test_a_run_that_began_before_sees_the_work_of_a_former_name(tmp_path):
    opened = renamed(tmp_path, ADDING["append"], formerly="load")
    planned = opened.plan(date="2024-03-14", now=NOW).works[0].work
    assert commit_state(planned, opened.lake.table("t")).done
    (outcome,) = opened.run(date="2024-03-14", now=NOW).works
    assert (outcome.outcome, outcome.version) == ("already_done", 0)


def test_a_former_name_keeps_its_generations_and_restate_requests(tmp_path):
    pattern = OTHERS["replace_interval"]
    old = declared("load", pattern)
    finish(tmp_path, old, 14, generation=3)
    commit(tmp_path, [Marker(restate_app_id("load", "t", day(14)), 5)], requested=True)
    opened = project(tmp_path, declared("load_orders", pattern, formerly="load"))
    (item,) = opened.plan(date="2024-03-14", now=NOW).works
    assert (item.action, item.cause, item.generation) == ("run", "restated", 5)


def test_a_pipeline_without_intervals_keeps_its_generation_under_a_new_name(tmp_path):
    def whole(name, **more):
        return once.pipeline(reads=once.table("raw"), writes=once.overwrite("t"), name=name, **more)(
            lambda frame: frame
        )

    old = whole("load")
    commit(
        tmp_path,
        [old.writes[0].marker("load", once.Project.of(old, lake=tmp_path).plan(now=NOW).works[0].work.slice, 4)],
    )
    (item,) = project(tmp_path, whole("other")).plan(now=NOW).works
    assert item.generation == 1
    (item,) = project(tmp_path, whole("other", formerly="load")).plan(now=NOW).works
    assert item.generation == 5


def test_a_restore_knows_what_was_done_under_a_former_name(tmp_path):
    opened = renamed(tmp_path, ADDING["append"], formerly="load")
    found = opened.restore("t", 0, dry_run=True)
    assert {str(each.slice) for each in (*found.undone, *found.elsewhere)} == {"[2024-03-15, 2024-03-16)"}


def test_a_misspelled_former_name_is_refused_all_the_same(tmp_path):
    with pytest.raises(RenamedPipeline):
        renamed(tmp_path, ADDING["append"], formerly="laod").plan(now=NOW)


def test_a_former_name_that_is_dropped_again_is_refused_where_it_was_at_work(tmp_path):
    opened = renamed(tmp_path, ADDING["append"])
    finish(tmp_path, declared("load_orders", ADDING["append"]), 16)
    with pytest.raises(RenamedPipeline):
        opened.plan(now=NOW)
    later = datetime(2024, 3, 18, 1, tzinfo=UTC)
    assert opened.plan(date="2024-03-17", now=later).to_do  # a pipeline that was retired wrote nothing of this day


def test_a_pipeline_that_replaces_none_says_so(tmp_path):
    plan = renamed(tmp_path, ADDING["append"], formerly=[]).plan(now=NOW)
    assert len(plan.to_do) == 3


def test_other_declared_pipelines_and_once_write_are_no_former_names(tmp_path):
    one, two = declared("one", ADDING["append"]), declared("two", ADDING["append"])
    finish(tmp_path, one, 14, 15)
    commit(tmp_path, [ADDING["append"].marker("nightly", Named("2024-03-14"), 1)])
    commit(tmp_path, [ADDING["append"].marker("nightly/1", day(14), 1)], pipeline="nightly/1", pins={})
    assert len(project(tmp_path, one, two).plan("two", now=NOW).to_do) == 3


def test_a_pipeline_that_has_nothing_to_do_is_not_refused(tmp_path):
    opened = renamed(tmp_path, ADDING["append"])
    finish(tmp_path, declared("load_orders", ADDING["append"]), 14, 15, 16)
    assert opened.plan(now=NOW).to_do == ()


@pytest.mark.parametrize(
    ("pipelines", "problem"),
    [
        ({"a": {"formerly": "b"}, "b": {}}, "b is declared"),
        ({"a": {"formerly": "a"}}, "a is declared"),
        ({"a": {"formerly": "old"}, "b": {"formerly": ["old"]}}, "both"),
    ],
)
def test_a_former_name_that_is_in_use_is_refused(tmp_path, pipelines, problem):
    made = [declared(name, ADDING["append"], **more) for name, more in pipelines.items()]
    with pytest.raises(BadDeclaration) as caught:
        project(tmp_path, *made)
    assert problem in caught.value.facts["problem"]


def test_a_former_name_may_be_in_use_for_another_table(tmp_path):
    assert project(tmp_path, declared("a", once.append("x"), formerly="b"), declared("b", once.append("y")))


@pytest.mark.parametrize("former", [1, [1], [""]])
def test_a_former_name_is_a_name(former):
    with pytest.raises(BadDeclaration):
        declared("a", ADDING["append"], formerly=former)


# An input that does not depend on the interval


@pytest.mark.parametrize("pattern", ADDING.values(), ids=ADDING)
def test_adding_the_same_input_once_per_interval_is_refused(pattern):
    with pytest.raises(BadDeclaration) as caught:
        declared("load", pattern, reads=once.table("raw"))
    assert "interval" in caught.value.facts["problem"]


def test_adding_takes_a_source_or_a_function_that_depends_on_the_interval():
    by_interval = {"frame": once.table("raw"), "rates": once.files("rates/{start:%Y-%m-%d}/*.json")}
    for reads, function in (
        (by_interval, lambda frame, rates: frame),
        (once.table("raw"), lambda frame, interval: frame),
    ):
        assert once.pipeline(reads=reads, writes=once.append("t"), every="day", start="2024-01-01", name="p")(function)
    assert declared("load", OTHERS["replace_interval"], reads=once.table("raw"))


# Two projects on one lake


def opened_with(tmp_path, id_, pattern='once.append("t")'):
    folder = tmp_path / f"project-{id_}"
    folder.mkdir(exist_ok=True)
    (folder / "oncelake.yaml").write_text(f"lake: {tmp_path}\n" + (f"id: {id_}\n" if id_ else ""))
    (folder / "pipelines.py").write_text(
        "import oncelake as once\n"
        f'@once.pipeline(every="day", start="2024-03-14", reads=once.table("raw", time="at"), writes={pattern})\n'
        "def load(frame): return frame\n"
    )
    return once.open(folder)


@pytest.mark.parametrize("mine", ["one", ""])
def test_works_of_another_project_are_reported(tmp_path, mine):
    finish(tmp_path, declared("load", OTHERS["replace_interval"]), 14, project="two")
    opened = opened_with(tmp_path, mine, 'once.replace_interval("t", time="at")')
    assert any("project two" in note for note in opened.plan(now=NOW).notes)
    assert any("project two" in warning for warning in opened.status(now=NOW)[0].warnings)


@pytest.mark.parametrize("pattern", ['once.append("t")', 'once.aggregate("t", keys="id", add="n")'])
def test_adding_to_works_of_another_project_under_one_name_is_refused(tmp_path, pattern):
    finish(tmp_path, declared("load", ADDING["append"]), 14, project="two")
    with pytest.raises(OtherProject) as caught:
        opened_with(tmp_path, "one", pattern).plan(now=NOW)
    assert (caught.value.code, caught.value.exit_code) == ("other_project", 2)
    assert (caught.value.facts["pipeline"], caught.value.facts["other"]) == ("load", "two")


@pytest.mark.parametrize("id_", ["one", None])
def test_works_of_this_project_and_of_the_time_before_ids_are_its_own(tmp_path, id_):
    finish(tmp_path, declared("load", ADDING["append"]), 14, **({"project": id_} if id_ else {}))
    plan = opened_with(tmp_path, "one").plan(now=NOW)
    assert (len(plan.to_do), plan.notes) == (2, ())


def test_another_pipeline_of_another_project_is_no_renamed_one(tmp_path):
    finish(tmp_path, declared("theirs", ADDING["append"]), 14, project="two")
    assert len(opened_with(tmp_path, "one").plan(now=NOW).to_do) == 3


def test_the_id_travels_with_a_run(tmp_path):
    assert opened_with(tmp_path, "one")._context(None).project == "one"
    assert opened_with(tmp_path, "")._context(None).project is None


def test_init_writes_an_id_of_its_own(tmp_path):
    for name in ("a", "b"):
        create_project(str(tmp_path / name))
    ids = [read_settings(tmp_path / name).id for name in ("a", "b")]
    assert len(set(ids)) == 2
    assert all(len(id_) == 32 and int(id_, 16) for id_ in ids)


@pytest.mark.parametrize("value", ["[1]", '""', "{a: b}"])
def test_an_id_is_a_text(tmp_path, value):
    (tmp_path / "oncelake.yaml").write_text(f"lake: lake\nid: {value}\n")
    with pytest.raises(BadSettings) as caught:
        read_settings(tmp_path)
    assert caught.value.facts["where"] == "oncelake.yaml:2"


def test_an_id_of_digits_is_a_text(tmp_path):
    (tmp_path / "oncelake.yaml").write_text("id: 17\n")
    assert read_settings(tmp_path).id == "17"
