"""What invoked a run, as far as the environment says. It is recorded for people; no marker depends on it."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# For each scheduler: the variable that identifies it, those that name its job, and those of the run and the attempt.
_SCHEDULERS: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    (
        "airflow",
        "AIRFLOW_CTX_DAG_ID",
        ("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID"),
        "AIRFLOW_CTX_DAG_RUN_ID",
        "AIRFLOW_CTX_TRY_NUMBER",
    ),
    ("dagster", "DAGSTER_RUN_ID", ("DAGSTER_RUN_JOB_NAME",), "DAGSTER_RUN_ID", "DAGSTER_RETRY_NUMBER"),
    ("prefect", "PREFECT__FLOW_RUN_ID", ("PREFECT__FLOW_ID",), "PREFECT__FLOW_RUN_ID", "PREFECT__FLOW_RUN_COUNT"),
    ("databricks", "DATABRICKS_RUNTIME_VERSION", ("DATABRICKS_JOB_ID",), "DATABRICKS_RUN_ID", "DATABRICKS_ATTEMPT"),
    ("github", "GITHUB_ACTIONS", ("GITHUB_WORKFLOW", "GITHUB_JOB"), "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"),
    ("gitlab", "GITLAB_CI", ("CI_PROJECT_PATH", "CI_JOB_NAME"), "CI_PIPELINE_ID", "CI_JOB_RETRY"),
)


@dataclass(frozen=True)
class Invocation:
    """What invoked a run: a scheduler with its job, run and attempt, or cron, or a person."""

    by: str
    what: str | None = None
    run: str | None = None
    attempt: int | None = None

    def document(self) -> dict[str, str | int]:
        """Return the fields to record, without those that are unknown."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        """Format for display: `airflow nightly.orders, run scheduled__2024-03-15, try 2`."""
        parts = [" ".join(filter(None, (self.by, self.what)))]
        parts += [f"run {self.run}"] if self.run else []
        parts += [f"try {self.attempt}"] if self.attempt else []
        return ", ".join(parts)


def find_invocation(environment: Mapping[str, str] = os.environ) -> Invocation:
    """Return what invoked this process, by its environment variables and parent processes."""
    for by, variable, what, run, attempt in _SCHEDULERS:
        if environment.get(variable):
            names = [environment[name] for name in what if environment.get(name)]
            number = environment.get(attempt, "")
            return Invocation(
                by, ".".join(names) or None, environment.get(run), int(number) if number.isdigit() else None
            )
    if _under_cron():
        return Invocation("cron", _user())
    return (
        Invocation("person", _user())
        if sys.stdin is not None and sys.stdin.isatty()
        else Invocation("unknown", _user())
    )


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _under_cron() -> bool:
    """Return whether an ancestor of this process is cron."""
    pid = os.getppid()
    for _ in range(16):
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            return False
        if name in ("cron", "crond"):
            return True
        pid = int(rest.split()[1])
        if pid <= 1:
            return False
    return False
