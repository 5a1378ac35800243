"""Delta's two jars, and those for S3 and Kafka: resolved once by the Ivy that pyspark ships, then cached and used without a network.

No repository is configured here: Ivy knows Maven Central, and ONCELAKE_IVY_SETTINGS names a file with a mirror.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oncelake.errors import SparkUnavailable
from oncelake.spark.kafka_coordinates import BROKER, BROKER_COORDINATES, CLIENT, KAFKA_COORDINATES, SPARK_KAFKA

DELTA = "4.4.0"
COORDINATES = (("io.delta", "delta-spark_4.2_2.13", DELTA), ("io.delta", "delta-storage", DELTA))
# Hadoop's S3 client, and of Amazon's library what it uses: 13 MB instead of the bundle of 686 MB that it names. What pyspark
# has itself (Netty, logging, the Apache HTTP client) is left out.
HADOOP, AWS = "3.5.0", "2.35.4"
_AWS_MODULES = """
    annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi
    crt-core endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi
    identity-spi json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3
    s3-transfer-manager sdk-core sts third-party-jackson-core utils utils-lite
"""
S3_COORDINATES = (
    ("org.apache.hadoop", "hadoop-aws", HADOOP),
    *(("software.amazon.awssdk", module, AWS) for module in _AWS_MODULES.split()),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ("software.amazon.eventstream", "eventstream", "1.0.1"),
    ("org.reactivestreams", "reactive-streams", "1.0.4"),
)
# Ours: commits by conditional puts, so that several drivers are safe on S3. Its source is in java/.
LOG_STORE = "oncelake.S3ConditionalLogStore"
LOG_STORE_JAR = Path(__file__).with_name("oncelake-log-store.jar")
Coordinate = tuple[str, str, str]
_IVY_FILE = """<ivy-module version="2.0"><info organisation="oncelake" module="jars"/><dependencies>
{dependencies}
</dependencies></ivy-module>
"""
_IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default->default"/>'
# Every jar is named, so no pom is needed: half the requests. Without a root, `ibiblio` is Maven Central.
_IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false"/>
</resolvers></ivysettings>
"""
_FETCH = "python -m oncelake.spark.prepare"
_KAFKA = f"kafka-{SPARK_KAFKA}-{CLIENT}"


def cache_folder() -> Path:
    """Return the cache folder; everything in it can be recreated."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelake"


def delta_jars() -> list[str]:
    """Return the paths of Delta's jars; resolve them first if they are missing."""
    return _jars(f"delta-{DELTA}", COORDINATES, _FETCH)


def cached_delta_jars() -> list[str]:
    """Return the same if they are there; nothing is resolved."""
    paths = _paths(f"delta-{DELTA}", COORDINATES)
    return [str(path) for path in paths] if all(path.is_file() for path in paths) else []


def s3_jars() -> list[str]:
    """Return the paths of the jars for S3; resolve them first if they are missing."""
    return _jars(f"s3-{HADOOP}-{AWS}", S3_COORDINATES, f"{_FETCH} --s3")


def kafka_jars() -> list[str]:
    """Return the paths of the jars with which Spark reads Kafka; resolve them first if they are missing."""
    return _jars(_KAFKA, KAFKA_COORDINATES, f"{_FETCH} --kafka")


def cached_kafka_jars() -> list[str]:
    """Return the same if they are there; nothing is resolved."""
    paths = _paths(_KAFKA, KAFKA_COORDINATES)
    return [str(path) for path in paths] if all(path.is_file() for path in paths) else []


def broker_jars() -> list[str]:
    """Return the paths of the jars of a Kafka broker; resolve them first if they are missing."""
    return _jars(f"kafka-broker-{BROKER}", BROKER_COORDINATES, f"{_FETCH} --kafka")


def log_store_jar() -> str:
    """Return the path of the jar with our log store, which is part of this package."""
    return str(LOG_STORE_JAR)


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


def spark_home() -> Path:
    """Return the folder of pyspark, which is a whole Spark; raise SparkUnavailable if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise SparkUnavailable(problem="pyspark is not installed", next="pip install pyspark==4.2.0")
    return Path(folders[0])


def pyspark_jars(pattern: str) -> list[Path]:
    """Return the jars of pyspark whose names match."""
    return sorted((spark_home() / "jars").glob(f"{pattern}.jar"))


def _jars(name: str, coordinates: Sequence[Coordinate], fetch: str) -> list[str]:
    jars = _paths(name, coordinates)
    if not all(jar.is_file() for jar in jars):
        _resolve(jars[0].parent, coordinates, fetch)
    return [str(jar) for jar in jars]


def _paths(name: str, coordinates: Sequence[Coordinate]) -> list[Path]:
    folder = Path(os.environ.get("ONCELAKE_JARS") or cache_folder() / name)
    return [folder / f"{artifact}-{version}.jar" for _, artifact, version in coordinates]


def _resolve(folder: Path, coordinates: Sequence[Coordinate], fetch: str) -> None:
    """Resolve into a temporary folder, then move file by file, because two processes may do this concurrently."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        dependencies = "\n".join(_IVY_DEPENDENCY.format(*coordinate) for coordinate in coordinates)
        ivy_file.write_text(_IVY_FILE.format(dependencies=dependencies))
        (Path(scratch) / "settings.xml").write_text(_IVY_SETTINGS)
        settings = os.environ.get("ONCELAKE_IVY_SETTINGS") or f"{scratch}/settings.xml"
        command = [java(), "-jar", str(_ivy_jar()), "-settings", settings]
        command += ["-cache", f"{scratch}/cache", "-ivy", str(ivy_file), "-confs", "default"]
        command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch, "jars").glob("*.jar"))
        if done.returncode != 0 or len(found) != len(coordinates):
            last_line = (done.stdout + done.stderr).strip().splitlines()[-1:]
            problem = f"could not resolve the jars for {folder.name}: {''.join(last_line)}"
            raise SparkUnavailable(problem=problem, next=fetch)
        for jar in found:
            jar.replace(folder / jar.name)


def _ivy_jar() -> Path:
    found = pyspark_jars("ivy-*")
    if not found:
        raise SparkUnavailable(problem="pyspark is not installed with its jars", next="pip install pyspark==4.2.0")
    return found[-1]


if __name__ == "__main__":
    s3 = [*s3_jars(), log_store_jar()] if "--s3" in sys.argv else []
    print(",".join([*delta_jars(), *s3, *(kafka_jars() if "--kafka" in sys.argv else [])]))
