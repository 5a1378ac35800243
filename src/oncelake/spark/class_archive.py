"""A class archive (AppCDS) of Spark and Delta: the JVM maps it instead of loading 20,000 classes, and starts twice as fast.

`python -m oncelake.spark.prepare` creates it once. The JVM ignores an archive that does not match its version or jars.
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
_TRAINING_RUN = "oncelake.cli.training_run"


def archive_options() -> list[str]:
    """Return the JVM options that use the archive or create it; none if there is no archive."""
    if target := os.environ.get(AT_EXIT):
        return [f"-XX:ArchiveClassesAtExit={target}", "-Xlog:disable"]
    archive = archive_path()
    # The JVM would report a mismatched archive on standard output, which belongs to the command.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.is_file() else []


def archive_path() -> Path:
    """Return the path of the archive for this Java, these jars and this training run."""
    import importlib.metadata

    program = Path(java()).resolve()
    parts = [str(program), str(program.stat().st_mtime_ns), importlib.metadata.version("pyspark"), DELTA, *delta_jars()]
    # Found without an import, which would load the whole package.
    trained = (Path(__file__).parents[1] / "cli" / "training_run.py").read_text()
    key = hashlib.sha256("\n".join([*parts, trained]).encode()).hexdigest()[:12]
    return cache_folder() / f"classes-{key}.jsa"


def create_archive() -> Path:
    """Create the archive by running a small job in a separate process; keep an existing archive."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        created = Path(scratch) / archive.name
        command = [sys.executable, "-m", _TRAINING_RUN, scratch]
        subprocess.run(command, env={**os.environ, AT_EXIT: str(created)}, check=True, stdout=subprocess.DEVNULL)
        created.replace(archive)
    return archive
