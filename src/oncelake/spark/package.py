"""Send oncelake itself to the workers of a cluster, where functions of ours run: it is pure Python, and need not be installed there."""

from __future__ import annotations

import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from oncelake.spark.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_shipped: set[str] = set()


def ship_package(session: SparkSession) -> None:
    """Make oncelake importable on the workers, once per session; on this machine they have it."""
    remote = is_connect(session)
    name = str(session.session_id if remote else session.sparkContext.applicationId)  # type: ignore[attr-defined]
    if name in _shipped or (not remote and str(session.sparkContext.master).startswith("local")):
        return
    _shipped.add(name)
    if remote:
        session.addArtifacts(_archive(), pyfile=True)
    else:
        session.sparkContext.addPyFile(_archive())


@cache
def _archive() -> str:
    root = Path(__file__).resolve().parents[1]
    archive = Path(tempfile.mkdtemp(prefix="oncelake-")) / "oncelake.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, path.relative_to(root.parent))
    return str(archive)
