"""Tables whose name or declaration changed after they were written, as Spark writes them."""

import json

import pytest
from deltalake import DeltaTable

import oncelake as once
from oncelake.errors import MovedTable

RANGE = {"start": "2024-03-14", "end": "2024-03-16"}


def land(root, day, *rows):
    file = root / f"landing/2024-03-{day}/a.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(map(json.dumps, rows)))


def project(root, spark, pattern, schema):
    files = once.files("landing/{start:%Y-%m-%d}/*.json", format="json", schema=schema)
    declared = once.pipeline(every="day", start="2024-03-14", name="load", reads=files, writes=pattern)
    return once.Project.of(declared(lambda frame: frame), lake=str(root / "lake"), root=str(root), spark=spark)


def test_a_renamed_folder_is_not_added_to_again(spark, tmp_path):
    land(tmp_path, 14, {"id": 1, "n": 5})
    land(tmp_path, 15, {"id": 1, "n": 6})

    def opened(target):
        return project(tmp_path, spark, once.aggregate(target, keys="id", add="n"), "id int, n int")

    assert opened("s.g").run(**RANGE).outcome == "done"
    opened("s.g").rebuild("s.g")
    assert opened("s.g").status()[0].warnings == ()
    (tmp_path / "lake/s/g").rename(tmp_path / "lake/s/h")
    with pytest.raises(MovedTable):
        opened("s.h").run(**RANGE)
    assert DeltaTable(str(tmp_path / "lake/s/h")).to_pyarrow_table().to_pylist() == [{"id": 1, "n": 11}]
    (tmp_path / "lake/s/h").rename(tmp_path / "lake/s/g")
    assert opened("s.g").plan(**RANGE).to_do == ()


def test_rows_of_a_former_time_column_are_reported_until_a_rebuild(spark, tmp_path):
    def opened(time):
        return project(tmp_path, spark, once.replace_interval("s.t", time=time), "id int, made date, at date")

    def ids():
        return sorted(row["id"] for row in DeltaTable(str(tmp_path / "lake/s/t")).to_pyarrow_table().to_pylist())

    day = {"date": "2024-03-14"}
    land(tmp_path, 14, {"id": 1, "made": "2024-03-14", "at": "2024-03-20"})
    assert opened("made").run(**day).outcome == "done"
    land(tmp_path, 14, {"id": 2, "made": "2024-03-14", "at": "2024-03-14"})
    changed = opened("at")
    assert changed.run(**day, stale=True).outcome == "done"
    assert ids() == [1, 2]
    (warning,) = changed.status()[0].warnings
    assert "time=made, declared is at" in warning
    changed.rebuild("s.t")
    assert (ids(), changed.status()[0].warnings) == ([2], ())


def low(frame):
    return frame.where("id < 5")


def high(frame):
    return frame.where("id > 5")


def test_changed_code_of_a_pipeline_without_intervals_is_redone_on_request(spark, tmp_path):
    land(tmp_path, 14, {"id": 1}, {"id": 7})

    def opened(function):
        files = once.files("landing/*/*.json", format="json", schema="id int")
        declared = once.pipeline(name="load", reads=files, writes=once.overwrite("s.w"))(function)
        return once.Project.of(declared, lake=str(tmp_path / "lake"), root=str(tmp_path), spark=spark)

    def ids():
        return DeltaTable(str(tmp_path / "lake/s/w")).to_pyarrow_table()["id"].to_pylist()

    opened(low).run()
    changed = opened(high)
    assert ([str(slice_) for slice_, _ in changed.status()[0].stale], ids()) == (["whole"], [1])
    assert [work.outcome for work in changed.run().works] == ["already_done"]
    assert [work.outcome for work in changed.run(stale=True).works] == ["committed"]
    assert (ids(), changed.status()[0].stale, changed.run(stale=True).works) == ([7], (), ())


def test_a_file_that_hadoop_cannot_open_for_its_name_is_named(spark, tmp_path):
    land(tmp_path, 14, {"id": 1})
    (tmp_path / "landing/2024-03-14/a.json").rename(tmp_path / "landing/2024-03-14/a:b.json")
    (work,) = project(tmp_path, spark, once.append("s.a"), "id int").run(date="2024-03-14").works
    assert (work.outcome, work.code) == ("failed", "source_unreadable")
    assert "a:b.json" in work.error
    assert "rename the file" in work.error
