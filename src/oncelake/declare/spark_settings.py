"""`spark:` of `oncelake.yaml`: settings that show a credential are refused, and so is an address that no client can use."""

from __future__ import annotations

import re

from oncelake.declare.store import expand
from oncelake.errors import BadSettings

REMOTE = "spark.remote"
_S3_SECRET = re.compile(r"fs\.s3[an]?\..*(access\.?key|secret\.?key|session\.token|password)", re.IGNORECASE)
# Settings that become environment variables of executors and drivers, and those that are options of a JVM.
_VARIABLE = re.compile(r"spark\.(?:executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\.(.+)", re.IGNORECASE)
_JAVA_OPTIONS = re.compile(r"\.(?:extra|default)JavaOptions$", re.IGNORECASE)
_PROPERTY = re.compile(r"-D([^\s=]+)=")
_SECRET = re.compile(r"secret|passw(?:or)?d|token|access[._-]?key|api[._-]?key|private[._-]?key", re.IGNORECASE)
# A variable that names a file or an address of credentials is none itself.
_PLACE = re.compile(r"(?:file|path|dir|uri|url)$", re.IGNORECASE)
_ADDRESS = re.compile(r"sc://[^/;\s@]+(?:/(?:;.*)?)?|local(?:\[.*\])?")
_TOKEN = re.compile(r";\s*token=(?!\$\{\w+\}(?:;|$))", re.IGNORECASE)


def check_spark_setting(key: str, value: str, where: str) -> None:
    """Refuse a credential among the Spark settings, and an invalid `spark.remote`. No message has the value: it may be a secret."""
    if shown := _credential(key, value):
        problem = f"{shown} is a credential: Spark's settings are on its command line"
        way = "use `storage:` with access_key and secret_key as ${NAME}, or the environment of the machine"
        raise BadSettings(where=where, problem=f"{problem}; {way}")
    if key != REMOTE:
        return
    if _TOKEN.search(value):
        problem = "the token of spark.remote must not be written here: name an environment variable"
        raise BadSettings(where=where, problem=f"{problem}, sc://host:port/;token=${{NAME}}")
    if not _ADDRESS.fullmatch(value) and "${" not in value:
        raise BadSettings(where=where, problem="spark.remote must look like sc://host:port, or local[*]")


def read_spark_setting(key: str, value: str, where: str) -> str:
    """Return the value of a setting; in `spark.remote`, `${NAME}` is replaced by the environment variable."""
    if key != REMOTE or "${" not in value:
        return value
    address = expand(value, where)
    if not _ADDRESS.fullmatch(address):
        raise BadSettings(where=where, problem="spark.remote must look like sc://host:port, or local[*]")
    return address


def _credential(key: str, value: str) -> str | None:
    """Return the name of the credential that a setting shows, or None."""
    if _S3_SECRET.search(key):
        return key
    if (variable := _VARIABLE.fullmatch(key)) and _is_secret(variable[1]):
        return key
    properties = _PROPERTY.findall(value) if _JAVA_OPTIONS.search(key) else []
    return next((f"{name} in {key}" for name in properties if _is_secret(name)), None)


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and _PLACE.search(name) is None
