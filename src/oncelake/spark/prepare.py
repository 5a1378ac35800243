"""`python -m oncelake.spark.prepare`: fetch Delta's jars and make the class archive, once, so that later starts are fast."""

from __future__ import annotations

import subprocess
import sys

from oncelake.errors import SparkUnavailable
from oncelake.spark.class_archive import make_archive
from oncelake.spark.jars import delta_jars


def prepare() -> None:
    """Make ready what a first run would otherwise wait for."""
    for jar in delta_jars():
        print(jar)
    try:
        print(make_archive())
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"no class archive (starts are slower, nothing else): {error}")


if __name__ == "__main__":
    try:
        prepare()
    except SparkUnavailable as error:
        sys.exit(str(error))
