"""A table whose log cannot be read blocks the restatement of what depends on it, and of nothing else."""

import pytest

import oncelake as once
from oncelake.errors import CorruptLog
from oncelake.model.intervals import Grid
from oncelake.model.markers import marker
from support.hand_written_logs import txn, write_commit

DAY = next(iter(Grid("day").cells(Grid("day").parse("2024-03-01"), Grid("day").parse("2024-03-02"))))


def declare(name, reads):
    source = once.table(reads, time="at")
    decorate = once.pipeline(
        name=name, every="day", start="2024-03-01", reads=source, writes=once.replace_interval(name, time="at")
    )
    return decorate(lambda rows: rows)


@pytest.fixture
def project(tmp_path):
    pipelines = [declare("rep", "raw"), declare("reader", "rep"), declare("app", "raw"), declare("last", "app")]
    for name in ("rep", "reader", "app", "last"):
        write_commit(tmp_path / name, 0)
        facts = {"pipeline": name, "target": name, "slice": DAY.text, "generation": 1}
        write_commit(tmp_path / name, 1, txn(marker(name, name, DAY, 1)), facts=facts)
    (tmp_path / "app" / "_delta_log" / f"{1:020}.json").write_text("{torn")
    return once.Project.of(*pipelines, lake=tmp_path)


def test_an_unrelated_table_that_cannot_be_read_blocks_nothing(project):
    found = project.restatement("rep", downstream=True, date="2024-03-01")
    assert [(request.pipeline, request.generation) for request in found] == [("rep", 2), ("reader", 2)]
    assert project.downstream("rep") == ["reader"]


def test_a_table_in_between_that_cannot_be_read_is_named(project):
    with pytest.raises(CorruptLog, match="app"):
        project.restatement("app", downstream=True, date="2024-03-01")
