"""Where a project runs: its profile, Spark's master, its store, and whether several drivers may write there at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from oncelake.declare.settings import Settings
from oncelake.delta.lake_session import several_drivers
from oncelake.spark.connect import is_remote
from oncelake.spark.jars import LOG_STORE
from oncelake.storage.conditional import Finding
from oncelake.storage.options import is_s3, options_for
from oncelake.storage.paths import is_local


@dataclass(frozen=True)
class Environment:
    """Where a project runs. `several_drivers` is None as long as nobody knows: the first run on a store tries it."""

    profile: str | None
    master: str
    lake: str
    store: str
    several_drivers: bool | None
    why: str

    def document(self) -> dict[str, Any]:
        """Return it as `status --json` prints it."""
        return vars(self).copy()

    def lines(self) -> list[str]:
        """Return it as `status` prints it."""
        known = {True: "safe", False: "not safe, run one at a time", None: "not known"}[self.several_drivers]
        profile = f"profile {self.profile}, " if self.profile else ""
        first = f"{profile}master {self.master}, lake {self.lake} ({self.store})"
        return [first, f"several drivers at once: {known}{f' ({self.why})' if self.why else ''}"]


def find_environment(settings: Settings) -> Environment:
    """Return where a project with these settings runs. Nothing is started and nothing is written."""
    spark = settings.spark
    master = spark.get("spark.remote") or os.environ.get("SPARK_REMOTE") or spark.get("spark.master")
    finding = _remote_finding(settings.lake) if is_remote(spark) else several_drivers(settings.lake)
    return Environment(
        profile=settings.profile,
        # The token of a Connect server is part of its address.
        master=(master or os.environ.get("MASTER", "local[*]")).partition(";")[0],
        lake=settings.lake,
        store=_store(settings.lake),
        several_drivers=finding.conditional,
        why=finding.problem or _why(settings.lake),
    )


def _remote_finding(lake: str) -> Finding:
    """Return what is known of several clients of a Connect server: the server commits, and the lock keeps none of them out."""
    if is_local(lake):
        return Finding(
            conditional=True, problem="through one server, which commits for all; nothing relies on the lock"
        )
    finding = several_drivers(lake)
    if not is_s3(lake) or not finding.conditional:
        return finding
    setting = f"spark.delta.logStore.{lake.partition('://')[0]}.impl={LOG_STORE}"
    return Finding(
        conditional=None, problem=f"the store has conditional puts; they are used if the server sets {setting}"
    )


def _store(lake: str) -> str:
    if is_local(lake):
        return "local disk"
    if not is_s3(lake):
        return lake.partition("://")[0]
    return f"S3 at {options_for(lake).endpoint or 'AWS'}"


def _why(lake: str) -> str:
    if is_local(lake):
        return "a lock per table"
    return "commits by conditional puts" if is_s3(lake) else "Delta's log store"
