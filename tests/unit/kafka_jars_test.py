"""The jars of Kafka: what is fetched, where it lies, and who asks for it."""

from pathlib import Path

import pytest

from oncelake.spark.jars import broker_jars, cached_kafka_jars, kafka_jars
from oncelake.spark.kafka_coordinates import BROKER_COORDINATES, KAFKA_COORDINATES
from oncelake.spark.prepare import prepare


def put_jars(folder, coordinates):
    folder.mkdir(parents=True, exist_ok=True)
    for _, artifact, version in coordinates:
        (folder / f"{artifact}-{version}.jar").touch()


@pytest.mark.parametrize("coordinates", [KAFKA_COORDINATES, BROKER_COORDINATES])
def test_a_jar_is_named_once_and_has_a_version(coordinates):
    assert len({(group, artifact) for group, artifact, _ in coordinates}) == len(coordinates)
    assert all(version[0].isdigit() for _, _, version in coordinates)


def test_the_jars_of_the_broker_and_of_spark_fit_what_they_are_for():
    versions = {artifact: version for _, artifact, version in KAFKA_COORDINATES}
    assert versions["spark-sql-kafka-0-10_2.13"] == "4.2.0"
    broker = {version for group, _, version in BROKER_COORDINATES if group == "org.apache.kafka"}
    assert len(broker) == 1


def test_jars_that_are_there_are_not_resolved(tmp_path, monkeypatch):
    monkeypatch.setenv("ONCELAKE_JARS", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert cached_kafka_jars() == []
    put_jars(tmp_path, KAFKA_COORDINATES[1:])
    assert cached_kafka_jars() == []
    put_jars(tmp_path, KAFKA_COORDINATES)
    assert kafka_jars() == cached_kafka_jars()
    put_jars(tmp_path, BROKER_COORDINATES)
    # One folder has both versions of Kafka's client: each is asked for by its name.
    assert {Path(jar).name for jar in kafka_jars()}.isdisjoint(Path(jar).name for jar in broker_jars())


def test_prepare_refuses_what_it_does_not_know():
    with pytest.raises(SystemExit, match=r"--kafkas.*\[--s3\] \[--kafka\]"):
        prepare(["--s3", "--kafkas"])
