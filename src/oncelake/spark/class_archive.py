"""A class archive of Spark and Delta: the JVM maps it instead of loading 20,000 classes, and starts in half the time.

Made once by `python -m oncelake.spark.prepare`. A JVM that finds it does not fit (another Java, other jars) ignores it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from oncelake.spark.jars import DELTA, cache_folder, delta_jars, java

AT_EXIT = "ONCELAKE_ARCHIVE_AT_EXIT"


def archive_options() -> list[str]:
    """The JVM options that use the archive, make it, or do neither."""
    if target := os.environ.get(AT_EXIT):
        return [f"-XX:ArchiveClassesAtExit={target}", "-Xlog:disable"]
    archive = archive_path()
    # The JVM would tell of an archive that does not fit on standard output, which belongs to the command.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.is_file() else []


def archive_path() -> Path:
    """Where the archive for this Java and these jars is kept."""
    import importlib.metadata

    program = Path(java()).resolve()
    parts = [str(program), str(program.stat().st_mtime_ns), importlib.metadata.version("pyspark"), DELTA, *delta_jars()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder() / f"classes-{key}.jsa"


def make_archive() -> Path:
    """Make the archive by running a small job of every verb in a process of its own; the one that is there is kept."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch) / archive.name
        command = [sys.executable, "-m", "oncelake.delta.warmup", scratch]
        subprocess.run(command, env={**os.environ, AT_EXIT: str(made)}, check=True, stdout=subprocess.DEVNULL)
        made.replace(archive)
    return archive
