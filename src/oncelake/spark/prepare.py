"""`python -m oncelake.spark.prepare [--s3] [--kafka]`: fetch the jars and create class archives, so that later starts are fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oncelake.errors import KafkaNotStarted, SparkUnavailable
from oncelake.spark.class_archive import create_archive
from oncelake.spark.jars import broker_jars, delta_jars, kafka_jars, log_store_jar, s3_jars
from oncelake.spark.kafka_broker import create_broker_archive

S3, KAFKA = "--s3", "--kafka"


def prepare(arguments: Sequence[str] = ()) -> None:
    """Fetch and create what the first run would otherwise wait for.

    With `--s3` also for a lake on S3; with `--kafka` also for sources in Kafka and for `oncelake dev kafka`.
    """
    if unknown := [each for each in arguments if each not in (S3, KAFKA)]:
        sys.exit(f"unknown argument {unknown[0]}; usage: python -m oncelake.spark.prepare [{S3}] [{KAFKA}]")
    s3 = [*s3_jars(), log_store_jar()] if S3 in arguments else []
    kafka = [*kafka_jars(), *broker_jars()] if KAFKA in arguments else []
    for jar in [*delta_jars(), *s3, *kafka]:
        print(jar)
    for create in [create_archive, *([create_broker_archive] if KAFKA in arguments else [])]:
        _create(create)


def _create(create: Callable[[], Path]) -> None:
    try:
        print(create())
    except (subprocess.CalledProcessError, OSError, KafkaNotStarted) as error:
        print(f"could not create the class archive (only startup is slower): {error}")


if __name__ == "__main__":
    try:
        prepare(sys.argv[1:])
    except SparkUnavailable as error:
        sys.exit(str(error))
