"""Batches that are read and written in one pass: one append of a projection. The account of rows holds all the same."""

import json

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import oncelake as once

POISON = "no JSON"


def number(value):
    return json.dumps({"id": value})


@pytest.fixture
def stream(tmp_path, spark, kafka):
    topic = kafka.new_topic()

    def run(function, *messages):
        kafka.produce(topic, *messages)
        source = once.kafka(topic, servers=kafka.servers, value="json", schema="id bigint", max_messages=2)
        pipeline = once.pipeline(name="numbers", reads=source, writes=once.append("bronze"))(function)
        return once.Project.of(pipeline, lake=tmp_path / "lake", spark=spark).run()

    return run


def project(messages):
    return messages.select("value.id")


def ids(lake):
    return sorted(row["id"] for row in DeltaTable(lake / "bronze").to_pyarrow_table().to_pylist())


def recorded(lake):
    """Return the rows read as each commit records them, oldest first."""
    logs = sorted((lake / "bronze" / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for log in logs for line in log.read_text().splitlines())
    infos = [line["commitInfo"] for line in lines if "userMetadata" in line.get("commitInfo", {})]
    return [json.loads(info["userMetadata"])["oncelake"]["rows_read"] for info in infos]


def account(report):
    return [(work.slice, work.rows["read"], work.rows["written"], work.rows["quarantined"]) for work in report.works]


def test_batches_after_the_first_are_written_in_one_pass_and_a_bad_message_goes_to_quarantine(tmp_path, stream):
    lake = tmp_path / "lake"
    report = stream(project, *map(number, range(5)), POISON, *map(number, range(6, 8)))
    assert account(report) == [
        ("batch 0", 2, 2, 0),
        ("batch 1", 2, 2, 0),
        ("batch 2", 2, 1, 1),
        ("batch 3", 2, 2, 0),
    ]
    # The first may be a repeated one; the third had a bad message, so the next are counted before.
    assert recorded(lake) == [2, "as written", 2, 2]
    assert ids(lake) == [0, 1, 2, 3, 4, 6, 7]


def test_a_function_that_filters_is_counted_before_and_one_that_starts_to_is_called_again(tmp_path, stream):
    calls = []

    def changing(messages):
        calls.append(len(calls))
        return project(messages) if len(calls) < 3 else project(messages.where(F.col("offset") % 2 == 0))

    report = stream(changing, *map(number, range(8)))
    assert account(report) == [
        ("batch 0", 2, 2, 0),
        ("batch 1", 2, 2, 0),
        ("batch 2", 2, 1, 0),
        ("batch 3", 2, 1, 0),
    ]
    assert recorded(tmp_path / "lake") == [2, "as written", 2, 2]
    assert ids(tmp_path / "lake") == [0, 1, 2, 3, 4, 6]
