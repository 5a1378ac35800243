"""Delta's two jars: resolved once by the Ivy that pyspark ships, kept, and found again without resolver or network.

No repository's address stands here: Ivy knows the public one, and a company's mirror is named in ONCELAKE_IVY_SETTINGS.
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
    """Where oncelake keeps what can be had again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelake"


def delta_jars() -> list[str]:
    """The paths of Delta's jars; resolved first if they are not there yet."""
    folder = Path(os.environ.get("ONCELAKE_JARS") or cache_folder() / f"delta-{DELTA}")
    jars = [folder / f"{artifact}-{version}.jar" for _, artifact, version in COORDINATES]
    if not all(jar.is_file() for jar in jars):
        _resolve(folder)
    return [str(jar) for jar in jars]


def java() -> str:
    """The `java` that Spark will use."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        place = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        raise SparkUnavailable(
            problem=place, next="install Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def _resolve(folder: Path) -> None:
    """Resolve into a folder beside the right one, then move file by file: two processes may do this at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        dependencies = "\n".join(_IVY_DEPENDENCY.format(*coordinate) for coordinate in COORDINATES)
        ivy_file.write_text(_IVY_FILE.format(dependencies=dependencies))
        settings = os.environ.get("ONCELAKE_IVY_SETTINGS")
        command = [java(), "-jar", str(_ivy()), *(["-settings", settings] if settings else [])]
        command += ["-cache", f"{scratch}/cache", "-ivy", str(ivy_file), "-confs", "default"]
        command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch, "jars").glob("*.jar"))
        if done.returncode != 0 or len(found) != len(COORDINATES):
            said = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise SparkUnavailable(problem=f"Delta's jars could not be resolved: {''.join(said)}", next=_FETCH)
        for jar in found:
            jar.replace(folder / jar.name)


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(Path(places[0], "jars").glob("ivy-*.jar")) if places else []
    if not found:
        raise SparkUnavailable(problem="pyspark is not installed with its jars", next="pip install pyspark==4.2.0")
    return found[-1]
