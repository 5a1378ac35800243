"""The pinned schema in the lake: numbered files that people can read, each written once."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from oncelake.sources.arrivals.schema_evolution import evolve
from oncelake.sources.arrivals.schema_inference import Drift
from oncelake.sources.arrivals.schema_store import PinnedSchema, SchemaStore
from oncelake.sources.arrivals.schema_types import parse_schema


def pinned(ddl, version=1):
    return PinnedSchema(version, parse_schema(ddl), "first")


def test_versions_are_numbered_files_that_people_can_read(tmp_path):
    store = SchemaStore(str(tmp_path))
    assert (store.newest(), store.history()) == (None, [])
    first = PinnedSchema(1, parse_schema("id bigint, `größe m` array<double>"), "declared", "2024-03-15T12:00:00Z")
    second = evolve(first, [Drift("new", "string", 3)]).following
    assert store.save(first)
    assert store.save(second)
    assert json.loads((tmp_path / "schema" / "0001.json").read_text()) == {
        "version": 1,
        "at": "2024-03-15T12:00:00Z",
        "reason": "declared",
        "columns": {"id": "bigint", "größe m": "array<double>"},
    }
    assert "größe" in (tmp_path / "schema" / "0001.json").read_text()
    assert SchemaStore(str(tmp_path)).newest() == second
    assert store.history() == [first, second]
    assert store.load(1) == first


def test_a_version_is_never_replaced(tmp_path):
    store = SchemaStore(str(tmp_path))
    assert store.save(pinned("id bigint"))
    assert not store.save(pinned("other string"))
    assert store.newest().schema == parse_schema("id bigint")


def test_other_files_beside_the_versions_do_not_matter(tmp_path):
    store = SchemaStore(str(tmp_path))
    for number in (9, 10_000, 9_999):
        store.save(pinned("id bigint", version=number))
    for name in (".0002.json-x", "0003.json.crc", "notes.txt", "abc.json", "12.json"):
        (tmp_path / "schema" / name).write_text("?")
    assert store.versions() == [9, 9_999, 10_000]
    assert store.newest().version == 10_000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "reason": "", "at": "", "columns": {"a": "x"}}']
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, text):
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "0001.json").write_text(text)
    with pytest.raises(ValueError, match=r"schema/0001\.json"):
        SchemaStore(str(tmp_path)).newest()


def test_a_renamed_file_is_an_error(tmp_path):
    store = SchemaStore(str(tmp_path))
    store.save(pinned("id bigint"))
    (tmp_path / "schema" / "0001.json").rename(tmp_path / "schema" / "0002.json")
    with pytest.raises(ValueError, match="contains version 1"):
        store.load(2)
    with pytest.raises(FileNotFoundError):
        store.load(1)


def _meet(barrier):
    globals()["together"] = barrier


def _save_versions(folder, number):
    saved = []
    for version in range(1, 21):
        globals()["together"].wait(60)
        if SchemaStore(folder).save(PinnedSchema(version, parse_schema(f"c{number} bigint"), f"by {number}")):
            saved.append(version)
    return saved


def test_of_two_processes_that_save_one_version_one_wins(tmp_path):
    context = multiprocessing.get_context("spawn")  # the threads of Arrow do not survive a fork
    with ProcessPoolExecutor(2, context, _meet, (context.Barrier(2),)) as pool:
        saved = list(pool.map(_save_versions, [str(tmp_path)] * 2, (0, 1)))
    assert sorted(saved[0] + saved[1]) == list(range(1, 21))
    for each in SchemaStore(str(tmp_path)).history():
        assert each.schema.names == [f"c{0 if each.version in saved[0] else 1}"]
