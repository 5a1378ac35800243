"""`python -m oncelake.spark.prepare [--s3]`: fetch the jars and create the class archive, so that later starts are fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from oncelake.errors import SparkUnavailable
from oncelake.spark.class_archive import create_archive
from oncelake.spark.jars import delta_jars, log_store_jar, s3_jars

S3 = "--s3"


def prepare(arguments: Sequence[str] = ()) -> None:
    """Fetch and create what the first run would otherwise wait for; with `--s3` also for a lake on S3."""
    if unknown := [each for each in arguments if each != S3]:
        sys.exit(f"unknown argument {unknown[0]}; usage: python -m oncelake.spark.prepare [{S3}]")
    for jar in [*delta_jars(), *([*s3_jars(), log_store_jar()] if S3 in arguments else [])]:
        print(jar)
    try:
        print(create_archive())
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"could not create the class archive (only startup is slower): {error}")


if __name__ == "__main__":
    try:
        prepare(sys.argv[1:])
    except SparkUnavailable as error:
        sys.exit(str(error))
