"""`rebuild` is the true redo of keyed tables: after corrected input the table is what one clean run would leave."""

import dataclasses
import json
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

import oncelake as once
import oncelake.testing
from oncelake.model import failpoints
from support.variants import sampled

SCHEMA = "id long, t long, op string"
PATTERNS = {
    "merge": lambda: once.merge("m", keys="id", latest_by="t", delete_when="op = 'D'", exclude="op"),
    "scd2": lambda: once.scd2("m", keys="id", latest_by="t", delete_when="op = 'D'", exclude="op"),
    "aggregate, adding": lambda: once.aggregate("m", keys="id", add="t"),
}


def ts(day):
    return datetime(2024, 3, day, tzinfo=UTC)


def land(root, day, *rows):
    folder = root / f"landing/2024-03-{day}"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(dict(zip(("id", "t", "op"), row, strict=True))) + "\n" for row in rows)
    (folder / "x.json").write_text(text)


def content(lake):
    found = DeltaTable(f"{lake}/m").to_pyarrow_table().to_pylist()
    return sorted(tuple(str(row[name]) for name in sorted(row)) for row in found)


def project(spark, root, kind, lake="lake"):
    @once.pipeline(
        every="day",
        start="2024-03-14",
        reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema=SCHEMA),
        writes=PATTERNS[kind](),
    )
    def load(files):
        return files.drop("op") if kind == "aggregate, adding" else files

    return once.Project.of(load, lake=root / lake, spark=spark, root=root)


@pytest.mark.parametrize("kind", sampled(list(PATTERNS), 1, "rebuild"))
def test_a_rebuild_after_corrected_input_equals_a_clean_run(spark, tmp_path, kind):
    opened = project(spark, tmp_path, kind)
    land(tmp_path, 14, (1, 10, "U"), (3, 5, "U"))
    land(tmp_path, 15, (1, 99, "U"), (7, 99, "U"), (3, 90, "D"))
    land(tmp_path, 16, (3, 50, "U"))
    opened.run(now=ts(17))
    land(tmp_path, 15, (1, 30, "U"))
    dry = opened.rebuild("m", dry_run=True, now=ts(17))
    assert (len(dry.works), dry.version) == (3, None)
    rebuilt = opened.rebuild("m", now=ts(17))
    assert (rebuilt.failed, rebuilt.version) == (None, rebuilt.read + 1)
    clean = project(spark, tmp_path, kind, "clean")
    clean.run(now=ts(17))
    assert content(tmp_path / "lake") == content(tmp_path / "clean")
    # The works are done, from the inputs that the rebuild read.
    assert {work.outcome for work in opened.run(now=ts(17)).works} == {"already_done"}
    assert not opened.status(now=ts(17))[0].stale
    assert not (tmp_path / "lake/_oncelake/rebuild/m").exists()
    # And life goes on: a late row is judged by the tombstones of the rebuilt table.
    land(tmp_path, 17, (3, 80, "U"), (1, 20, "U"))
    for one in (opened, clean):
        one.run(now=ts(18))
    assert content(tmp_path / "lake") == content(tmp_path / "clean")


def test_a_rebuild_that_is_killed_leaves_the_old_table_and_is_resumed(spark, tmp_path):
    opened = project(spark, tmp_path, "merge")
    land(tmp_path, 14, (1, 10, "U"))
    land(tmp_path, 15, (1, 99, "U"))
    opened.run(now=ts(16))
    before = content(tmp_path / "lake")
    land(tmp_path, 15, (1, 30, "U"))

    class Killed(BaseException):
        pass

    def kill(point):
        if point == "replayed":
            raise Killed

    failpoints.watch(kill)
    try:
        with pytest.raises(Killed):
            opened.rebuild("m", now=ts(16))
    finally:
        failpoints.watch(None)
    assert content(tmp_path / "lake") == before
    listener = once.testing.RecordingListener()
    assert opened.rebuild("m", now=ts(16), listener=listener).failed is None
    assert {outcome.outcome for outcome in listener.outcomes} == {"already_done"}, (
        "what was replayed is not replayed again"
    )
    assert content(tmp_path / "lake") == [("1", "30")]


def test_an_interrupted_rebuild_whose_input_changed_since_starts_over(spark, tmp_path):
    opened = project(spark, tmp_path, "merge")
    land(tmp_path, 14, (1, 10, "U"))
    land(tmp_path, 15, (1, 99, "U"))
    opened.run(now=ts(16))

    class Killed(BaseException):
        pass

    def kill(point):
        if point == "replayed":
            raise Killed

    failpoints.watch(kill)
    try:
        with pytest.raises(Killed):
            opened.rebuild("m", now=ts(16))
    finally:
        failpoints.watch(None)
    land(tmp_path, 15, (1, 30, "U"))
    opened.rebuild("m", now=ts(16))
    assert content(tmp_path / "lake") == [("1", "30")]


def test_a_rebuild_that_fails_leaves_the_table_as_it_is(spark, tmp_path):
    opened = project(spark, tmp_path, "merge")
    land(tmp_path, 14, (1, 10, "U"))
    opened.run(now=ts(15))
    before = content(tmp_path / "lake")
    (tmp_path / "landing/2024-03-14/x.json").unlink()
    rebuilt = opened.rebuild("m", now=ts(15))
    assert [work.code for work in rebuilt.failed.works] == ["source_missing"]
    assert content(tmp_path / "lake") == before


def test_works_that_no_pipeline_can_replay_are_refused(spark, tmp_path):
    opened = project(spark, tmp_path, "merge")
    land(tmp_path, 14, (1, 10, "U"))
    opened.run(now=ts(15))
    frame = spark.createDataFrame([(2, 5, "U")], SCHEMA)
    once.write(frame, PATTERNS["merge"](), work="nightly/1", lake=str(tmp_path / "lake"))
    with pytest.raises(once.OncelakeError) as caught:
        opened.rebuild("m", now=ts(15))
    assert (caught.value.code, caught.value.facts["unknown"]) == ("cannot_rebuild", "nightly")


def test_a_rebuild_fills_a_gap_of_a_table_that_is_written_in_order(spark, tmp_path):
    @once.pipeline(
        every="day",
        start="2024-03-14",
        reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, t long"),
        writes=once.aggregate("m", keys="id"),
    )
    def load(files):
        return files

    opened = once.Project.of(load, lake=tmp_path / "lake", spark=spark, root=tmp_path)
    for day in (15, 16):
        land(tmp_path, day, (1, day, "U"))
    opened = once.Project.of(replace_start(load, "2024-03-15"), lake=tmp_path / "lake", spark=spark, root=tmp_path)
    assert opened.run(now=ts(17)).outcome == "done"
    land(tmp_path, 14, (1, 14, "U"), (2, 14, "U"))
    opened = once.Project.of(load, lake=tmp_path / "lake", spark=spark, root=tmp_path)
    assert opened.run(now=ts(17)).works[0].code == "out_of_order"
    assert len(opened.rebuild("m", now=ts(17)).works) == 3
    assert {work.outcome for work in opened.run(now=ts(17)).works} == {"already_done"}
    assert content(tmp_path / "lake") == [("1", "16"), ("2", "14")]


def replace_start(pipeline, start):
    return dataclasses.replace(pipeline, start=pipeline.grid.parse(start))
