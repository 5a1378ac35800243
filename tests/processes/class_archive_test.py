"""The class archive: pipelines of every kind run once, and the JVM that ran them writes the archive when it exits."""

import subprocess
import sys

import pytest

from oncelake.spark.class_archive import archive_path, create_archive


def test_the_set_up_has_made_an_archive():
    """Without one every run is slower, and nothing else says so."""
    assert create_archive() == archive_path()
    assert archive_path().stat().st_size > 100 << 20


@pytest.mark.long
def test_the_training_run_writes_by_every_kind_of_pipeline(tmp_path):
    command = [sys.executable, "-m", "oncelake.cli.training_run", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    written = {
        path.parent.relative_to(tmp_path / "lake").as_posix() for path in (tmp_path / "lake").rglob("_delta_log")
    }
    assert {"bronze/arrived", "bronze/daily", "silver/merged", "gold/history", "gold/totals", "gold/counts"} <= written
