"""`python -m oncelake.spark.prepare`: fetch Delta's jars and create the class archive, so that later starts are fast."""

from __future__ import annotations

import subprocess
import sys

from oncelake.errors import SparkUnavailable
from oncelake.spark.class_archive import create_archive
from oncelake.spark.jars import delta_jars


def prepare() -> None:
    """Fetch and create what the first run would otherwise wait for."""
    for jar in delta_jars():
        print(jar)
    try:
        print(create_archive())
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"could not create the class archive (only startup is slower): {error}")


if __name__ == "__main__":
    try:
        prepare()
    except SparkUnavailable as error:
        sys.exit(str(error))
