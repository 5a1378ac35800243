"""Views: a script writes its tables' paths, and only the sandbox is written."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from oncelake.errors import ProverUnavailable
from oncelake.proving.views import make_views

SHOW = """
import json, sys
from pathlib import Path
from oncelake.proving.views import mount_views
mount_views(json.loads(sys.argv[1]))
exec(sys.argv[2])
"""


def inside(views, code):
    """Run code in a process that is shown the views."""
    shown = json.dumps([asdict(view) for view in views])
    return subprocess.run([sys.executable, "-c", SHOW, shown, code], capture_output=True, text=True, check=False)


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path.resolve() / "lake"
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "day.json").write_text("real")
    (folder / "orders").mkdir()
    (folder / "orders" / "data").write_text("real")
    return folder


def test_what_is_written_to_a_table_is_in_the_sandbox_and_nowhere_else(lake, tmp_path):
    views, places = make_views([lake / "orders", lake / "new" / "deep"], tmp_path / "sandbox")
    places[lake / "orders"].mkdir()
    code = f"""
for table in ("orders", "new/deep"):
    folder = Path({str(lake)!r}, table)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text(Path({str(lake)!r}, "inputs", "day.json").read_text() + " seen")
"""
    done = inside(views, code)
    assert done.returncode == 0, done.stderr
    assert (places[lake / "orders"] / "file").read_text() == "real seen"
    assert (places[lake / "new" / "deep"] / "file").read_text() == "real seen"
    assert sorted(path.name for path in lake.rglob("*")) == ["data", "day.json", "inputs", "orders"]


def test_what_lies_beside_a_table_cannot_be_written(lake, tmp_path):
    views, _ = make_views([lake / "orders"], tmp_path / "sandbox")
    done = inside(views, f"Path({str(lake)!r}, 'inputs', 'day.json').write_text('changed')")
    assert "Read-only file system" in done.stderr
    assert (lake / "inputs" / "day.json").read_text() == "real"


def test_a_table_at_the_top_of_the_file_system_is_refused(tmp_path):
    from pathlib import Path

    with pytest.raises(ProverUnavailable) as refused:
        make_views([Path("/orders")], tmp_path)
    assert refused.value.code == "prover_unavailable"
