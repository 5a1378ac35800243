"""The pinned schema in the lake: numbered files that people can read, each written once."""

import json
import subprocess
import sys

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


SAVING = """
import sys
import pyarrow as pa
from oncelake.sources.arrivals.schema_store import PinnedSchema, SchemaStore

store, name = SchemaStore(sys.argv[1]), sys.argv[2]
schema = pa.schema([(f"c{name}", pa.int64())])
sys.stdin.readline()  # both begin at the same time
print(*(n for n in range(1, 21) if store.save(PinnedSchema(n, schema, "a test"))))
"""


def test_of_two_processes_that_save_one_version_one_wins(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "-c", SAVING, str(tmp_path), name] for name in "01"]
    processes = [subprocess.Popen(command, **pipes) for command in commands]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    saved = [[int(number) for number in process.communicate()[0].split()] for process in processes]
    assert sorted(saved[0] + saved[1]) == list(range(1, 21))
    for each in SchemaStore(str(tmp_path)).history():
        assert each.schema.names == [f"c{0 if each.version in saved[0] else 1}"]


def test_what_a_failed_batch_pinned_does_not_bind_its_next_try(tmp_path):
    store = SchemaStore(str(tmp_path))
    first = store.pin(pinned("id bigint"), 0)
    second = store.pin(evolve(first, [Drift("bad", "string", 1)]).following, 1)
    assert (second.version, second.batch, store.newest()) == (2, 1, second)
    assert store.newest_before(1) == first  # batch 1 is read again
    assert store.newest_before(2) == second  # batch 1 was committed
    third = store.pin(first, 1)  # without the file that had the column
    assert (third.version, third.schema) == (3, first.schema)
    assert third.reason == "version 1 again, after batch 1 failed"
    assert store.newest_before(2) == third
    assert [store.newest_before(0), SchemaStore(str(tmp_path / "none")).newest_before(0)] == [third, None]


def test_the_same_schema_is_pinned_once(tmp_path):
    store = SchemaStore(str(tmp_path))
    first = store.pin(pinned("id bigint"), 0)
    assert store.pin(pinned("id bigint"), 0) == store.pin(first, 7) == first
    assert store.versions() == [1]
