"""Build the jar of the log store that the package ships: `python java/build.py` (needs javac 17 and Delta's jars).

The jar is the same for the same source and compiler: entries in order, without times. Its manifest has the digest of the source,
which a unit test compares with the committed source.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

from oncelake.spark.jars import LOG_STORE_JAR, delta_jars, pyspark_jars

HERE = Path(__file__).parent
SOURCE = HERE / "oncelake" / "S3ConditionalLogStore.java"
ENTRY = "oncelake/S3ConditionalLogStore.class"


def compiled() -> bytes:
    """Compile the source for Java 17 and return the class."""
    others = [jar for name in ("hadoop-client-api-*", "jackson-*") for jar in pyspark_jars(name)]
    class_path = [*delta_jars(), *map(str, others)]
    with tempfile.TemporaryDirectory() as scratch:
        command = ["javac", "--release", "17", "-g:lines", "-cp", ":".join(class_path), "-d", scratch, str(SOURCE)]
        subprocess.run(command, check=True)
        return Path(scratch, ENTRY).read_bytes()


def build(jar: Path) -> None:
    """Write the jar."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    # A line of a manifest has at most 72 bytes.
    manifest = f"Manifest-Version: 1.0\r\nSource-SHA-256: {digest[:50]}\r\n {digest[50:]}\r\n\r\n"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("META-INF/MANIFEST.MF", manifest.encode()), (ENTRY, compiled())):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    build(LOG_STORE_JAR)
    print(LOG_STORE_JAR)
