"""Open the Spark session of a lake: with the jars, the settings and the log store that its object store needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from oncelake.spark.connect import is_remote
from oncelake.spark.jars import LOG_STORE, kafka_jars, log_store_jar, s3_jars
from oncelake.spark.session import SUBMITTED, discard_session, environment, open_session
from oncelake.storage.conditional import Finding, has_conditional_puts, last_finding, try_conditional_puts
from oncelake.storage.lease import lease_problem
from oncelake.storage.options import ANYWHERE, S3_SCHEMES, is_s3, options_for, reaches_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORE_KEY = "spark.delta.logStore.{}.impl"


def open_lake_session(lake: str, settings: Mapping[str, str], *, kafka: bool = False) -> SparkSession:
    """Return the active session unchanged, or a new one that reaches the lake and, on S3, what else the project names.

    With `kafka` it also reads Kafka. A server and spark-submit were given their jars before.
    """
    s3 = reaches_s3(lake)
    if not (s3 or kafka) or is_remote(settings) or _is_running():
        return open_session(settings)
    options = options_for(lake if is_s3(lake) else ANYWHERE) if s3 else None
    own = {**options.spark(), **(log_store_settings(lake) if is_s3(lake) else {})} if options else {}
    if SUBMITTED in os.environ:
        # Its class path was given to spark-submit, and there is no command line any more that would show credentials.
        return open_session({**own, **(options.spark_credentials() if options else {}), **settings})
    discard_session(None)  # the JVM that a stopped session left has other jars
    jars = [*([*s3_jars(), log_store_jar()] if s3 else []), *(kafka_jars() if kafka else [])]
    with environment(options.environment() if options else {}):
        return open_session({**own, **settings}, jars)


def log_store_settings(lake: str) -> dict[str, str]:
    """Return the settings of our log store, if the store of a lake has conditional puts; else Delta's own is used."""
    if not try_conditional_puts(lake).conditional:
        return {}
    return {_STORE_KEY.format(scheme): LOG_STORE for scheme in S3_SCHEMES}


def several_drivers(lake: str, session: SparkSession | None = None) -> Finding:
    """Return whether several drivers may write a lake at the same time, as far as that is known; nothing is tried.

    On S3 that needs a store with conditional puts, and a session that commits by them.
    """
    if not is_s3(lake):
        # Delta's log stores for the others are safe, and on local disk our lock keeps other writers out.
        return Finding(conditional=True)
    finding = last_finding(lake)
    if not finding.conditional or session is None:
        return finding
    scheme = lake.partition("://")[0]
    if session.conf.get(_STORE_KEY.format(scheme), None) == LOG_STORE:
        return finding
    return Finding(conditional=False, problem=f"the session does not set {_STORE_KEY.format(scheme)} to {LOG_STORE}")


def fences_ranges(lake: str, session: SparkSession) -> bool:
    """Return whether the session commits a range right after the version it was decided from, or not at all.

    Otherwise a range could overwrite an interval that another driver restated meanwhile: their markers differ.
    """
    if not is_s3(lake) or not has_conditional_puts(lake):
        return False
    return session.conf.get(_STORE_KEY.format(lake.partition("://")[0]), None) == LOG_STORE


def store_problems(lake: str, session: SparkSession | None = None) -> Iterator[str]:
    """Yield what a run on a lake warns of: that only one driver at a time may write it, and that there are no leases."""
    if is_s3(lake):
        tried = try_conditional_puts(lake)
        finding = several_drivers(lake, session) if tried.conditional else tried
        if not finding.conditional:
            alone = f"{lake}: safe for one driver at a time only: {finding.problem}"
            yield f"{alone}; runners take turns by the lease of a table, do not write it by other programs meanwhile"
    if problem := lease_problem(lake):
        yield problem


def _is_running() -> bool:
    """Whether there is a session already, perhaps that of another thread."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001  pyspark does not say it elsewhere
