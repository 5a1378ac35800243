"""Who started a run, by what schedulers leave in the environment of what they start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelake.running.invocation import find_invocation

SCHEDULERS = {
    "airflow": (
        {
            "AIRFLOW_CTX_DAG_ID": "nightly",
            "AIRFLOW_CTX_TASK_ID": "orders",
            "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2024-03-15",
            "AIRFLOW_CTX_TRY_NUMBER": "2",
        },
        "airflow nightly.orders, run scheduled__2024-03-15, try 2",
    ),
    "dagster": (
        {"DAGSTER_RUN_ID": "r1", "DAGSTER_RUN_JOB_NAME": "nightly", "DAGSTER_RETRY_NUMBER": "1"},
        "dagster nightly, run r1, try 1",
    ),
    "prefect": ({"PREFECT__FLOW_RUN_ID": "r2", "PREFECT__FLOW_ID": "f"}, "prefect f, run r2"),
    "databricks": ({"DATABRICKS_RUNTIME_VERSION": "17.0"}, "databricks"),
    "github": (
        {"GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "nightly", "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "3"},
        "github nightly, run 7, try 3",
    ),
    "gitlab": ({"GITLAB_CI": "true", "CI_JOB_NAME": "orders", "CI_PIPELINE_ID": "9"}, "gitlab orders, run 9"),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_recognised(name):
    environment, told = SCHEDULERS[name]
    found = find_invocation(environment)
    assert (found.by, str(found)) == (name, told)
    assert None not in found.document().values()


def test_a_try_that_is_no_number_is_left_out():
    assert find_invocation({"DAGSTER_RUN_ID": "r", "DAGSTER_RETRY_NUMBER": "first"}).attempt is None


def test_cron_is_known_by_a_process_above(tmp_path):
    # The real cron would wait for a minute to begin; what counts is the name of the process.
    cron = tmp_path / "cron"
    cron.symlink_to(os.path.realpath("/bin/bash"))
    asking = f"'{sys.executable}' -c 'from oncelake.running.invocation import find_invocation; print(find_invocation({{}}).by)'; true"
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    told = subprocess.run([str(cron), "-c", asking], capture_output=True, text=True, check=True, env=environment)
    assert told.stdout.strip() == "cron"


def test_nobody_at_a_terminal_is_nobody_known():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from oncelake.running.invocation import find_invocation; print(find_invocation({}).by)",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "unknown"
