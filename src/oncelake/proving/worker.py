"""The process in which a job under proof runs, and which may be killed at any call. It is asked by lines of JSON.

`python -m oncelake.proving.worker VIEWS IN OUT`: what it is shown, and the numbers of two open files.
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
from oncelake.proving.views import show_views


class Worker:
    """Answers what the prover asks: open a job, run it, look at its tables, say how they differ."""

    job: Job

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What comes of one question."""
        do = {"open": self.open, "run": self.run, "warm": self.warm, "look": self.look, "differ": self.differ}
        return {**do, "versions": self.versions}[request["do"]](request)

    def open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load a job, in the place of another if there was one."""
        self.job = make_job(request["job"])
        return {}

    def warm(self, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  as its neighbours
        """Start what can be started before the job runs."""
        self.job.warm()
        return {}

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the job. What was cached of another state of the lake is forgotten first."""
        self.forget()
        return self.job.run(request)

    def look(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The fingerprint of every table there is; None for one that is not there, and for a folder of other state."""
        self.forget()
        found = {name: _log(name, path) for name, path in self.job.tables.items()}
        return {name: log and self._print(name, log.version, request) for name, log in found.items()}

    def versions(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The fingerprints of every version that came after the given ones, table by table."""
        self.forget()
        found = {}
        for name, path in self.job.tables.items():
            log, since = _log(name, path), request["since"].get(name, -1)
            numbers = range(since + 1, log.version + 1) if log else ()
            found[name] = [self._print(name, number, request) for number in numbers]
        return found

    def _print(self, name: str, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        from oncelake.delta.fingerprint import fingerprint_table

        path, exclude = self.job.tables[name], request["exclude"].get(name, ())
        found = fingerprint_table(self.job.session(), path, version=version, exclude=exclude)
        return {**found.document(), "version": version}

    def differ(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """How a table differs from another of the same name elsewhere: rows too many, rows missing, examples."""
        found = once.differences(self.job.tables[request["table"]], request["reference"], exclude=request["exclude"])
        return {**found.document(), "told": found.summary, "first": "".join(map(str, found.examples[:1]))}

    def forget(self) -> None:
        """Clear what Spark and Delta remember of files: the prover has put others in their place."""
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            # There is no public way, and the prover knows that its session is a classic one.
            session.catalog.clearCache()
            session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001


def _log(name: str, path: str) -> TableLog | None:
    try:
        return find_log(name, path)
    except NotDelta:
        return None


def main() -> None:
    """Answer until nobody asks any more."""
    views, requests, answers = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    subject, refused = Worker(), None
    try:
        show_views(views)  # before any thread is started: the kernel insists
    except OncelakeError as error:
        refused = error.message
    threading.Thread(target=_listen, args=(requests, asked), daemon=True).start()
    while True:
        request = asked.get()
        try:
            answer = {"error": refused} if refused else subject.answer(request)
        except OncelakeError as error:
            answer = {"error": error.message}
        except Exception as error:  # noqa: BLE001  the prover decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"}
        _say(answers, answer)


def _listen(requests: int, asked: queue.SimpleQueue[Any]) -> None:
    """Take in questions; when the prover is gone, end everything it started, at once."""
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            asked.put(json.loads(line))
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _say(answers: int, answer: Mapping[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(answers, data) :]


if __name__ == "__main__":
    main()
