"""What a plan says of a declaration that is not the one by which files were ingested."""

import pytest

import oncelake as once
from oncelake.planning.batches import arrival_reading
from oncelake.sources.arrivals.backlog import folder_of
from oncelake.sources.arrivals.schema_store import PinnedSchema, SchemaStore
from oncelake.sources.arrivals.schema_types import parse_schema
from support.arrivals import drop, events


def project(root, **options):
    return once.Project.of(events(**options), lake=root / "lake", root=root)


def reading(p):
    return arrival_reading(p.pipelines["events"], p.lake)


def freeze(p):
    p.pipelines["events"].arrival.freeze(reading(p), None)


def pin(p, ddl, batch=None):
    SchemaStore(folder_of(reading(p))).save(PinnedSchema(1, parse_schema(ddl), "inferred", batch=batch))


def test_another_path_is_said_because_all_its_files_are_new(tmp_path):
    drop(tmp_path / "landing", "a.json", {"id": 1})
    freeze(project(tmp_path))
    (tmp_path / "landing").rename(tmp_path / "arrivals")
    (note,) = project(tmp_path, path="arrivals").plan().notes
    assert "files arrived in 'landing' until batch 0, and 'arrivals' is declared now" in note


@pytest.mark.parametrize("path", ["landing/", "./landing", "landing/../landing", "landing/*.json", "landing/sub"])
def test_another_spelling_of_the_path_is_none(tmp_path, path):
    drop(tmp_path / "landing", "a.json", {"id": 1})
    drop(tmp_path / "landing", "sub/a.json", {"id": 1})
    freeze(project(tmp_path))
    plan = project(tmp_path, path=path).plan()
    assert (plan.notes, [item.work.slice.number for item in plan.works]) == ((), [0])


@pytest.mark.parametrize("option", ["schema", "hints"])
def test_declared_types_that_are_not_the_pinned_ones_are_said(tmp_path, option):
    pin(project(tmp_path), "id bigint, v string")
    (note,) = project(tmp_path, **{option: "ID string, v string, w int"}).plan().notes
    assert note.startswith(f"{option}= declares ID as string, but it is pinned as bigint (version 1)")
    assert project(tmp_path, **{option: "id bigint"}).plan().notes == ()


def test_types_that_a_batch_pinned_which_is_not_done_bind_nothing(tmp_path):
    drop(tmp_path / "landing", "a.json", {"id": 1})
    freeze(project(tmp_path))
    pin(project(tmp_path), "id bigint", batch=0)
    assert project(tmp_path, schema="id string").plan().notes == ()
