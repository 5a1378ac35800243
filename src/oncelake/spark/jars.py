"""Delta's two jars: resolved once by the Ivy that pyspark ships, then cached and used without a network.

No repository is configured here: Ivy knows Maven Central, and ONCELAKE_IVY_SETTINGS names a file with a mirror.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from oncelake.errors import SparkUnavailable

DELTA = "4.4.0"
COORDINATES = (("io.delta", "delta-spark_4.2_2.13", DELTA), ("io.delta", "delta-storage", DELTA))
_IVY_FILE = """<ivy-module version="2.0"><info organisation="oncelake" module="jars"/><dependencies>
{dependencies}
</dependencies></ivy-module>
"""
_IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default->default"/>'
_FETCH = "python -m oncelake.spark.prepare"


def cache_folder() -> Path:
    """Return the cache folder; everything in it can be recreated."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelake"


def delta_jars() -> list[str]:
    """Return the paths of Delta's jars; resolve them first if they are missing."""
    folder = Path(os.environ.get("ONCELAKE_JARS") or cache_folder() / f"delta-{DELTA}")
    jars = [folder / f"{artifact}-{version}.jar" for _, artifact, version in COORDINATES]
    if not all(jar.is_file() for jar in jars):
        _resolve(folder)
    return [str(jar) for jar in jars]


def java() -> str:
    """Return the path of the `java` that Spark will use; raise SparkUnavailable if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        problem = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        raise SparkUnavailable(
            problem=problem, next="install Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def _resolve(folder: Path) -> None:
    """Resolve into a temporary folder, then move file by file, because two processes may do this concurrently."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        dependencies = "\n".join(_IVY_DEPENDENCY.format(*coordinate) for coordinate in COORDINATES)
        ivy_file.write_text(_IVY_FILE.format(dependencies=dependencies))
        settings = os.environ.get("ONCELAKE_IVY_SETTINGS")
        command = [java(), "-jar", str(_ivy_jar()), *(["-settings", settings] if settings else [])]
        command += ["-cache", f"{scratch}/cache", "-ivy", str(ivy_file), "-confs", "default"]
        command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch, "jars").glob("*.jar"))
        if done.returncode != 0 or len(found) != len(COORDINATES):
            last_line = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise SparkUnavailable(problem=f"could not resolve Delta's jars: {''.join(last_line)}", next=_FETCH)
        for jar in found:
            jar.replace(folder / jar.name)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    found = sorted(Path(folders[0], "jars").glob("ivy-*.jar")) if folders else []
    if not found:
        raise SparkUnavailable(problem="pyspark is not installed with its jars", next="pip install pyspark==4.2.0")
    return found[-1]
