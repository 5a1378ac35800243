"""Which micro-batches are read and written in one pass, without being kept and counted before."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.running.rowwise import keeps_rows, tag_rows
from oncelake.spark.jobs import watch_jobs
from oncelake.streaming.micro_batch import NO_PROJECTION, MicroBatch

# So many batches are counted first after one that had a bad row.
_CAREFUL = 20


class OnePass:
    """Decides which batches of a query are read and written in one pass, without being kept and counted before.

    That needs a single append of a projection of the rows: then Delta's own count of the rows written, in the same commit,
    is the count of the rows read. A row that cannot be decoded fails the write, and the batch is read the other way, which
    sends it to quarantine before the commit. The first batch of a query may be a repeated one, and is never read so.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        """Nothing is known of the function yet."""
        single = len(pipeline.writes) == 1 and pipeline.writes[0].kind == "append" and not pipeline.stateful
        self._pipeline, self._possible, self._tag = pipeline, single, uuid.uuid4().hex
        self._projects, self._waits = False, 0

    def choose(self, batch: MicroBatch) -> None:
        """Choose how a batch is read. After a bad row the next batches are not read in one pass: there may be more."""
        batch.in_one_pass = self._possible and self._projects and self._waits <= 0
        self._waits -= 1

    def note(self, batch: MicroBatch) -> None:
        """Take in whether a batch had rows that could not be decoded."""
        if batch.had_bad_rows:
            self._waits = _CAREFUL

    def function(self, name: str, batch: MicroBatch) -> Callable[..., Any]:
        """Return the function of the pipeline; what it returns is looked at, to learn whether it only projects its rows."""
        function = self._pipeline.function
        if not self._possible:
            return function

        @wraps(function)
        def watched(**frames: Any) -> Any:
            tagged = {**frames, name: tag_rows(frames[name], self._tag)}
            with watch_jobs(frames[name].sparkSession) as jobs:
                result = function(**tagged)
            frame: Any = result.get(self._pipeline.writes[0].target) if isinstance(result, dict) else result
            projects = hasattr(frame, "_jdf") and keeps_rows(frame, self._tag)
            if batch.in_one_pass and not projects:
                self._projects = False
                raise ValueError(NO_PROJECTION)  # the batch is read again, the other way
            self._projects = projects and (self._projects or not jobs.ran)
            return result

        return watched
