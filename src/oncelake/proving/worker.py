"""The worker process that runs a job under proof and may be killed at any call. Requests are lines of JSON.

`python -m oncelake.proving.worker VIEWS IN OUT`: the views to mount, and two file descriptors for requests and answers.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import oncelake as once
from oncelake.delta.log import TableLog, find_log
from oncelake.errors import NotDelta, OncelakeError
from oncelake.proving.jobs import Job, make_job
from oncelake.proving.views import mount_views


class Worker:
    """Answers the prover's requests: open a job, run it, fingerprint its tables, compare them."""

    job: Job

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Execute one request and return its answer."""
        handlers = {
            "open": self.open,
            "run": self.run,
            "plan": self.plan,
            "copy_inputs": self.copy_inputs,
            "warm": self.warm,
            "fingerprints": self.fingerprints,
            "versions": self.versions,
            "differences": self.differences,
        }
        return handlers[request["do"]](request)

    def open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load a job; it replaces an earlier one."""
        self.job = make_job(request["job"])
        return {}

    def warm(self, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  the signature of every handler
        """Start what can be started before a run."""
        self.job.warm()
        return {}

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the job. Caches of an earlier state of the lake are cleared first."""
        self.clear_caches()
        return self.job.run(request)

    def plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the job would do."""
        self.clear_caches()
        return self.job.plan(request)

    def copy_inputs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the tables that the job reads by interval."""
        self.clear_caches()
        return self.job.copy_inputs(request)

    def fingerprints(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fingerprint of every table, or of those at given paths; None if it is not a Delta table."""
        self.clear_caches()
        found = {name: _log(name, path) for name, path in request.get("tables", self.job.tables).items()}
        return {name: log and self._fingerprint(log, log.version, request) for name, log in found.items()}

    def versions(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fingerprints of every later version, by table."""
        self.clear_caches()
        found = {}
        for name, path in self.job.tables.items():
            log, first = _log(name, path), request["since"].get(name, -1) + 1
            found[name] = [self._fingerprint(log, v, request) for v in range(first, log.version + 1)] if log else []
        return found

    def _fingerprint(self, log: TableLog, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        from oncelake.delta.fingerprint import fingerprint_table

        exclude = request["exclude"].get(log.table, ())
        found = fingerprint_table(self.job.session(), log.path, version=version, exclude=exclude)
        return {**found.document(), "version": version}

    def differences(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return how a table differs from its reference: rows too many, rows missing, examples."""
        found = once.differences(self.job.tables[request["table"]], request["reference"], exclude=request["exclude"])
        return {**found.document(), "summary": found.summary, "first": "".join(map(str, found.examples[:1]))}

    def clear_caches(self) -> None:
        """Clear the caches of Spark and Delta, because the prover has replaced files."""
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            # There is no public API for this; the prover's session is always a classic one.
            session.catalog.clearCache()
            session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001


def _log(name: str, path: str) -> TableLog | None:
    try:
        return find_log(name, path)
    except NotDelta:
        return None


def main() -> None:
    """Answer requests until the prover is gone."""
    views, requests, answers = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    pending: queue.SimpleQueue[Any] = queue.SimpleQueue()
    worker, failure = Worker(), None
    try:
        mount_views(views)  # before any thread is started: the kernel requires it
    except OncelakeError as error:
        failure = error.message
    threading.Thread(target=_listen, args=(requests, pending), daemon=True).start()
    while True:
        request = pending.get()
        try:
            answer = {"error": failure} if failure else worker.answer(request)
        except OncelakeError as error:
            answer = {"error": error.message}
        except Exception as error:  # noqa: BLE001  the prover handles it
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write_answer(answers, answer)


def _listen(requests: int, pending: queue.SimpleQueue[Any]) -> None:
    """Queue requests; when the prover is gone, kill this process group immediately."""
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            pending.put(json.loads(line))
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _write_answer(answers: int, answer: Mapping[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(answers, data) :]


if __name__ == "__main__":
    main()
